"""Modules that torch's ``fully_shard`` has divided: their hooks are nodes, so the forward pass is one graph.

Capture follows a short form of the hook, and the real one runs when the graph does. A whole parameter is an input of
the graph: the node before its first use fills it. Nothing writes the parameters back to the modules after the graph,
because the hooks have done so. The backward pass is Python's: autograd calls hooks in it that communicate.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.guards.guards import IsGuard, LengthGuard
from sot.guards.origin import Attr, Item, Origin
from sot.interpreter.control_flow.failures import refuse_lasting
from sot.interpreter.torch_ops.hooks.tensor_hooks import show_gradient
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.wrappers.collectives import is_caught
from sot.support.errors import Break, OnlyNow, Reason
from sot.support.registry import handles
from sot.torch_compat.subclasses import sharded_modules
from sot.torch_compat.subclasses.sharded_modules import Hook, Parameter, Path
from sot.values.base import ABSENT, NONE, Const, Opaque, OtherTensor, Value
from sot.values.callables import FunctionValue
from sot.values.objects import DictValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap, wrap_known

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from sot.interpreter.machine import Machine


def called(m: Machine, function: FunctionValue, args: list[Value]) -> Value | None:
    """The call of a hook of such a module; None for another function."""
    hook = sharded_modules.hook_of(function.real)
    if hook is None:
        return None
    if hook.group is not None:
        if function.origin is not None:
            m.guard(IsGuard(function.origin, function.real))
        args = [wrap_known(m, hook.group), *args]
    state, module, *rest = args
    if state.real is ABSENT or state.origin is None:
        raise Break(Reason.OPAQUE_CALL, function.name)
    if not sharded_modules.has_started(state.real):
        raise OnlyNow(Reason.NOT_COMPILED, "the first forward pass of a module that fully_shard has divided")
    if why := refusal_of(m, hook, state.real, rest):
        raise Break(Reason.SIDE_EFFECT, f"a hook of a module that fully_shard has divided, {why},")
    guard_state(m, state)
    return m.enter(followed(m, hook, state.real, module.real), [Opaque(hook, None), *args], {})


def refusal_of(m: Machine, hook: Hook, state: Any, args: list[Value]) -> str:
    """Why nodes cannot take the place of a hook here; "" if they can."""
    if m.modes:
        return "under a mode"
    if m.assumptions.compiles or m.builder.region is not None and not m.assumptions.interprets:
        return "for this backend"
    if is_caught(m):
        return "where the program catches exceptions"
    device = sharded_modules.device_of_arguments(state)
    if hook.is_before and device is not None and not all(is_on(m, value, device) for value in args):
        return "which moves its arguments to its device"
    return sharded_modules.refusal_of(state)


def is_on(m: Machine, value: Value, device: torch.device) -> bool:
    """Whether a move to a device leaves a value as it is."""
    if isinstance(value, TensorValue):
        return value.fake.device == device
    if isinstance(value, DictValue) and value.pytype is dict:
        return all(is_on(m, each, device) for each in value.values(m))
    items = value.items_list(m) if isinstance(value, TupleValue) else None
    return all(is_on(m, each, device) for each in items) if items is not None else isinstance(value, Const)


def followed(m: Machine, hook: Hook, state: Any, module: Any) -> Callable[..., Any]:
    """What is followed in place of a hook."""
    if hook.is_before:
        return sharded_modules.before_forward
    if hook.group is None:
        return sharded_modules.after_forward
    called = called_in_group(m, state)
    if called[-1:] != [module]:
        raise Break(Reason.SIDE_EFFECT, "a module that calls others of its group")
    return sharded_modules.within_group if {*called} < {*state._modules} else sharded_modules.after_forward


def called_in_group(m: Machine, state: Any) -> list[Any]:
    return sharded_modules.called_since((node.target for node in m.builder.nodes), state)


def origin_at(state: Value, path: Path) -> Origin:
    assert state.origin is not None
    found: Origin = state.origin
    for step in path:
        found = Attr(found, step) if isinstance(step, str) else Item(found, step)
    return found


def guard_state(m: Machine, state: Value) -> None:
    assert state.origin is not None
    m.guard(IsGuard(state.origin, state.real))
    for path, real in sharded_modules.facts_of(state.real):
        m.guard(IsGuard(origin_at(state, path), real))
        if isinstance(real, list):
            m.guard(LengthGuard(origin_at(state, path), len(real)))
    for path, waiting in sharded_modules.waiting_of(state.real):
        m.guard(LengthGuard(origin_at(state, path), len(waiting)))
        if waiting:
            raise Break(Reason.SIDE_EFFECT, "the rest of a group of modules that fully_shard has divided")


def place_in_modules(m: Machine, state: Value, parameter: Parameter, value: Value) -> None:
    """Let the code that follows read a parameter from its modules. The hook itself will have put it there."""
    for path, module, name in parameter.places:
        table: Any = wrap(m, module, origin_at(state, path)).load_attr(m, "_parameters")
        m.undoable(table.snapshot())
        table.overlay[name] = value


def run_hook(m: Machine, target: Callable[..., Any], tensors: list[Value]) -> Value:
    """The node that runs a hook."""
    refuse_lasting(m, target.__name__)
    m.builder.changes_traceless = True      # what is sent to other processes is not sent again
    if tensors:
        return torch_call(m, "call_function", target, tensors, {})
    m.builder.record("call_function", target, (), {}, None, m.stack_trace())
    return NONE


@handles(sharded_modules.gather)
def gather(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    hook, state, module, tensors = args
    known = [*sharded_modules.parameters_of(state.real)]
    wholes = [wrap(m, each.whole, Attr(origin_at(state, each.path), "_unsharded_param")) for each in known]
    given = tensors.items_list(m) or []
    passed = run_hook(m, sharded_modules.gathering(hook.real, state.real, module.real, len(given)), [*given, *wholes])
    for parameter, whole in zip(known, wholes, strict=True):
        place_in_modules(m, state, parameter, whole)
    return passed if given else TupleValue([])


@handles(sharded_modules.count)
def count(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    hook, state, module = (value.real for value in args)
    return run_hook(m, sharded_modules.ending(hook, state, module, sharded_modules.COUNTS), [])


@handles(sharded_modules.free)
def free(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    hook, state, module, tensors = args
    if state.real._is_root and any(called_in_group(m, other) for other in state.real._state_ctx.all_states
                                   if len(other._modules) > 1 and other is not state.real):
        raise Break(Reason.SIDE_EFFECT, "the end of a forward pass that has not called all modules of a group")
    given = tensors.items_list(m) or []
    for tensor in given:
        assert isinstance(tensor, TensorValue)
        if tensor.fake._base is not None:
            raise Break(Reason.SIDE_EFFECT, "a warning of a module that fully_shard has divided, of its result")
        if tensor.ref.node is not None and tensor.ref.node.users:
            show_gradient(tensor)       # a compiled piece with a use would hide a part of its gradient
    run_hook(m, sharded_modules.ending(hook.real, state.real, module.real, sharded_modules.FREES), given)
    for parameter in sharded_modules.parameters_of(state.real):
        if parameter.is_freed:
            origin = Attr(origin_at(state, parameter.path), "sharded_param")
            value = OtherTensor(parameter.part, origin, "a parameter that fully_shard has divided again")
            place_in_modules(m, state, parameter, value)
    return NONE
