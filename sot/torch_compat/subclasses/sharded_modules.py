"""Modules whose parameters torch's ``fully_shard`` divides among the processes (FSDP2).

Hooks of such a module exchange its parameters before its forward pass, and free them after it. They add hooks of
autograd that do so in the backward pass. The tensor of a whole parameter is one object from the first pass on: its
memory comes and goes. Modules may be a group: the hooks of each count the calls, the first gets the parameters of all,
and the last frees them.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from sot import _hook
from sot.torch_compat.subclasses.collectives import TRACED, opaque

HOOKS = "torch.distributed.fsdp._fully_shard._fsdp_state"
STRUCTURES = "torch.distributed.fsdp._common_utils"
Path = tuple[str | int, ...]    # attributes and indices that lead from the state of a module to an object
GATHERS, COUNTS, FREES = "gather_parameters", "count_call_of_group", "free_parameters"     # what nodes do


class Hook(NamedTuple):
    """A hook: the function without the wrapper of torch.compiler.disable, which takes longer than the hook; the state
    of its group, which it holds itself, or None; and whether it is called before the forward pass."""

    function: Callable[..., Any]
    group: Any
    is_before: bool

    def of(self, state: Any) -> Callable[..., Any]:
        """The hook as a function of the module and what the module gets and returns."""
        call = _hook.plain(self.function)
        return call if self.group is not None else functools.partial(call, state)


class Parameter(NamedTuple):
    """A parameter, and its places in modules: the path of a module, the module, and the name there."""

    path: Path
    part: torch.Tensor
    whole: torch.Tensor
    places: list[tuple[Path, Any, str]]
    is_freed: bool      # after the forward pass


def hook_of(function: Any) -> Hook | None:
    if function.__module__ != HOOKS or not hasattr(sys.modules[STRUCTURES], "collect_grad_tensors"):
        return None
    states = sys.modules[HOOKS].FSDPState
    inner: Any = getattr(function, "__wrapped__", None)
    if function in (states._pre_forward, states._post_forward):
        return Hook(inner, None, function is states._pre_forward)
    held: Any = getattr(inner, "__wrapped__", None)
    if getattr(held, "__func__", None) in (states._pre_forward, states._post_forward):
        return Hook(inner, held.__self__, held.__func__ is states._pre_forward)
    return None


# ---- what capture follows in place of the hooks
def before_forward(hook: Hook, state: Any, module: Any, args: Any, kwargs: Any) -> Any:
    structures = sys.modules[STRUCTURES]
    args, kwargs = state._cast_forward_inputs(args, kwargs)
    tensors = structures.collect_grad_tensors((args, kwargs)) if torch.is_grad_enabled() else ()
    passed = gather(hook, state, module, tensors)
    return structures.replace_grad_tensors((args, kwargs), iter(passed)) if passed else (args, kwargs)


def within_group(hook: Hook, state: Any, module: Any, args: Any, output: Any) -> Any:
    count(hook, state, module)
    return state._cast_output_dtype(output)


def after_forward(hook: Hook, state: Any, module: Any, args: Any, output: Any) -> Any:
    tensors = sys.modules[STRUCTURES].collect_grad_tensors(output) if torch.is_grad_enabled() else ()
    free(hook, state, module, tensors)
    return state._cast_output_dtype(output)


def gather(hook: Hook, state: Any, module: Any, tensors: tuple) -> tuple:
    """Get the whole parameters. Returns the tensors, with a node of autograd that frees them in the backward pass.
    Capture replaces the call of this function, and of the next two, by a node of the graph."""
    raise NotImplementedError


def count(hook: Hook, state: Any, module: Any) -> None:
    """Count the call of a module of a group."""
    raise NotImplementedError


def free(hook: Hook, state: Any, module: Any, tensors: tuple) -> None:
    """Free the whole parameters, and add a hook to the tensors that gets them again."""
    raise NotImplementedError


# ---- what the graph relies on
def has_started(state: Any) -> bool:
    """Whether the module has had its first forward pass, which makes the tensors."""
    return state._is_root is not None and all(
        hasattr(param, "_unsharded_param") for group in state._fsdp_param_groups for param in group.fsdp_params)


def refusal_of(state: Any) -> str:
    """Why nodes cannot do what the hooks of a module do; "" if they can."""
    if state._training_state.name == "PRE_BACKWARD":
        return "in a backward pass"
    if any(group._use_post_forward_mesh for group in state._fsdp_param_groups):
        return "which divides its parameters over a second mesh"
    return ""


def device_of_arguments(state: Any) -> torch.device | None:
    """The device to which the hook of the root moves the arguments; None if it does not."""
    return state._device if state._is_root and state._device.type != "cpu" else None


def facts_of(state: Any) -> Iterator[tuple[Path, Any]]:
    """Objects that must be the same at the next call."""
    yield ("_training_state",), state._training_state
    yield ("_mp_policy",), state._mp_policy
    yield ("_fsdp_param_groups",), state._fsdp_param_groups
    for i, group in enumerate(state._fsdp_param_groups):
        for name in "fsdp_params", "post_forward_mesh_info":
            yield ("_fsdp_param_groups", i, name), getattr(group, name)


def waiting_of(state: Any) -> Iterator[tuple[Path, set]]:
    """The modules of a group that have not been called, of the state's own, and of all groups for the root."""
    if state._is_root:
        for i, other in enumerate(state._state_ctx.all_states):
            if len(other._modules) > 1:
                yield ("_state_ctx", "all_states", i, "_modules_to_run_forward"), other._modules_to_run_forward
    elif len(state._modules) > 1:
        yield ("_modules_to_run_forward",), state._modules_to_run_forward


