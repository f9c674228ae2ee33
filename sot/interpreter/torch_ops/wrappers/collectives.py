"""Collectives that change tensors in place, and questions about process groups."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from sot.guards.guards import IsGuard
from sot.interpreter.torch_ops.wrappers.library_functions import whole_node
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS
from sot.torch_compat.operators.overlaps import is_expanded
from sot.torch_compat.subclasses.collectives import in_place, methods_of_groups
from sot.values.base import ABSENT, FALSE, NONE, Const, Value
from sot.values.tensor import TensorValue, has_own_code

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def called(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call of a collective as a node; None for another function, and for a call that is no such node."""
    operation = in_place(function)
    if operation is None or m.modes or not dist.is_initialized():
        return None
    kwargs = dict(kwargs)
    wait = kwargs.pop("async_op", FALSE)
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, TensorValue)]
    if not is_false(wait) or len(args) > operation.__code__.co_argcount or not tensors or not all(
            map(is_sent_as_it_is, tensors)):
        return None
    if operation.__name__ == "broadcast" and not is_none(kwargs.pop("group", NONE)):
        return None
    if not {*kwargs} <= {*operation.__code__.co_varnames[:operation.__code__.co_argcount]}:
        return None
    try:
        whole_node(m, operation, args, kwargs)
    except Break as stop:
        if stop.reason is Reason.OPAQUE_VALUE:      # not a group that this process is in
            return None
        raise
    return NONE


def is_false(value: Value) -> bool:
    return isinstance(value, Const) and value.constant() is False


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.constant() is None


def is_sent_as_it_is(value: TensorValue) -> bool:
    """Whether the functional form takes this tensor as the collective does: autograd does not see either."""
    fake = value.fake
    return not (has_own_code(value.pytype) or fake.requires_grad or fake.is_complex() or is_expanded(fake)) and (
        fake.is_contiguous())


def answer(method: Any) -> Any:
    """The handler of a method of process groups whose result is a constant of the group, which is guarded."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        group = args[0]
        if len(args) != 1 or kwargs or group.real is ABSENT or group.origin is None:
            raise Break(Reason.OPAQUE_CALL, "a method of a process group")
        m.guard(IsGuard(group.origin, group.real))
        return Const(method(group.real))
    return handler


for _method in methods_of_groups():
    HANDLERS[_method] = answer(_method)
