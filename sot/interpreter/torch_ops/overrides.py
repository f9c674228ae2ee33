"""``__torch_function__`` of modes, of subclasses of Tensor and of other objects is user code and is executed as such.

The trace keeps the stack of modes. No mode is active while the graph is built or runs, and no subclass is called. The
arguments of ``__torch_function__`` (function, types, arguments) are found by running the operation on stand-ins. Their
classes inherit from each other as the program's do, and a mode records the arguments and stops the operation. Then the
user's method is executed: that of the innermost mode, with the modes below it on the stack, or those of the arguments
in torch's order, until one does not return NotImplemented.
"""
from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions

from sot.graph import NumberRef, TensorRef
from sot.guards.assumptions import RestartCapture
from sot.interpreter.loop import evaluate
from sot.polyfills import torch_code
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.registry import handles
from sot.torch_compat import functions
from sot.torch_compat.functions import DISABLED, NoSubclasses
from sot.torch_compat.global_state import DeviceContext, device_constructors
from sot.torch_compat.subclasses.wrappers import is_wrapper_class
from sot.torch_compat.tensors import overrides_enabled
from sot.values.base import NONE, Const, Value, boolean
from sot.values.callables import known_function
from sot.values.objects import DictValue, ListValue, ObjectValue, TupleValue
from sot.values.objects.instances import Duck, has_override
from sot.values.tensor import TensorValue, overrides_operations
from sot.values.wrapping import wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

BUILT_IN = frozenset((bool, int, float, complex))      # each of these is one operation


class Noted(Exception):
    """An operation was stopped where it would have called ``__torch_function__``, with these arguments: the function,
    the types, and then ``args`` and ``kwargs``, as far as torch passes them.
    """


class Notes(TorchFunctionMode):
    """Stops the first operation and records its arguments."""

    def __torch_function__(self, *given: Any) -> Any:
        raise Noted(*given)


def asked(m: Machine, value: Value) -> bool:
    """Whether torch looks for an override in the class of this argument."""
    return m.asks_classes and (overrides_operations(value.pytype) if isinstance(value, TensorValue) else
                               isinstance(value, ObjectValue) and value.is_duck)


def is_seen_through(m: Machine, code: CodeType, args: list[Value]) -> bool:
    """Whether it is Python code of torch that passes nothing to an override itself, for an argument with an
    override.
    """
    return "handle_torch_function" not in code.co_names and any(asked(m, value) for value in args)


def through_overrides(m: Machine, kind: str, target: Any, args: Any, kwargs: Any,
                      found: Mapping[int, Value]) -> Value | None:
    """The result of an operation when modes or classes override it; None if it does not ask them."""
    twins = dict[int, tuple[Any, Value]]()

    def twin(ref: Any) -> Any:
        if not isinstance(ref, (TensorRef, Duck)):
            return ref
        if isinstance(ref, NumberRef) and m.has_data_sizes:
            raise Break(Reason.TENSOR_VALUE, "a number for __torch_function__")
        if isinstance(ref, NumberRef):
            raise RestartCapture("a number that varies, for __torch_function__", static=True)
        value = ref.value if isinstance(ref, Duck) else found[id(ref.fake)]
        made = stand_in(value)
        twins[id(made)] = (made, value)
        return made
    args, kwargs = fx.node.map_aggregate((args, kwargs), twin)

    def call() -> None:
        function, rest = (getattr(args[0], target), args[1:]) if kind == "call_method" else (target, args)
        function(*rest, **kwargs) if kwargs else function(*rest)    # ``**{}`` makes a difference
    try:
        with overrides_enabled(m.asks_classes), Notes() if m.modes else contextlib.nullcontext():
            call()
        return None
    except Noted as notes:
        function, *given = notes.args
        refuse_inner(target if kind == "call_function" else getattr(torch.Tensor, target, None), function)
    except (TypeError, AttributeError, RuntimeError) as e:      # of a stand-in, which is not a tensor or has no data
        raise Break(Reason.OPERATION_FAILED, str(e)) from None
    follower = torch_code.through_mode if m.modes else torch_code.through_classes
    result = evaluate(m, known_function(m, follower),
                        [wrap_known(m, function), *(value_of(m, v, twins) for v in given)])
    if isinstance(result, Const) and result.real is NotImplemented:
        raise_unhandled(m, call, [value for _, value in twins.values()])
    return result


def raise_unhandled(m: Machine, call: Callable[[], None], values: list[Value]) -> None:
    """Raise torch's TypeError for an operation that no override handles. Stand-ins that handle nothing get it from
    torch itself. Its text names the classes, and the addresses of modes.
    """
    text = None
    if not m.modes and all(type(value.pytype) is type or isinstance(value, TensorValue) for value in values):
        handles_nothing.append(True)
        try:
            with overrides_enabled(m.asks_classes):
                call()
        except TypeError as e:
            text = e.args
        except (Noted, AttributeError, RuntimeError):
            pass
        finally:
            handles_nothing.pop()
    if text is None:
        raise Break(Reason.OPERATION_FAILED, "NotImplemented from __torch_function__")
    m.throw(TypeError, *text)


def refuse_inner(target: Any, asked_for: Any) -> None:
    """Break at Python code that does more than the first operation with an override."""
    if isinstance(target, (FunctionType, type)) and target not in BUILT_IN and target is not asked_for:
        raise Break(Reason.OPAQUE_CALL, f"{target.__name__} of an argument with __torch_function__")


# ---- stand-ins
_mirrors: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()
_mirrored: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


handles_nothing: list[bool] = []      # whether stand-ins return NotImplemented


def take_notes(cls: type, *given: Any) -> Any:
    if handles_nothing:
        return NotImplemented
    raise Noted(*given)


