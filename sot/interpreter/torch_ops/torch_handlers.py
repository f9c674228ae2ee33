"""Handlers of torch functions that are not operations: modules, global state, flags, random seeds."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.profiler import record_function
from torch.nn.modules import module as torch_module

from sot import _hook
from sot.graph.number_rules import drawing
from sot.guards.assumptions import Part
from sot.guards.guards import NO_HOOK_DICTS, LengthGuard, NoHooksGuard
from sot.guards.library_functions import FlagGuard
from sot.guards.origin import known
from sot.interpreter.builtins.common import refuse, take
from sot.interpreter.effects.torch_warnings import taken
from sot.interpreter.objects.lookup import class_value, lookup
from sot.interpreter.torch_ops.constructors.of_numbers import of_varying
from sot.interpreter.torch_ops.data_sizes import graph_numbers, operations
from sot.interpreter.torch_ops.overrides import asked
from sot.interpreter.torch_ops.torch_calls import operation, torch_call
from sot.polyfills import torch_code
from sot.support import user_annotations
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.registry import HANDLERS, handles
from sot.torch_compat import functions
from sot.torch_compat.callables import COMPILING_FLAGS, is_question, is_told
from sot.torch_compat.global_state import (
    ANOMALY_READERS,
    ENTER_VMAP,
    FLAG_READERS,
    FLAGS,
    FLAGS_READ,
    LEAVING,
    PURE_STATE_READS,
    SET_DEFAULT_DTYPE,
    STATE_PAIRS,
    STATE_SETTERS,
    anomaly_state,
    are_tied,
    deterministic_before,
    enter_inference_mode,
    exit_inference_mode,
    set_anomaly,
    set_deterministic,
    take_inference_mode,
    undo_of,
)
from sot.values.base import ABSENT, NONE, Const, NotConstant, Value, boolean
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber
from sot.values.objects import DictValue, ListValue, ObjectValue, TupleValue
from sot.values.tensor import TensorValue, has_own_code
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

Module = torch.nn.Module
CALL_IMPL = Module._call_impl
GLOBAL_HOOKS = {name: getattr(torch_module, name) for name in (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")}


# ---- modules
@handles(Module.__call__)
def call_module(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``module(*args)``: calls ``forward`` directly unless there are hooks, which are executed in torch's order."""
    self_ = args[0]
    if self_.real is not ABSENT and user_annotations.is_not_to_static(self_.real):
        raise Break(Reason.NOT_TO_STATIC, str(self_))
    raw, owner = lookup(m, self_.pytype, "_call_impl")
    implementation = class_value(m, raw, owner, "_call_impl")
    if raw is not CALL_IMPL or not isinstance(self_, ObjectValue) or has_hooks(m, self_):
        return implementation.call(m, args, kwargs)
    return self_.load_attr(m, "forward").call(m, args[1:], kwargs)


def has_hooks(m: Machine, module: ObjectValue) -> bool:
    for name, hooks in GLOBAL_HOOKS.items():
        _, value = m.by_id.get(id(hooks), (hooks, None))
        if isinstance(value, DictValue):        # the program has used it, and may have changed it
            if value.keys(m):
                return True
            continue
        m.guard(LengthGuard(known(hooks, name), len(hooks)))
        if hooks:
            return True
    attrs = module.attrs
    for name in NO_HOOK_DICTS:
        held: Any = attrs.overlay.get(name, attrs.loaded.get(name))
        if isinstance(held, DictValue) and held.keys(m):
            return True
    if module.real is not ABSENT and module.origin is not None:
        if any(getattr(module.real, name) for name in NO_HOOK_DICTS):
            return True
        m.guard(NoHooksGuard(module.origin))
    return False


# ---- global state
def set_state(m: Machine, setter: Any, args: list[Value]) -> Value:
    """Change torch's global state: at once for the rest of the capture, and by a node when the graph runs. The size
    of a batch of ``torch.vmap`` may vary.
    """
    try:
        given = tuple(v.ref(m) if setter is ENTER_VMAP and isinstance(v, DynamicNumber) and v.varies else v.constant()
                      for v in args)
        values = tuple(getattr(value, "fake", value) for value in given)
        undo = undo_of(setter, values, m.state_log)
        result = setter(*values)
    except NotConstant as e:
        raise Break(Reason.OPAQUE_VALUE, str(e)) from None
    except (TypeError, ValueError, RuntimeError) as e:
        raise Break(Reason.OPERATION_FAILED, str(e)) from None
    m.state_log.append((setter, values, undo(result)))
    m.undoable(m.undo_state)
    m.builder.record_state(setter, given, m.stack_trace())
    return NONE if result is None else Const(result)


