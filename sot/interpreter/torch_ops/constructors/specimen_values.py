"""Tensors of kinds that torch's fakes do not have: quantized tensors, and nested tensors with strides.

Capture knows two real tensors in place of each, with different elements. What both say about dtype and shape does not
depend on the elements.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph import TensorRef
from sot.support.errors import Break, Reason
from sot.values.base import Const, Value
from sot.values.callables import BoundMethod
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.values.protocols import Emitter

Specimens = tuple[torch.Tensor, torch.Tensor]
FACTS = frozenset(("dtype", "device", "layout", "shape", "ndim", "is_nested", "is_quantized", "is_sparse", "is_cuda",
                   "is_cpu", "is_meta", "requires_grad", "itemsize"))


class SpecimenRef(TensorRef):
    """Such a tensor in the graph."""

    __slots__ = ()

    def __init__(self, node: fx.Node) -> None:
        self.fake, self.node, self.real, self.label, self.version = None, node, None, "", 0  # type: ignore[assignment]
        self.seen = True


class SpecimenTensor(Value):
    """Such a tensor. ``memory`` is shared with other tensors."""

    pytype = torch.Tensor

    def __init__(self, specimens: Specimens, node: fx.Node, memory: Any) -> None:
        self.specimens, self.ref, self.memory = specimens, SpecimenRef(node), memory

    @property
    def kind(self) -> str:
        return "a nested tensor" if self.specimens[0].is_nested else "a quantized tensor"

    def refusal(self) -> Break:
        return Break(Reason.OTHER_TENSOR, f"{self} is {self.kind}")

    def load_attr(self, m: Any, name: str) -> Value:
        if name in FACTS:
            try:
                return wrap_new(m, getattr(self.specimens[0], name))
            except RuntimeError as e:       # a nested tensor has no shape
                raise Break(Reason.OPERATION_FAILED, str(e)) from None
        found = getattr(torch.Tensor, name, None)
        if not callable(found):
            raise self.refusal()
        return BoundMethod(Const(found), self, name)

    def graph_argument(self, m: Any, found: dict[int, Any], as_number: bool = False) -> Any:
        raise self.refusal()

    def truth(self, m: Any) -> bool | None:
        raise self.refusal()

    def rebuild(self, e: Emitter) -> str:
        return e.output(self.ref)

    def __str__(self) -> str:
        return f"a tensor of {self.specimens[0].dtype}"
