"""DLPack: a capsule of a tensor, and the tensor of a capsule, which has the same memory and a version of its own.

A backend that compiles may return a view in its place, so there it is a break.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.builtins.common import take
from sot.interpreter.torch_ops import overrides
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.registry import handles
from sot.torch_compat.functions import from_capsule, to_capsule
from sot.values.base import NONE, Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


def same_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The target of the node."""
    return tensor.data


class CapsuleValue(Value):
    """A capsule that the call makes. It can be used once."""

    pytype = type(to_capsule(torch.empty(0)))

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor
        self.is_used = False

    def snapshot(self) -> Callable[[], None]:
        used = self.is_used

        def undo() -> None:
            self.is_used = used
        return undo

    def truth(self, m: Any) -> bool | None:
        return True

    def rebuild(self, e: Emitter) -> str:
        if self.is_used:
            raise NotRebuildable("a capsule that was used")
        return e.variable(self, f"{e.const(to_capsule)}({e.value(self.tensor)})")

    def __str__(self) -> str:
        return f"a capsule of {self.tensor}"


def capsule_of(m: Machine, tensor: Value) -> Value:
    if not isinstance(tensor, TensorValue) or m.modes or m.assumptions.compiles or overrides.asked(m, tensor):
        raise Break(Reason.TENSOR_VALUE, "__dlpack__")
    fake = tensor.fake
    if (tensor.pytype is not torch.Tensor or fake.requires_grad or fake.is_conj() or fake.is_neg()
            or fake.layout is not torch.strided or fake.device.type != "cpu"):
        raise Break(Reason.TENSOR_VALUE, "__dlpack__")      # Python refuses some of these
    return CapsuleValue(tensor)


@handles(torch.Tensor.__dlpack__)
def export(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    options = {name: value for name, value in kwargs.items() if name != "max_version" and value is not NONE}
    if len(args) != 1 or options:
        raise Break(Reason.TENSOR_VALUE, "__dlpack__")
    return capsule_of(m, args[0])


@handles(to_capsule)
def to_capsule_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, = take("to_dlpack", args, kwargs, "tensor", required=1)
    return capsule_of(m, tensor)


@handles(from_capsule)
def from_capsule_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    capsule, = take("from_dlpack", args, kwargs, "capsule", required=1)
    if not isinstance(capsule, CapsuleValue) or capsule.is_used:
        raise Break(Reason.OPAQUE_VALUE, f"{capsule} as the memory of a tensor")
    m.touch(capsule)
    capsule.is_used = True
    made = torch_call(m, "call_function", same_memory, [capsule.tensor], {})
    assert isinstance(made, TensorValue)
    m.builder.untracked.append(made.ref)
    return made