def mirror(kind: type) -> type:
    """A class without the program's code, at the same place in torch's order as one of the program's classes."""
    if kind.__module__.partition(".")[0] == "torch" and not is_wrapper_class(kind):
        return kind
    found = _mirrors.get(kind)
    if found is None:
        bases = tuple(mirror(base) for base in kind.__bases__ if has_override(base) or issubclass(base, torch.Tensor))
        own: Any = DISABLED if not has_override(kind) else classmethod(take_notes)
        found = _mirrors[kind] = type(kind.__name__, bases, {
            "__torch_function__": own, "__module__": kind.__module__, "__qualname__": kind.__qualname__})
        _mirrored[found] = weakref.ref(kind)
    return found


def stand_in(value: Value) -> Any:
    """An object of the type that the program sees, unlike a fake. Nothing is computed with it."""
    kind = mirror(value.pytype)
    if not isinstance(value, TensorValue):
        raw, owner = value_class_function(value.pytype)
        if not isinstance(raw, (classmethod, staticmethod)):
            raise Break(Reason.UNSUPPORTED, f"__torch_function__ of {owner.__qualname__}, which is not a classmethod,")
        return kind()
    fake = value.fake
    made = torch.empty(fake.shape, dtype=fake.dtype, device="meta", requires_grad=fake.requires_grad)
    return made if kind is torch.Tensor else torch.Tensor._make_subclass(kind, made, fake.requires_grad)


def value_class_function(kind: type) -> tuple[Any, type]:
    return next((vars(c)["__torch_function__"], c) for c in kind.__mro__ if "__torch_function__" in vars(c))


def value_of(m: Machine, real: Any, found: dict[int, tuple[Any, Value]]) -> Value:
    """The Value of an argument that torch has passed on."""
    if id(real) in found:
        return found[id(real)][1]
    if isinstance(real, type) and real in _mirrored:
        return wrap_known(m, _mirrored[real]())
    if isinstance(real, (tuple, list)):
        items = [value_of(m, v, found) for v in real]
        return TupleValue(items) if isinstance(real, tuple) else ListValue(items)
    if isinstance(real, dict):
        made = DictValue(dict)
        made.overlay.update({k: value_of(m, v, found) for k, v in real.items()})
        return made
    return wrap_new(m, real)


# ---- the stack
@handles(functions.push_mode)
def push(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    before = m.modes
    m.undoable(lambda: setattr(m, "modes", before))
    m.modes = (*before, args[0])
    return NONE


@handles(functions.pop_mode)
def pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    before = m.modes
    if not before:
        raise Break(Reason.OPERATION_FAILED, "there is no mode to leave")
    m.undoable(lambda: setattr(m, "modes", before))
    m.modes = before[:-1]
    return before[-1]


@handles(functions.count_modes)
def count(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(len(m.modes))


@handles(functions.count_dispatch_modes)
def count_dispatchers(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(0)     # an entry is not called under one


@handles(functions.mode_at)
def at(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.modes[args[0].constant()]


@handles(functions.has_modes)
def has_modes(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(bool(m.modes))


@handles(functions.asks_subclasses)
def asks_classes(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(m.asks_classes)


@handles(torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)
def any_overrides(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(bool(m.modes) or any(asked(m, value) for value in args))


@handles(torch.overrides.has_torch_function)
def overrides(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = args[0].items_list(m) if len(args) == 1 else None
    if given is None:
        raise Break(Reason.OPAQUE_CALL, "has_torch_function")
    return any_overrides(m, given, {})


# ---- overrides of classes are disabled
class NotAsking(ObjectValue):
    """``DisableTorchFunctionSubclass``. A break inside it moves out of it."""

    def rebuild(self, e: Emitter) -> str:
        raise NotRebuildable(f"{self}, inside of it")


@handles(NoSubclasses)
def without_subclasses(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NotAsking(NoSubclasses)


@handles(NoSubclasses.__enter__)
def stop_asking(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    context = args[0]
    if not isinstance(context, NotAsking):
        raise Break(Reason.UNSUPPORTED, "a DisableTorchFunctionSubclass that existed before")
    context.slots = {"before": boolean(m.asks_classes)}
    return set_asking(m, False)


@handles(NoSubclasses.__exit__)
def ask_again(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return set_asking(m, args[0].slots["before"].constant())    # type: ignore[attr-defined]


def set_asking(m: Machine, asks: bool) -> Value:
    before = m.asks_classes
    m.undoable(lambda: setattr(m, "asks_classes", before))
    m.asks_classes = asks
    return NONE


@handles(torch_code.stays_plain)
def stays_plain(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(args[0].real in get_default_nowrap_functions())


# ---- devices as contexts
@handles(torch.device.__enter__)
def enter_device(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.enter(torch_code.enter_device, args)


@handles(torch.device.__exit__)
def leave_device(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.enter(torch_code.leave_device, args)


@handles(torch_code.takes_device)
def takes_device(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(args[0].real in device_constructors())


@handles(torch.get_default_device)
def default_device(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Outside of capture no mode is active, so there is no other default."""
    mode = next((mode for mode in reversed(m.modes) if issubclass(mode.pytype, DeviceContext)), None)
    device = torch.device("cpu") if mode is None else mode.load_attr(m, "device").constant()
    if device.index is None and device.type not in ("cpu", "meta"):
        raise Break(Reason.OPAQUE_CALL, "torch.get_default_device")
    return Const(device)


def write_modes(e: Emitter) -> None:
    """Enter the modes that are active where capture stopped, for the code that continues."""
    modes = [*map(e.value, e.trace.modes)]
    e.flush()
    for mode in modes:
        e.line(f"{e.const(functions.push_mode)}({mode})")
