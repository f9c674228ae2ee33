"""Operations that change tensors whose elements share memory with others of the operation. A kernel changes one after
the other, or refuses to. A graph that a backend compiles changes a copy.

Layouts are compared with the sizes of the captured call where sizes are symbols: a question about symbols would be a
guard.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch


class Layout(NamedTuple):
    """How a strided tensor lies in its storage, in elements."""

    shape: Sequence[int]
    strides: Sequence[int]
    offset: int
    itemsize: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout | None:
        """The layout; None if a size depends on data."""
        n = tensor.dim()
        numbers: list[Any] = [number if type(number) is int else number.node.hint
                              for number in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
        return None if None in numbers else cls(numbers[:n], numbers[n:-1], numbers[-1], tensor.element_size())

    @property
    def extent(self) -> tuple[int, int]:
        """The place of the first byte, and the one after the last."""
        last = sum(stride * (size - 1) for stride, size in zip(self.strides, self.shape, strict=True))
        return self.offset * self.itemsize, (self.offset + last + 1) * self.itemsize

    @property
    def has_gaps(self) -> bool:
        start, end = self.extent
        return end - start != functools.reduce(int.__mul__, self.shape, 1) * self.itemsize


def expressions_of(tensor: torch.Tensor) -> list[Any]:
    """Its layout, with the expressions of sizes that depend on data."""
    return [number if type(number) is int else number.node.expr
            for number in (*tensor.shape, *tensor.stride(), tensor.storage_offset(), tensor.element_size())]


def is_expanded(tensor: torch.Tensor) -> bool:
    """Whether it has an element twice."""
    return any(type(stride) is int and stride == 0 and size > 1     # not symbolic: that would be a guard
               for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def may_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory, as those of ``unfold``."""
    layout = Layout.of(tensor) if tensor.layout is torch.strided else None
    if layout is None:
        return False
    reach = 0       # of the dimensions with smaller strides
    for stride, size in sorted(zip(layout.strides, layout.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def changes_what_it_reads(kernel: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether an operation changes a tensor that shares memory with another of its arguments. Operations on elements
    accept that they read the same memory in the same order.
    """
    places = _changed_places(kernel)
    by_storage: dict[int, list[tuple[bool, torch.Tensor]]] = {}
    for place, value in (*enumerate(args), *kwargs.items()) if places else ():
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                by_storage.setdefault(tensor.untyped_storage()._cdata, []).append((place in places, tensor))
    of_elements = torch.Tag.pointwise in kernel.tags or kernel.overloadpacket is torch.ops.aten.copy_ or (
        "_foreach_" in kernel._schema.name)
    return any(share(tensor, other, of_elements and not (is_changed and other_is_changed))
               for sharing in by_storage.values()
               for (is_changed, tensor), (other_is_changed, other) in itertools.combinations(sharing, 2)
               if is_changed or other_is_changed)


@functools.cache
def _changed_places(kernel: Any) -> frozenset[int | str]:
    """The arguments that an operation changes: positions, and names of those that are given by name."""
    arguments = kernel._schema.arguments if kernel._schema.is_mutable else ()
    return frozenset(place for i, a in enumerate(arguments) if a.is_write for place in (i, a.name))


def share(tensor: torch.Tensor, other: torch.Tensor, accepts_all: bool) -> bool:
    """Whether two tensors of one storage share a part of their memory, or all of it. ``accepts_all``: not if they have
    all of it in one order. As torch does (``MemoryOverlap.cpp``), this finds a part in tensors without gaps only.
    """
    if tensor is other:
        return not accepts_all
    layout, its = Layout.of(tensor), Layout.of(other)
    if layout is None or its is None:
        return not (accepts_all and expressions_of(tensor) == expressions_of(other))
    if layout == its:
        return not accepts_all
    if 0 in layout.shape or 0 in its.shape or layout.has_gaps or its.has_gaps:
        return False
    (start, end), (its_start, its_end) = layout.extent, its.extent
    if (start, end, layout.strides) == (its_start, its_end, its.strides):
        return not accepts_all
    return start < its_end and its_start < end