def parameters_of(state: Any) -> Iterator[Parameter]:
    for i, group in enumerate(state._fsdp_param_groups):
        for j, param in enumerate(group.fsdp_params):
            path: Path = ("_fsdp_param_groups", i, "fsdp_params", j)
            info = param._module_info
            others = zip(info.shared_modules, info.shared_param_names, strict=True)
            places = [((*path, "_module_info", "module"), info.module, info.param_name)]
            places += [((*path, "_module_info", "shared_modules", k), module, name)
                       for k, (module, name) in enumerate(others)]
            yield Parameter(path, param.sharded_param, param._unsharded_param, places, group._reshard_after_forward)


# ---- nodes
class Passed(torch.autograd.Function):
    """What a node makes of fake tensors: autograd sees that its inputs are returned as they are."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gradients


def gathering(hook: Hook, state: Any, module: Any, number: int) -> Callable[..., Any]:
    """The target of a node before the forward pass. It takes ``number`` tensors that require grad, and the whole
    parameters."""
    call = hook.of(state)

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
        given = tensors[:number]
        if any(isinstance(tensor, TRACED) for tensor in tensors):
            return Passed.apply(*given) if given else None
        (passed,), _ = call(module, (given,), {})
        return passed if given else None
    return target(run, GATHERS, state, module)


def ending(hook: Hook, state: Any, module: Any, name: str) -> Callable[..., None]:
    """The target of a node after the forward pass. It takes the results that require grad."""
    call = hook.of(state)

    def run(*tensors: torch.Tensor) -> None:
        if not any(isinstance(tensor, TRACED) for tensor in tensors):
            call(module, (), tensors)
    return target(run, name, state, module)


def target(run: Any, name: str, state: Any, module: Any) -> Callable[..., Any]:
    opaque(run, name)
    run.divided = state, module
    return run


def is_of_divided(target: Any) -> bool:
    """Whether a node runs such a hook, which acts in the backward pass, too."""
    return hasattr(target, "divided")


def called_since(targets: Iterable[Any], state: Any) -> list[Any]:
    """The modules of a group that have been called since its parameters were freed, in order."""
    found: list[Any] = []
    for each in targets:
        if is_of_divided(each) and each.divided[0] is state:
            found = [*found, each.divided[1]] if each.__name__ == GATHERS else [] if each.__name__ == FREES else found
    return found
