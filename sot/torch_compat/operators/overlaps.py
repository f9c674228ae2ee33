"""Operations that change tensors whose elements share memory with others of the operation. A kernel changes one after
the other, or refuses to. A graph that a backend compiles changes a copy.
"""
from __future__ import annotations

import functools
import itertools
from typing import Any

import torch


def is_expanded(tensor: torch.Tensor) -> bool:
    """Whether it has an element twice."""
    return any(type(stride) is int and stride == 0 and size > 1     # not symbolic: that would be a guard
               for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def overlaps(kernel: Any, args: tuple) -> bool:
    """Whether the changed first argument has an element twice, or shares memory with another argument. Operations on
    elements accept the same memory with the same layout.
    """
    strided = [a for a in args if isinstance(a, torch.Tensor) and a.layout is torch.strided]
    if not strided or strided[0] is not args[0]:
        return False
    first, *others = strided
    sharing = [a for a in others if a.untyped_storage()._cdata == first.untyped_storage()._cdata]
    if torch.Tag.pointwise in kernel.tags or kernel.overloadpacket is torch.ops.aten.copy_:
        layout = first.shape, first.stride(), first.storage_offset()
        sharing = [a for a in sharing if (a.shape, a.stride(), a.storage_offset()) != layout]
    return is_expanded(first) or bool(sharing)


def may_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory, as those of ``unfold``."""
    if tensor.layout is not torch.strided or is_symbolic(tensor):
        return False
    reach = 0       # of the dimensions with smaller strides
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
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
            if isinstance(tensor, torch.Tensor) and is_laid_out(tensor):
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
    (start, end), (other_start, other_end) = extent(tensor), extent(other)
    if (start, end, tensor.stride()) == (other_start, other_end, other.stride()):
        return not accepts_all
    if end - start != tensor.nbytes or other_end - other_start != other.nbytes:
        return False
    return start < other_end and other_start < end


def extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The place of the first byte in the storage, and the one after the last."""
    last = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    start = tensor.storage_offset() * tensor.element_size()
    return start, start + (last + 1) * tensor.element_size()


def is_laid_out(tensor: torch.Tensor) -> bool:
    """Whether its elements are at known places. A question about symbols would be a guard."""
    return tensor.layout is torch.strided and not is_symbolic(tensor) and tensor.numel() > 0


def is_symbolic(tensor: torch.Tensor) -> bool:
    return any(type(n) is not int for n in (*tensor.shape, *tensor.stride(), tensor.storage_offset()))
