"""Shapes that a kernel compares, and its rule for fakes does not.

The rule of another kernel compares them here: it raises, or torch records what it assumes about the symbols.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def of_mask(tensor: torch.Tensor, mask: torch.Tensor) -> None:
    torch.broadcast_tensors(tensor, mask)


def of_diagonal(tensor: torch.Tensor, source: torch.Tensor, *place: int, **places: int) -> None:
    source.view_as(torch.diagonal(tensor, *place, **places))


def of_positions(tensor: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, *others: Any) -> None:
    if all(index is None or index.dtype is not torch.bool for index in indices):
        values.expand(torch.ops.aten.index(tensor, indices).shape)


_aten = torch.ops.aten
COMPARED: dict[Any, Callable[..., None]] = {
    _aten.masked_select.default: of_mask,
    _aten.diagonal_scatter.default: of_diagonal,
    _aten.index_put.default: of_positions,
    _aten.index_put_.default: of_positions,
    _aten._index_put_impl_.default: of_positions,
}