def _set_state(setter: Any) -> None:
    @handles(setter)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if setter is SET_DEFAULT_DTYPE and (m.assumptions.compiles or m.builder.region is not None):
            raise Break(Reason.SIDE_EFFECT, "torch.set_default_dtype()")
        if setter is SET_DEFAULT_DTYPE and m.shown:
            raise Break(Reason.SIDE_EFFECT, "torch.set_default_dtype() after text that shows a tensor")
        return set_state(m, setter, args)


def _read_state(reader: Any) -> None:
    @handles(reader)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return wrap_new(m, reader(*(a.constant() for a in args)))


for _setter in (*STATE_SETTERS.keys() - {*FLAGS}, *STATE_PAIRS, *LEAVING):
    _set_state(_setter)
for _reader in PURE_STATE_READS:
    _read_state(_reader)


@functools.cache
def asking(reader: Any, *args: Any) -> Any:
    """What gives a flag without arguments."""
    return functools.partial(reader, *args) if args else reader


def _flag(reader: Any, setter: Any = None) -> None:
    @handles(reader)
    def read(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        asked = asking(reader, *(a.constant() for a in args))
        found = asked()
        guard = FlagGuard(known(asked, reader.__name__), found)
        if guard not in m.guards and any(changed is not setter and are_tied(changed, reader)
                                         for changed, _, _ in m.state_log):
            raise Break(Reason.SIDE_EFFECT, f"{reader.__name__} after a change of another form of it")
        if not any(changed is setter for changed, _, _ in m.state_log):
            m.guard(guard)
        return wrap_new(m, found)

    @handles(*[setter] * (setter is not None))
    def write(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return set_flag(m, setter, *(a.host(m) for a in args))


for _setter, _reader in FLAG_READERS.items():
    _flag(_reader, _setter)
for _reader in FLAGS_READ:
    _flag(_reader)


def set_flag(m: Machine, setter: Any, *values: Any) -> Value:
    """Change a flag that kernels read when they run. A compiled graph does not read it."""
    if m.assumptions.compiles or m.builder.region is not None:
        raise Break(Reason.SIDE_EFFECT, setter.__name__)
    if setter in FLAG_READERS and FLAG_READERS[setter](*values[:-1]) is None:
        return set_nothing(m, setter, *values)
    return set_state(m, setter, [Const(value) for value in values])


def set_nothing(m: Machine, setter: Any, *values: Any) -> Value:
    """Set a flag that has no value: this build of torch does not have it, so the setter may warn and does nothing."""
    m.warned.clear()
    try:
        setter(*values)
    except (TypeError, ValueError, RuntimeError, Warning) as e:
        raise Break(Reason.OPERATION_FAILED, str(e)) from None
    if FLAG_READERS[setter](*values[:-1]) is not None:
        raise Break(Reason.SIDE_EFFECT, f"{setter.__name__} of what had no value")     # it cannot be undone
    said = taken(m)
    if any(text in said for each in m.builder.nodes for text in each.meta.get("torch_warns", ())):
        raise Break(Reason.SIDE_EFFECT, f"{setter.__name__}, which warns again,")     # a warning has one place
    m.builder.record_state(setter, values, m.stack_trace()).meta["torch_warns"] = said
    return NONE


@handles(torch.is_warn_always_enabled, functions.is_warn_always)
def is_warn_always_enabled(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """As it is for the program, and not for the time of a capture."""
    m.guard(FlagGuard(known(torch.is_warn_always_enabled, "torch.is_warn_always_enabled"), m.warns_always))
    return boolean(m.warns_always)


def anomaly_now(m: Machine) -> tuple[bool, bool]:
    """Whether anomaly mode is on, and whether it looks for NaN. Capture itself does not enter it."""
    for setter, values, _ in reversed(m.state_log):
        if setter is set_anomaly:
            return values[0]
    for reader in ANOMALY_READERS:
        m.guard(FlagGuard(known(reader, reader.__name__), reader()))
    return anomaly_state()  # type: ignore[return-value]


def _anomaly(index: int, reader: Any) -> None:
    @handles(reader)
    def read(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return boolean(anomaly_now(m)[index])


for _index, _reader in enumerate(ANOMALY_READERS):
    _anomaly(_index, _reader)


@handles(torch.set_anomaly_enabled)
def set_anomaly_enabled(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Anomaly mode shows lines of the program. A graph has none, so no result of it may have a history from inside
    (``refuse_anomalies`` in ``build_graph.py``). If the graph raises, Python runs the frame and shows its own lines.
    """
    mode, check_nan = take("set_anomaly_enabled", args, kwargs, "enabled", "check_nan", required=1)
    before, now = anomaly_now(m), (mode.constant(), check_nan is None or check_nan.constant())
    if now == before:
        return NONE
    if not m.assumptions.interprets or m.builder.region is not None or Part.ANOMALIES in m.assumptions.plain:
        raise Break(Reason.SIDE_EFFECT, "set_anomaly_enabled")
    m.state_log.append((set_anomaly, (now,), (set_anomaly, (before,))))
    m.undoable(lambda: m.state_log.pop() and None)
    m.builder.record_state(set_anomaly, (now,), m.stack_trace())
    return NONE


@handles(torch.use_deterministic_algorithms)
def use_deterministic(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    mode, warn_only = take("use_deterministic_algorithms", args, kwargs, "mode", "warn_only", required=1)
    return set_flag(m, set_deterministic, mode.constant(), warn_only is not None and warn_only.constant())


@handles(functions.set_deterministic_algorithms)
def set_deterministic_algorithms(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    mode, warn_only = take("_set_deterministic_algorithms", args, kwargs, "mode", "warn_only", required=1)
    return set_flag(m, set_deterministic, mode.constant(), warn_only is not None and warn_only.constant(),
                    deterministic_before()[2])


@handles(torch.clear_autocast_cache)
def clear_autocast_cache(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    m.builder.record_state(torch.clear_autocast_cache, (), m.stack_trace())
    return NONE


class EnteredInferenceMode(Value):
    """The state of ``torch.inference_mode`` while it is entered."""

    def rebuild(self, e: Emitter) -> str:
        if sum(setter is enter_inference_mode for setter, _, _ in e.trace.state_log) != 1:
            raise NotRebuildable("one of several inference modes")
        return e.variable(self, f"{e.const(take_inference_mode)}()")


@handles(torch.inference_mode.__enter__)
def enter_inference(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if Part.INFERENCE in m.assumptions.plain:
        raise Break(Reason.SIDE_EFFECT, f"torch.inference_mode() ({m.assumptions.plain[Part.INFERENCE]})")
    set_state(m, enter_inference_mode, [args[0].load_attr(m, "mode")])
    args[0].set_attr(m, "_inference_mode_context", EnteredInferenceMode())
    return NONE


@handles(torch.inference_mode.__exit__)
def exit_inference(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0].load_attr(m, "_inference_mode_context"), EnteredInferenceMode):
        raise Break(Reason.UNSUPPORTED, "leaving an inference mode that was entered before")
    args[0].set_attr(m, "_inference_mode_context", NONE)
    return set_state(m, exit_inference_mode, [])


@handles(torch.optim.Optimizer._optimizer_step_code)
def nothing(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE


class Record(Value):
    """The state of ``record_function`` while it is entered. It exists if Python has to leave it."""

    def __init__(self, name: Value) -> None:
        self.name = name

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(torch.ops.profiler._record_function_enter_new)}({e.value(self.name)})")


@handles(record_function.__enter__)
def note_for_a_profiler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A graph is one step of a profile, so marks within it have no place."""
    if torch.autograd._profiler_enabled() or args[0].real is not ABSENT:
        raise Break(Reason.SIDE_EFFECT, "record_function under a profiler")
    args[0].set_attr(m, "record", Record(args[0].load_attr(m, "name")))
    return args[0]


@handles(record_function.__exit__)
def leave_note(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    context = args[0]
    if context.real is ABSENT:
        context.set_attr(m, "record", NONE)
    else:
        m.effect(lambda e: e.line(f"{e.const(record_function.__exit__)}({e.value(context)}, None, None, None)"))
    return NONE


def holds_scalar_tensors(m: Machine, data: Value) -> bool:
    """Whether it is a list that contains 0-d CPU tensors."""
    if isinstance(data, TensorValue):
        return data.fake.dim() == 0 and data.fake.device.type == "cpu" and not has_own_code(data.pytype)
    return isinstance(data, (ListValue, TupleValue)) and any(holds_scalar_tensors(m, v) for v in m.settle(data.items))


def _constructor(function: Any) -> None:
    @handles(function)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        simple = len(args) == 1 and kwargs.keys() <= {"dtype"} and not m.modes
        if simple and isinstance(args[0], (ListValue, TupleValue)) and holds_scalar_tensors(m, args[0]):
            return m.enter(torch_code.tensor_of_tensors, args, kwargs)
        if len(args) == 1 and (made := of_varying(m, args[0], kwargs)) is not None:
            return made
        return torch_call(m, "call_function", function, args, kwargs)


for _function in (torch.tensor, torch.as_tensor):
    _constructor(_function)


@handles(torch.Tensor.new_tensor)
def tensor_like(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``x.new_tensor(data)``: by default with the dtype and on the device of the tensor."""
    if len(args) == 2 and isinstance(args[0], TensorValue) and not asked(m, args[0]):
        like = {"dtype": Const(args[0].fake.dtype), "device": Const(args[0].fake.device)}
        given = {key: value for key, value in kwargs.items() if value is not NONE}
        if (made := of_varying(m, args[1], {**like, **given})) is not None:
            return made
    return operation(m, torch.Tensor.new_tensor, args, kwargs)


@handles(*COMPILING_FLAGS)
def compiling(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The answer depends on the caller. A library function that only passes the answer on is skipped."""
    asking = next((f for f in reversed(m.frames) if not is_question(f.code.code.co_name)), m.frames[0])
    module = str(asking.namespace.get("__name__"))
    if module.startswith("torch.optim") and m.assumptions.interprets:
        return boolean(False)
    return boolean(is_told(module, m.assumptions.told))


@handles(*functions.LOG_API_USAGE)
def log_usage(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE


@handles(torch._check_tensor_all)
def check_all(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The graph makes the check. If it fails, the graph raises, and Python runs the frame and raises the program's
    exception.

    On a GPU a failed check would end the process, so it is a break there.
    """
    condition, = args[:1] or [kwargs.get("cond", NONE)]
    if not isinstance(condition, TensorValue) or (condition.fake.dtype, condition.fake.device.type) != (
            torch.bool, "cpu"):
        raise Break(Reason.TENSOR_VALUE, "torch._check_tensor_all")
    holds = torch_call(m, "call_method", "_is_all_true", [condition], {})
    torch_call(m, "call_function", torch._assert_async, [holds], {})
    return NONE


@handles(torch._check_with)
def check_with(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch._check_with: a condition on numbers that depend on data becomes an assertion of the graph."""
    condition = args[1] if len(args) > 1 else kwargs.get("cond", NONE)
    if isinstance(condition, DeferredScalar) and condition.pytype is bool and condition.is_in_graph and (
            graph_numbers.may_be(m)):
        graph_numbers.assume(m, condition)
        operations.settle(m)
        return NONE
    return m.enter(torch._check_with, args, kwargs)


@handles(drawing.trunc_normal_)
def draw_truncated(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return torch_call(m, "call_function", drawing.trunc_normal_, args, kwargs)


# ---- left to Python
HANDLERS[torch.set_num_threads] = refuse(Reason.SIDE_EFFECT, "set_num_threads")


@handles(user_annotations.NotToStatic.__call__)
def not_to_static(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.NOT_TO_STATIC, user_annotations.name_of(getattr(args[0].real, "__wrapped__", args[0])))


@handles(_hook.run)
def run_rest(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """In resume code: the resume code of a callee."""
    return args[0].call(m, args[1:], {})


@handles(user_annotations.graph_break)
def graph_break(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.USER_BREAK)


@handles(user_annotations.observed)
def observed(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.OBSERVED)
