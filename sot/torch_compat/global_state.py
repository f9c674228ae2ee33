"""torch's global state: what can be read and set, the modes and transforms that are active, random numbers."""
from __future__ import annotations

import contextlib
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._C._dynamo.guards import GlobalStateGuard
from torch._functorch import predispatch
from torch._tensor_str import PRINT_OPTS
from torch.utils._device import DeviceContext as DeviceContext
from torch.utils._device import _device_constructors as device_constructors  # noqa: F401
from torch.utils._python_dispatch import _pop_mode

from sot.support.collector import restore_collections
from sot.torch_compat.hooks import refuse_saved_tensors_hooks

QUIET = logging.getLogger("torch._subclasses.fake_tensor"), logging.getLogger("torch._prims_common")


PRINT_OPTIONS: Any = PRINT_OPTS     # torch's text of tensors reads its attributes


def with_print_options(options: dict[str, Any], make: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
    """``make(tensor)`` while the options of printing are these."""
    before = dict(vars(PRINT_OPTIONS))
    vars(PRINT_OPTIONS).update(options)
    try:
        return make(tensor)
    finally:
        vars(PRINT_OPTIONS).update(before)


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


def in_function_transform() -> bool:
    """Whether this runs inside torch.vmap, torch.func.grad or a similar transform."""
    return functorch.maybe_current_level() is not None


def in_backward() -> bool:
    """Whether the autograd engine runs this."""
    return torch._C._current_graph_task_id() != -1


# How many modes see every operation: ``torch.device`` as a context, a default device, modes of a user, torch.func's.
# Each with the answer that there are none.
NO_MODES = ((torch._C._len_torch_function_stack, 0), (torch._C._len_torch_dispatch_stack, 0),
            (functorch.maybe_current_level, None))


def in_mode() -> bool:
    return any(count() for count, _ in NO_MODES[:2])


def in_tracer() -> bool:
    """Whether torch.jit.trace is recording this thread. It needs the program's operations, each as Python calls it.

    Entries that compare tensors need no test, because the tracer has a dispatch key, which their guards see.
    """
    return NO_TRACER[0]() is not NO_TRACER[1]


NO_TRACER = (torch._C._get_tracing_state, None)


def random_state(*generators: torch.Generator) -> tuple:
    """The states of torch's default generators (the CPU's, and the current GPU's if it is in use), or of these
    generators.
    """
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), gpu, *(generator.get_state() for generator in generators)


def set_random_state(state: tuple, *generators: torch.Generator) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
    for generator, its in zip(generators, state[2:], strict=True):
        generator.set_state(its)


# Undoes a change of state: a function and its arguments.
Undo = tuple[Callable[..., Any], tuple]


# A change that a trace has made: the setter, its arguments, and its undo.
StateChange = tuple[Callable[..., Any], tuple, Undo]
StateLog = list[StateChange]
SET_GRAD = torch._C._set_grad_enabled


def _setter_table() -> dict:
    """Setters of torch's global state, each with the reader that returns the argument for its undo."""
    c = torch._C
    return {
        c._set_grad_enabled: lambda *a: (torch.is_grad_enabled(),),
        c._set_fwd_grad_enabled: lambda *a: (c._is_fwd_grad_enabled(),),
        torch.set_autocast_enabled: lambda *a: (a[0], torch.is_autocast_enabled(a[0])) if len(a) == 2 else None,
        torch.set_autocast_dtype: lambda *a: (a[0], torch.get_autocast_dtype(a[0])),
        torch.set_autocast_cache_enabled: lambda *a: (torch.is_autocast_cache_enabled(),),
        SET_DEFAULT_DTYPE: lambda *a: (torch.get_default_dtype(),),
        functorch.set_inplace_requires_grad_allowed: lambda *a: (functorch.get_inplace_requires_grad_allowed(),),
        refuse_saved_tensors_hooks: lambda *a: (c._autograd._saved_tensors_hooks_get_disabled_error_message(),),
    }


# Operations without a dtype read it when they run. A compiled graph does not.
SET_DEFAULT_DTYPE = torch._C._set_default_dtype


