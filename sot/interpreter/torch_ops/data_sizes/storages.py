"""``x.untyped_storage()`` where the graph runs as it is: the graph asks the storage (see ``asked_in_graph.py``).

What only Python can do with a storage is a break. Python then reads it off the tensor, which has no other by then.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.torch_ops.data_sizes.asked_in_graph import answered, can_ask
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import ANSWERS, Const, Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

METHODS = {"nbytes": int, "size": int, "__len__": int, "data_ptr": int, "element_size": int, "is_shared": bool,
           "is_pinned": bool, "resizable": bool}


def of_storage(tensor: torch.Tensor, name: str) -> Any:
    """The target of the node that asks a storage."""
    return getattr(tensor.untyped_storage(), name)()


class StorageValue(Value):
    """The storage of a tensor."""

    pytype = torch.UntypedStorage

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor

    def load_attr(self, m: Any, name: str) -> Value:
        if name == "device":
            return Const(self.tensor.fake.device)
        if name in METHODS:
            return StorageMethod(self, name)
        raise Break(Reason.TENSOR_VALUE, f"untyped_storage().{name}")

    def rebuild(self, e: Any) -> str:
        return e.variable(self, f"{e.value(self.tensor)}.untyped_storage()")

    def __str__(self) -> str:
        return f"the storage of {self.tensor}"


class StorageMethod(Value):
    def __init__(self, storage: StorageValue, name: str) -> None:
        self.storage, self.name = storage, name

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Break(Reason.TENSOR_VALUE, f"untyped_storage().{self.name}")
        return ask(m, self.storage, self.name)

    def rebuild(self, e: Any) -> str:
        return e.variable(self, f"{e.value(self.storage)}.{self.name}")

    def __str__(self) -> str:
        return f"{self.name} of {self.storage}"


def ask(m: Machine, storage: StorageValue, name: str) -> Value:
    if not can_ask(m, [storage.tensor]):
        raise Break(Reason.TENSOR_VALUE, f"untyped_storage().{name}")
    return answered(m, name, METHODS[name], of_storage, (storage.tensor.ref, name))


@ANSWERS.add((StorageValue, "len"))
def length(m: Machine, storage: StorageValue) -> Value:
    return ask(m, storage, "__len__")


@handles(torch.Tensor.untyped_storage)
def untyped_storage(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(tensor, TensorValue) or not can_ask(m, [tensor]):
        raise Break(Reason.TENSOR_VALUE, "untyped_storage")
    m.storages_read.add(id(tensor.ref.fake))
    return StorageValue(tensor)


def refuse_if_read(m: Machine, tensor: Value) -> None:
    """Break before a tensor gets another storage, if its storage has been read."""
    if isinstance(tensor, TensorValue) and id(tensor.ref.fake) in m.storages_read:
        raise Break(Reason.SIDE_EFFECT, "another storage for a tensor whose storage was read")


@handles(torch.Tensor.set_)
def set_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``y.set_(storage, offset, size, stride)`` is the same with a tensor that has the storage."""
    refuse_if_read(m, args[0])
    if len(args) == 5 and isinstance(args[1], StorageValue):
        args = [args[0], args[1].tensor, *args[2:]]
    return torch_call(m, "call_method", "set_", args, kwargs)
