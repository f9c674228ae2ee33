"""The one module that touches private parts of torch.

Everything here has a public contract of ours; when torch moves something, only this file changes.
"""
from __future__ import annotations

import contextlib
import functools
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch import predispatch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.jit import _state as jit_state
from torch.utils._device import DeviceContext
from torch.utils._device import _device_constructors as device_constructors
from torch.utils.hooks import RemovableHandle

from sot import kernels

try:
    from sot import _tensors
except ImportError:     # not built, or for another version of torch: TensorChecks do it
    _tensors = None  # type: ignore[assignment]

__all__ = ["DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
           "GlobalState", "TensorChecks", "tensor_spec", "UnsupportedFakeTensorException",
           "UnsupportedOperatorException", "new_fake_mode", "quiet",
           "tensor_summary", "COMPILING_FLAGS", "PURE_STATE_READS", "STATE_SETTERS",
           "DeviceContext", "device_constructors", "enable_python_dispatcher"]


Layout = tuple[Sequence[int | None], Sequence[int | None]]      # sizes and strides; None is any


class TensorChecks:
    """Checks a fixed number of tensors at once: type, dtype, device, sizes, strides, requires_grad, keys.

    Tensors must also be pairwise different objects. 50 ns a tensor.
    """

    def __init__(self, examples: Sequence[torch.Tensor], layouts: Sequence[Layout | None] = ()) -> None:
        """``layouts``: sizes and strides to check in place of an example's own, None where any will do."""
        found = layouts or [None] * len(examples)
        sizes: Any = [list(t.size()) if at is None else list(at[0]) for t, at in zip(examples, found, strict=True)]
        strides: Any = [list(t.stride()) if at is None else list(at[1]) for t, at in zip(examples, found, strict=True)]
        checks = TensorGuards(*examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        self.check = checks.check


def tensor_spec(example: torch.Tensor, layout: Layout) -> Any:
    """What the guard program compares tensors with, a few nanoseconds each; None if it cannot be said in C."""
    if _tensors is None or example.layout != torch.strided:
        return None
    return _tensors.spec(example, tuple(layout[0]), tuple(layout[1]), torch.Tensor)


class GlobalState:
    """A snapshot of torch's global state, with ``check()`` (140 ns) and ``reason()``."""

    def __init__(self) -> None:
        self._guard = GlobalStateGuard()
        self.asks_subclasses = torch._C._is_torch_function_enabled()    # for their __torch_function__
        self.check = self._guard.check
        self.reason = self._guard.reason
        self._text = (f"grad {'on' if torch.is_grad_enabled() else 'off'}, default dtype {torch.get_default_dtype()}, "
                      f"autocast {'on' if torch.is_autocast_enabled('cpu') else 'off'}")

    def __str__(self) -> str:
        return self._text


def tensor_summary(t: torch.Tensor, sizes: Sequence[int | None] = ()) -> str:
    """For example ``float32 tensor of shape (2, 3) on cpu, requires grad``; a size of None is any."""
    kind = type(t).__name__.lower()
    t = plain_tensor(t)
    extra = ", requires grad" if t.requires_grad else ""
    layout = "" if t.layout == torch.strided else f", {t.layout}"
    strides = f", strides {tuple(t.stride())}" if (
        t.layout == torch.strided and not t.is_contiguous() and None not in sizes) else ""
    kind = f"{str(t.dtype)[6:]} {kind}"
    shape = ", ".join("any" if n is None else str(n) for n in sizes or t.shape) + "," * (t.dim() == 1)
    return f"{kind} of shape ({shape}) on {t.device}{strides}{layout}{extra}"


def is_symbolic(fake: torch.Tensor) -> bool:
    """Is a size or stride of a fake tensor a symbol?"""
    return bool(fake._has_symbolic_sizes_strides)


def forget_constant(fake: Any) -> None:
    """Torch knows what is in a fake tensor that is made of Python numbers; those of the next call may be others."""
    if isinstance(fake, FakeTensor):
        fake.constant = None


def storage_id(t: torch.Tensor) -> int:
    """The same for tensors that share memory."""
    while functorch.is_functorch_wrapped_tensor(t):
        t = functorch.get_unwrapped(t)
    return t.untyped_storage()._cdata


def take_hook_id() -> int:
    """The number that the next handle of a hook would get."""
    taken = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return taken


# Names in torch.nn.modules.module: the hooks that are called for every module.
GLOBAL_HOOKS = tuple(name for name in vars(torch.nn.modules.module) if re.match("_global_(forward|backward)_", name))


# What ``Tensor.__torch_function__`` makes of results: instances of the subclass.
convert_result = torch._tensor._convert
without_subclasses = torch._C.DisableTorchFunctionSubclass
DISABLED = torch._C._disabled_torch_function_impl


def overrides_enabled(enabled: bool) -> Any:
    """A context in which torch asks classes, as outside of a capture, or does not."""
    return torch._C._EnableTorchFunction() if enabled else contextlib.nullcontext()


def plain_tensor(value: Any) -> Any:
    """A tensor, as a view if it is of a subclass that overrides operations; anything else as it is."""
    kind = type(value)
    is_plain = kind is torch.Tensor or not isinstance(value, torch.Tensor) or kind.__torch_function__ is DISABLED
    return value if is_plain else value.as_subclass(torch.Tensor)


def plain_example(value: Any) -> Any:
    """The same for a backend to look at: a tensor that shares the memory, but leads to no instance of the subclass."""
    plain = plain_tensor(value)
    return plain if plain is value else plain.data.requires_grad_(plain.requires_grad)


def asking_no_class(graph: Callable, as_it_is: bool) -> Callable:
    """A graph that runs without asking subclasses among its inputs for ``__torch_function__``.

    One that is compiled is given views of them: its backward pass sees what it has saved without this context.
    """
    def run(*inputs: Any) -> Any:
        with without_subclasses():
            return graph(*inputs) if as_it_is else graph(*map(plain_tensor, inputs))
    return run


def versions(*tensors: torch.Tensor) -> tuple[int, ...]:
    """How often each has been changed in place; no subclass is asked."""
    with without_subclasses():
        return tuple(t._version for t in tensors)


def in_function_transform() -> bool:
    """Is this inside of torch.vmap, torch.func.grad and the like?"""
    return functorch.maybe_current_level() is not None


def in_backward() -> bool:
    """Does the autograd engine run this?"""
    return torch._C._current_graph_task_id() != -1


# How many modes see every operation: ``torch.device`` as a context, a default device, modes of a user, torch.func's.
# Each with the answer that there are none.
NO_MODES = ((torch._C._len_torch_function_stack, 0), (torch._C._len_torch_dispatch_stack, 0),
            (functorch.maybe_current_level, None))


def in_mode() -> bool:
    return any(count() for count, _ in NO_MODES[:2])


@functools.cache
def disabling_code() -> Any:
    """The code of the wrapper that torch puts around functions which torch.compile is to leave alone."""
    return torch._disable_dynamo(in_mode).__code__


def is_left_to_python(function: Any) -> bool:
    """Is it a function that torch, or a user with torch.compiler.disable, keeps from being compiled?"""
    return function.__code__ is disabling_code() or bool(getattr(function, "_torchdynamo_disable", False))


def compiled_original(function: Any) -> Any:
    """The function inside a wrapper of torch.compile, or None."""
    if getattr(function, "_torchdynamo_disable", False):
        return None
    return vars(function).get("_torchdynamo_orig_callable")


PYBIND_METHOD = type(vars(torch.jit.ScriptFunction)["__call__"])


def scripted_original(function: Any) -> Any:
    """The Python function that torch.jit.script has compiled; None for what torch.jit.trace has seen."""
    original = getattr(function, "_torchdynamo_inline", None)
    scripted = original is not None and jit_state._jit_caching_layer.get(original) == function.qualified_name
    return original if scripted else None


class RecordingFakeMode(FakeTensorMode):
    """A fake mode that remembers whether kernels drew random numbers, or may raise on values."""

    draws = draws_now = may_refuse = changes_unversioned = False
    while_running: Any = contextlib.nullcontext     # what else is entered while an operation runs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws_now = self.draws_now or kernels.draws(func, args, kwargs)
        self.draws = self.draws or self.draws_now
        self.may_refuse = self.may_refuse or kernels.may_refuse(func, args)
        self.changes_unversioned = self.changes_unversioned or kernels.changes_unversioned(func, args)
        return super().__torch_dispatch__(func, types, args, kwargs)


def new_fake_mode() -> RecordingFakeMode:
    return RecordingFakeMode(allow_non_fake_inputs=False)


def is_users_stop(error: Exception) -> bool:
    """Was it raised by a hook on saved tensors, as torch.utils.checkpoint does when it has recomputed enough?"""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and not isinstance(error, (RuntimeError, IndexError, ValueError))


def has_saved_tensors_hooks() -> bool:
    """Does the program look at the tensors that autograd saves, as torch.utils.checkpoint does?"""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


@contextlib.contextmanager
def no_saved_tensors_hooks() -> Iterator[None]:
    """What runs inside does not show the tensors that autograd saves to the program's hooks on them."""
    c, hooks = torch._C._autograd, []
    while (top := c._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        c._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pair in reversed(hooks):
            c._push_saved_tensors_default_hooks(*pair)


def random_state(*generators: torch.Generator) -> tuple:
    """The states of torch's default generators, the CPU's and, if there is one in use, the current GPU's; of these."""
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), gpu, *(generator.get_state() for generator in generators)


def set_random_state(state: tuple, *generators: torch.Generator) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
    for generator, its in zip(generators, state[2:], strict=True):
        generator.set_state(its)


def module_tagger() -> Any:
    """What torch.compile, once it has been used, has every new module call for its own bookkeeping."""
    from torch._dynamo.mutation_guard import GenerationTracker  # noqa: PLC0415 - a second to import, so only when needed

    return GenerationTracker.tag.__func__  # type: ignore[attr-defined]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the loggers that report errors of fake operations: to us those are ordinary outcomes."""
    loggers = [logging.getLogger("torch._subclasses.fake_tensor"), logging.getLogger("torch._prims_common")]
    before = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in zip(loggers, before, strict=True):
            log.setLevel(level)


COMPILING_FLAGS = tuple(f for f in (
    torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
    getattr(torch._utils, "is_compiling", None)) if f is not None)


# What takes a change of state back: a function and its arguments.
Undo = tuple[Callable[..., Any], tuple]
# The changes that a trace has made: the setter, its arguments, what takes it back.
StateLog = list[tuple[Callable[..., Any], tuple, Undo]]


def _setter_table() -> dict:
    """Setters of torch's global state, each with the reader that gives the argument that undoes it."""
    c = torch._C
    return {
        c._set_grad_enabled: lambda *a: (torch.is_grad_enabled(),),
        c._set_fwd_grad_enabled: lambda *a: (c._is_fwd_grad_enabled(),),
        torch.set_autocast_enabled: lambda *a: (a[0], torch.is_autocast_enabled(a[0])) if len(a) == 2 else None,
        torch.set_autocast_dtype: lambda *a: (a[0], torch.get_autocast_dtype(a[0])),
        torch.set_autocast_cache_enabled: lambda *a: (torch.is_autocast_cache_enabled(),),
        c._set_default_dtype: lambda *a: (torch.get_default_dtype(),),
        functorch.set_inplace_requires_grad_allowed: lambda *a: (functorch.get_inplace_requires_grad_allowed(),),
        refuse_saved_tensors_hooks: lambda *a: (c._autograd._saved_tensors_hooks_get_disabled_error_message(),),
    }


def _flag_table() -> dict:
    """Setters of flags that the state guard does not know, each with its reader."""
    c = torch._C
    flags = {getattr(c, f"_set_sdp_use_{name}"): getattr(c, f"_get_{name}_sdp_enabled")
             for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")}
    return {**flags, c._set_sdp_priority_order: c._get_sdp_priority_order}


# Of other such flags only the readers: whoever sets them is left to Python.
FLAGS_READ = (torch._C._get_cudnn_enabled, torch._C._get_mkldnn_enabled, torch._C._get_float32_matmul_precision,
              torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled)


def set_deterministic(mode: bool, warn_only: bool, inductors: bool | None = None) -> None:
    """``torch.use_deterministic_algorithms``, and a flag of torch.compile's that it sets, if not to ``mode``."""
    torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    if inductors is not None:
        sys.modules["torch._inductor.config"].deterministic = inductors  # type: ignore[attr-defined]


def deterministic_before(*args: Any) -> tuple:
    config = sys.modules.get("torch._inductor.config")
    return (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            getattr(config, "deterministic", None))


def refuse_saved_tensors_hooks(message: str | None) -> None:
    """From now on, an error for whoever wants to see the tensors that autograd saves; None: no longer."""
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)


def level_function(name: str) -> Callable[..., Any]:
    """What torch's transforms call to enter, leave and wrap for a level: in 2.11 some are not in ``predispatch``."""
    places = (predispatch, functorch, torch._C, torch._VF)
    return next(getattr(place, name) for place in places if hasattr(place, name))


def exit_dual_level(level: int) -> None:
    level_function("_exit_dual_level")(level=level)


_inference_modes: list[Any] = []


def enter_inference_mode(mode: bool) -> None:
    _inference_modes.append(torch.autograd.grad_mode._enter_inference_mode(mode))


def exit_inference_mode() -> None:
    torch.autograd.grad_mode._exit_inference_mode(_inference_modes.pop())


def take_inference_mode() -> Any:
    """What an object of ``torch.inference_mode`` keeps to leave the mode, which a graph has entered for it."""
    return _inference_modes.pop()


FLAG_READERS = _flag_table()
FLAGS = (*FLAG_READERS, set_deterministic)      # of which compiled graphs know nothing
STATE_SETTERS = {**_setter_table(), set_deterministic: deterministic_before,
                 **{setter: lambda *a, read=read: (read(),) for setter, read in FLAG_READERS.items()}}

# Entering and leaving regions that nest.
STATE_PAIRS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.autocast_increment_nesting: torch.autocast_decrement_nesting,
    predispatch._vmap_increment_nesting: predispatch._vmap_decrement_nesting,
    level_function("_jvp_increment_nesting"): level_function("_jvp_decrement_nesting"),
    functorch._grad_increment_nesting: functorch._grad_decrement_nesting,
    level_function("_enter_dual_level"): exit_dual_level,
    enter_inference_mode: exit_inference_mode}