def _flag_table() -> dict:
    """Setters of flags that the state guard does not cover, each with its reader."""
    c = torch._C
    flags = {getattr(c, f"_set_sdp_use_{name}"): getattr(c, f"_get_{name}_sdp_enabled")
             for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")}
    flags |= {getattr(c, f"_set_{name}"): getattr(c, f"_get_{name}") for name in (
        "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "cudnn_allow_tf32", "cudnn_depthwise_kernel",
        "mkldnn_enabled",
        "mkldnn_deterministic", "onednn_allow_tf32", "nnpack_enabled", "cublas_allow_tf32",
        "cublas_allow_fp16_accumulation", "math_sdp_allow_fp16_bf16_reduction", "miopen_immediate",
        "deterministic_fill_uninitialized_memory", "float32_matmul_precision") if hasattr(c, f"_get_{name}")}
    if hasattr(c, "_cuda_set_cudnn_benchmark_limit"):   # in builds for CUDA
        flags[c._cuda_set_cudnn_benchmark_limit] = c._cuda_get_cudnn_benchmark_limit
    for name in ("multithreading", "grad_layout_enforcement"):      # of the engine of autograd
        if hasattr(c, f"_is_{name}_enabled"):
            flags[getattr(c, f"_set_{name}_enabled")] = getattr(c, f"_is_{name}_enabled")
    if hasattr(c, "_set_fp32_precision_setter"):        # by backend and operation
        flags[c._set_fp32_precision_setter] = c._get_fp32_precision_getter
    return {**flags, c._set_sdp_priority_order: c._get_sdp_priority_order, c._set_qengine: c._get_qengine}


# Readers of other such flags. A function that sets one is left to Python.
FLAGS_READ = tuple(getattr(torch._C, name) for name in (
    "_get_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction")
    if hasattr(torch._C, name))


# Whether autograd notes where operations are called, and whether it looks for NaN.
ANOMALY_READERS = torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled


def set_anomaly(state: tuple[bool, bool]) -> None:
    torch.set_anomaly_enabled(*state)


def anomaly_state() -> tuple[bool, ...]:
    return tuple(reader() for reader in ANOMALY_READERS)


def are_tied(flag: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether setting one flag may change the other, because both control the precision of matrix products."""
    return all("tf32" in f.__name__ or "precision" in f.__name__ for f in (flag, other))


def set_deterministic(mode: bool, warn_only: bool, inductors: bool | None = None) -> None:
    """``torch.use_deterministic_algorithms``, and the flag of inductor that it sets unless that is None."""
    torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    if inductors is not None:
        sys.modules["torch._inductor.config"].deterministic = inductors  # type: ignore[attr-defined]


def deterministic_before(*args: Any) -> tuple:
    config = sys.modules.get("torch._inductor.config")
    return (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            getattr(config, "deterministic", None))


def level_function(name: str) -> Callable[..., Any]:
    """The functions that torch's transforms call to enter, leave and wrap for a level. In 2.11 some are not in
    ``predispatch``.
    """
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
    """The state that ``torch.inference_mode`` keeps to leave the mode, after a graph has entered it."""
    return _inference_modes.pop()


_raising: list[tuple[bool, warnings.catch_warnings]] = []


def raise_warnings() -> None:
    """Make warnings exceptions, also those that torch gives once in a process. Then torch gives them again."""
    entered = warnings.catch_warnings()
    _raising.append((torch.is_warn_always_enabled(), entered))
    entered.__enter__()
    warnings.simplefilter("error")
    torch.set_warn_always(True)


def stop_raising() -> None:
    """Undo ``raise_warnings``, if it has run."""
    if _raising:
        always, entered = _raising.pop()
        torch.set_warn_always(always)
        entered.__exit__(None, None, None)


FLAG_READERS = _flag_table()


FLAGS = (*FLAG_READERS, set_deterministic, set_anomaly)      # compiled graphs do not see these


STATE_SETTERS = {**_setter_table(), set_deterministic: deterministic_before, set_anomaly: lambda *a: (anomaly_state(),),
                 **{setter: lambda *a, read=read: (*a[:-1], read(*a[:-1])) for setter, read in FLAG_READERS.items()}}


ENTER_VMAP = predispatch._vmap_increment_nesting


# Entering and leaving regions that nest.
STATE_PAIRS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.autocast_increment_nesting: torch.autocast_decrement_nesting,
    ENTER_VMAP: predispatch._vmap_decrement_nesting,
    level_function("_jvp_increment_nesting"): level_function("_jvp_decrement_nesting"),
    functorch._grad_increment_nesting: functorch._grad_decrement_nesting,
    functorch._func_increment_nesting: functorch._func_decrement_nesting,
    level_function("_enter_dual_level"): exit_dual_level,
    enter_inference_mode: exit_inference_mode, raise_warnings: stop_raising}


LEAVING = {leave: enter for enter, leave in STATE_PAIRS.items()}


REGIONS = frozenset(STATE_PAIRS) - {torch.autocast_increment_nesting}
LEVELS = REGIONS - {enter_inference_mode, raise_warnings}       # tensors of a level are of no use after it


def in_level(log: Sequence[StateChange]) -> bool:
    """Whether changes of state have entered a level of a transform, or of forward mode, that they have not left."""
    depth = 0
    for setter, *_ in log:
        if setter in LEVELS:
            depth += 1
        elif LEAVING.get(setter) in LEVELS:
            depth -= 1
    return depth > 0


def undo_of(setter: Callable[..., Any], args: tuple, log: Sequence[StateChange]) -> Callable[[Any], Undo]:
    """The undo of a change of state that is about to be made, given its result."""
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


def turns_grad_on(log: Sequence[StateChange]) -> bool:
    """Whether a trace that begins under ``no_grad`` leaves it."""
    return not torch.is_grad_enabled() and any(
        setter is SET_GRAD and values == (True,) != undo for setter, values, (_, undo) in log)


def net_states(log: Sequence[StateChange]) -> list[tuple[Callable[..., Any], tuple]]:
    """The calls that have the same effect as a log of changes. Values that end as they began are omitted."""
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


def states_left(log: Sequence[StateChange]) -> list[tuple[Callable[..., Any], tuple]]:
    """The calls that have the same effect as a log of changes, with the inference modes that it does not leave. An
    inference mode turns gradients off, and leaving it sets them back.
    """
    parts: list[list[StateChange]] = [[]]
    for entry in log:
        if entry[0] is enter_inference_mode:
            parts.append([entry])
        elif entry[0] is exit_inference_mode and len(parts) > 1:
            inside = parts.pop()[1:]
            parts[-1] += [change for change in inside if change[0] is not SET_GRAD]
        else:
            parts[-1].append(entry)
    first, *entered = parts
    return [*net_states(first), *(call for (enter, *changes) in entered for call in (enter[:2], *net_states(changes)))]


AUTOCAST_SETTERS = (torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled)


def autocast_as_before(log: Sequence[StateChange]) -> list[tuple[Callable[..., Any], tuple]]:
    """The calls that undo a log's changes of autocast."""
    first: dict[tuple, tuple] = {}
    for setter, values, (_, undo) in log:
        if setter in AUTOCAST_SETTERS:
            first.setdefault((setter, *values[:-1]), undo)
    left = {(setter, *values[:-1]) for setter, values in net_states(log)}
    return [(key[0], values) for key, values in first.items() if key in left]


AUTOCAST_DEVICES = "cpu", "cuda"
AutocastStates = list[tuple[str, bool, torch.dtype]]


def autocast_states() -> AutocastStates:
    return [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in AUTOCAST_DEVICES]


@contextlib.contextmanager
def in_autocast_states(states: AutocastStates) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for device, enabled, dtype in states:
            if (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) != (enabled, dtype):
                stack.enter_context(torch.autocast(device, dtype, enabled))
        yield


AUTOCAST_NESTING = torch.autocast_increment_nesting, torch.autocast_decrement_nesting


def autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def nest_autocast(depth: int) -> None:
    while autocast_nesting() < depth:
        torch.autocast_increment_nesting()
    while autocast_nesting() > depth:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()        # it may have casts of weights that change later


@contextlib.contextmanager
def undoing_regions() -> Iterator[None]:
    """Leave the inference modes, regions of autocast and levels of transforms that a compiler enters while it traces a
    graph, and does not leave. Its dispatch keys are dropped: an inference mode sets back those of the time when it was
    entered, and an error may leave others.
    """
    c, depth, nesting = torch._C, len(_inference_modes), autocast_nesting()
    levels, is_dual = functorch.get_dynamic_layer_stack_depth(), in_dual_level()
    refusal = c._autograd._saved_tensors_hooks_get_disabled_error_message()     # a transform sets it
    with c._ForceDispatchKeyGuard(c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()):
        try:
            yield
        finally:
            if functorch.get_dynamic_layer_stack_depth() > levels:
                functorch.pop_dynamic_layer_stack_and_undo_to_depth(levels)
            if in_dual_level() and not is_dual:
                exit_dual_level(0)
            refuse_saved_tensors_hooks(refusal)
            while len(_inference_modes) > depth:
                exit_inference_mode()
            nest_autocast(nesting)


def in_dual_level() -> bool:
    """Whether forward mode is on. It does not nest."""
    try:
        exit_dual_level(level_function("_enter_dual_level")())
    except RuntimeError:
        return True
    return False


def leave_regions() -> None:
    """Leave the contexts that a graph had entered when it failed."""
    while _raising:
        stop_raising()
    while _inference_modes:
        exit_inference_mode()
    if in_function_transform():
        with contextlib.suppress(RuntimeError):     # of torch 2.11, when all levels are left
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(0)
    with contextlib.suppress(RuntimeError):     # it was not entered
        exit_dual_level(0)


class Before:
    """The changes of torch's state during a capture. ``restore()`` undoes them, and may be called repeatedly.

    Each part of capture undoes its own changes. An interrupt between a change and the ``try`` around it, in torch's
    code or in this package, would leave the change. Call ``read_shared`` with the capture lock held: without it, what
    all threads share may be as the capture of another thread has set it.
    """

    shared: tuple[torch.dtype, bool, tuple[int, int, int], list[tuple[logging.Logger, int]]] | None = None

    def __init__(self) -> None:
        c = torch._C
        self.functions, self.dispatchers = c._len_torch_function_stack(), c._len_torch_dispatch_stack()
        self.grad = torch.is_grad_enabled()

    def read_shared(self) -> None:
        """Note the default dtype, whether and how often the garbage collector runs, and the levels of loggers."""
        levels = [(log, log.level) for log in QUIET]
        self.shared = torch.get_default_dtype(), gc.isenabled(), gc.get_threshold(), levels

    def restore(self) -> None:
        c = torch._C
        while c._len_torch_function_stack() > self.functions:
            c._pop_torch_function_stack()
        while c._len_torch_dispatch_stack() > self.dispatchers:
            _pop_mode()
        if torch.is_grad_enabled() != self.grad:
            c._set_grad_enabled(self.grad)
        if self.shared is None:
            return
        dtype, collects, thresholds, levels = self.shared
        if torch.get_default_dtype() is not dtype:
            SET_DEFAULT_DTYPE(dtype)
        if collects:        # never off: an import in another thread may have paused it when this was noted
            gc.enable()
        restore_collections(thresholds)
        for log, level in levels:
            if log.level != level:
                log.setLevel(level)


PURE_STATE_READS = frozenset({
    torch.is_grad_enabled, torch.get_default_dtype, torch.is_autocast_enabled, torch.get_autocast_dtype,
    torch.get_autocast_cpu_dtype, torch.get_autocast_gpu_dtype,
    torch.is_autocast_cache_enabled, torch.is_inference_mode_enabled, torch._C._get_tracing_state,
    torch.are_deterministic_algorithms_enabled,
    torch.amp.is_autocast_available, torch._C._is_autocast_available, torch.is_autocast_cpu_enabled,
    torch._C._is_fwd_grad_enabled, torch._C._get_deterministic_algorithms,
    torch._C._get_deterministic_algorithms_warn_only, torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_num_threads,
    functorch.maybe_current_level, functorch.get_inplace_requires_grad_allowed,
})
