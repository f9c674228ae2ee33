"""Hooks on tensors: ``register_hook`` and ``register_post_accumulate_grad_hook``.

The node adds a placeholder for the hook, on the tensor and at the moment of the program's call. The hook may use
values that the graph computes, so it is made after the graph and then replaces the placeholder. A backend that
compiles the graph would lose the placeholder, and ``backward()`` inside the graph would come too early. Both are
breaks.
"""
from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from sot.interpreter.builtins.common import take
from sot.interpreter.torch_ops.torch_calls import transformed
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Const, Value
from sot.values.callables import BoundMethod
from sot.values.objects import ObjectValue
from sot.values.tensor import TensorValue, refuse_instances

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

numbers = itertools.count()


class Places(threading.local):
    """Handles of the placeholders that the last graph has added, by the number of the node."""

    def __init__(self) -> None:
        self.handles: dict[int, RemovableHandle] = {}


places = Places()


def nothing_yet(*args: Any) -> None:
    """The placeholder of a hook."""


def make_place(tensor: torch.Tensor, method: str, number: int) -> None:
    """The target of the node."""
    places.handles[number] = getattr(tensor, method)(nothing_yet)


def put_hook(number: int, hook: Any) -> RemovableHandle:
    """Replace a placeholder by its hook. Returns the program's handle."""
    handle = places.handles.pop(number)
    if (hooks := handle.hooks_dict_ref()) is not None:
        hooks[handle.id] = hook
    return handle


def remove_places() -> None:
    """Remove the placeholders after the graph has failed, because Python will run the frame from its start."""
    while places.handles:
        places.handles.popitem()[1].remove()


class HookHandle(ObjectValue):
    """The handle of an added hook."""

    def __init__(self, number: int, hook: Value) -> None:
        super().__init__(RemovableHandle)
        self.number, self.hook = number, hook

    def load_attr(self, m: Any, name: str) -> Value:
        if name == "remove":
            return BoundMethod(Const(RemovableHandle.remove), self, name)
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of the handle of a hook")

    def remove(self, m: Machine) -> Value:
        m.effect(lambda e: e.line(f"{e.value(self)}.remove()"))
        return NONE

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(put_hook)}({self.number}, {e.value(self.hook)})")

    def __str__(self) -> str:
        return "the handle of a hook"


@handles(torch.Tensor.register_hook)
def register_hook(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, hook = take("register_hook", args, kwargs, "self", "hook", required=2)
    return add(m, "register_hook", tensor, hook)


@handles(torch.Tensor.register_post_accumulate_grad_hook)
def register_post_accumulate_grad_hook(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, hook = take("register_post_accumulate_grad_hook", args, kwargs, "self", "hook", required=2)
    if isinstance(tensor, TensorValue) and not tensor.fake.is_leaf:
        raise Break(Reason.OPERATION_FAILED, "register_post_accumulate_grad_hook of a tensor that is not a leaf")
    return add(m, "register_post_accumulate_grad_hook", tensor, hook)


def add(m: Machine, method: str, tensor: Value, hook: Value) -> Value:
    if not isinstance(tensor, TensorValue) or m.modes or transformed(tensor):
        raise Break(Reason.UNSUPPORTED, f"{method} under a mode or a transform")
    refuse_instances(method, [tensor])
    if not tensor.fake.requires_grad:
        raise Break(Reason.OPERATION_FAILED, f"{method} of a tensor that does not require grad")
    if m.assumptions.compiles:
        raise Break(Reason.SIDE_EFFECT, f"{method}, whose hook a backend that compiles would not call,")
    if m.builder.region is not None:
        raise Break(Reason.BRANCH, f"{m.position()}: {method}")
    number = next(numbers)
    node = m.builder.record("call_function", make_place, (tensor.ref, method, number), {}, None, m.stack_trace())
    node.meta["draws"] = False
    m.hooked = True
    handle = HookHandle(number, hook)
    m.effect(lambda e: e.value(handle))
    return handle
