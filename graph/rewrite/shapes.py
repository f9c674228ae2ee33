"""Gives operators that need only the shape of a tensor new memory of that shape, so that its values are not kept.

The gradient of a pool or of a padding takes the tensor that was pooled or padded, and reads its sizes. The pass runs on
the graph of a forward and a backward pass before it is cut into two. Otherwise such a tensor is kept for the backward
graph, where a smaller one is enough: of ``max_pool2d(relu(x))`` the gradient needs where the ReLU is zero. A kernel
reads none of the new memory, so it is allocated only if the operator is called.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from sot.graph.rewrite.layouts import described, has_symbols, name_of
from sot.torch_compat.graphs import running

aten = torch.ops.aten

# Operators that read only sizes and layout of their second argument.
BY_SHAPE = frozenset((
    "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "avg_pool2d_backward",
    "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "reflection_pad1d_backward",
    "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward",
    "replication_pad2d_backward", "replication_pad3d_backward",
))
FORMATS = {4: (torch.contiguous_format, torch.channels_last), 5: (torch.contiguous_format, torch.channels_last_3d)}


def by_shape(graph: fx.Graph) -> int:
    """Replace the arguments. Returns their number."""
    count, made = 0, dict[fx.Node, fx.Node | None]()
    for node in list(graph.nodes):
        if not isinstance(node.target, torch._ops.OpOverload) or name_of(node.target) not in BY_SHAPE:
            continue
        source = node.args[1] if len(node.args) > 1 else None
        if not isinstance(source, fx.Node) or source.op == "placeholder" or has_symbols(source):
            continue
        if source not in made:
            with graph.inserting_before(node):
                made[source] = blank(graph, source)
        if (memory := made[source]) is not None:
            node.args = (node.args[0], memory, *node.args[2:])
            count += 1
    return count


def blank(graph: fx.Graph, source: fx.Node) -> fx.Node | None:
    """New memory that is laid out like a tensor, if an operator can be asked for it that is cheap to repeat."""
    value: torch.Tensor = source.meta["val"]
    for form in FORMATS.get(value.dim(), (torch.contiguous_format,)):
        how: Any = {"dtype": value.dtype, "device": value.device, "memory_format": form}
        with running(value.fake_mode):      # type: ignore[attr-defined]
            found = aten.empty.memory_format([*value.shape], **how)
        if found.stride() == value.stride():
            made = graph.call_function(aten.empty.memory_format, ([*value.shape],), how)
            made.meta = described(source, found)
            return made
    return None
