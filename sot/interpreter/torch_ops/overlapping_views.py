"""Changes in place of views whose elements share memory, such as those of ``unfold``."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.torch_compat.operators.overlaps import may_overlap
from sot.torch_compat.tensors import storage_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sot.graph import TensorRef


def has_overlap(ref: TensorRef) -> bool:
    """Whether elements share memory in a tensor, or in one of which it is a view by way of the graph."""
    return any(map(may_overlap, with_views_below(ref)))


def with_views_below(ref: TensorRef) -> Iterator[torch.Tensor]:
    node = ref.node
    yield ref.fake
    while node is not None and node.all_input_nodes:
        node = node.all_input_nodes[0]
        below = node.meta.get("example_value")
        if isinstance(below, torch.Tensor):     # no list of views
            if storage_id(below) != storage_id(ref.fake):
                return
            yield below