LEAVING = {leave: enter for enter, leave in STATE_PAIRS.items()}
REGIONS = frozenset(STATE_PAIRS) - {torch.autocast_increment_nesting}


def undo_of(setter: Callable[..., Any], args: tuple, log: StateLog) -> Callable[[Any], Undo]:
    """What will take back a change of state that is about to be made, given its result."""
    if setter in STATE_SETTERS:
        old = STATE_SETTERS[setter](*args)
        return lambda result: (setter, old)
    if setter in STATE_PAIRS:
        return lambda result: (STATE_PAIRS[setter], (result,) if STATE_PAIRS[setter] is exit_dual_level else ())
    entered, depth = LEAVING[setter], 1
    for function, given, _ in reversed(log):
        depth += (function is setter) - (function is entered)
        if depth == 0:
            return lambda result: (entered, given)
    return lambda result: (entered, ())


def net_states(log: StateLog) -> list[tuple[Callable[..., Any], tuple]]:
    """The calls that have the effect of a log's: what is set to what it was before is left out."""
    old: dict[tuple, tuple] = {}
    new: dict[tuple, tuple] = {}
    nesting = 0
    for setter, values, (_, undo) in log:
        if setter in STATE_SETTERS and values != undo:
            key = (setter, *values[:-1])
            old.setdefault(key, undo)
            new[key] = values
        nesting += (setter is torch.autocast_increment_nesting) - (setter is torch.autocast_decrement_nesting)
    step = torch.autocast_increment_nesting if nesting > 0 else torch.autocast_decrement_nesting
    return [*((key[0], values) for key, values in new.items() if old[key] != values), *[(step, ())] * abs(nesting)]


def autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def nest_autocast(depth: int) -> None:
    while autocast_nesting() < depth:
        torch.autocast_increment_nesting()
    while autocast_nesting() > depth:
        torch.autocast_decrement_nesting()


def leave_regions() -> None:
    """Leave what a graph had entered when it failed."""
    while _inference_modes:
        exit_inference_mode()
    if in_function_transform():
        functorch.pop_dynamic_layer_stack_and_undo_to_depth(0)
    with contextlib.suppress(RuntimeError):     # it was not entered
        exit_dual_level(0)


PURE_STATE_READS = frozenset({
    torch.is_grad_enabled, torch.get_default_dtype, torch.is_autocast_enabled, torch.get_autocast_dtype,
    torch.is_autocast_cache_enabled, torch.is_inference_mode_enabled, torch._C._get_tracing_state,
    torch.are_deterministic_algorithms_enabled,
    torch.amp.is_autocast_available, torch._C._is_autocast_available, torch.is_autocast_cpu_enabled,
    torch._C._is_fwd_grad_enabled, torch._C._get_deterministic_algorithms,
    torch._C._get_deterministic_algorithms_warn_only, torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_num_threads,
    functorch.maybe_current_level, functorch.get_inplace_requires_grad_allowed,
})


# ---- torch.export's archives: package_pt2 is what torch.export.save calls, and takes several programs ----------
def write_archive(path: Path, programs: dict[str, Any], extra: dict[str, str]) -> None:
    """Write exported programs, by name, and texts beside them."""
    from torch.export.pt2_archive._package import package_pt2  # noqa: PLC0415 - a second to import, so only when needed

    for program in programs.values():
        program._example_inputs = None      # they would be pickled
    package_pt2(str(path), exported_programs=programs, extra_files=extra)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The programs and the texts of an archive."""
    from torch.export.pt2_archive._package import load_pt2  # noqa: PLC0415

    contents = load_pt2(str(path))
    return contents.exported_programs, contents.extra_files
