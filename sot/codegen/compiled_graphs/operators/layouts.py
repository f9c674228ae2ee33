"""Results that PyTorch's kernels lay out in memory differently than torch's rules for fakes, which compilers follow: a
batch norm of transposed rows, a rolled image. A graph that is compiled copies them, because the program was captured
with the kernels' strides.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx

from sot.graph.nodes import OWN_LAYOUT, has_own_layout
from sot.torch_compat.operators.layouts import order_of


def copy_own_layouts(module: fx.GraphModule) -> Callable[[], None]:
    """Let a graph copy such results, as far as the order of their dimensions is known. The result undoes this."""
    copies = [(node, copied) for node in [*filter(has_own_layout, module.graph.nodes)]
              if (copied := copy_of(node)) is not None]
    if copies:
        module.recompile()

    def undo() -> None:
        for node, copied in copies:
            copied.replace_all_uses_with(node)
            module.graph.erase_node(copied)
            node.meta[OWN_LAYOUT] = True
        if copies:
            module.recompile()
    return undo


def copy_of(node: fx.Node) -> fx.Node | None:
    result = node.meta["example_value"]
    order = order_of(result) if isinstance(result, Tensor) else None
    if order is None:
        return None
    with node.graph.inserting_after(node):
        copied = node.graph.call_function(in_order, (node, order))
    copied.meta.update(example_value=result, stack_trace=node.meta["stack_trace"])
    node.replace_all_uses_with(copied, delete_user_cb=lambda user: user is not copied)
    node.meta[OWN_LAYOUT] = False
    return copied


def in_order(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """The target of the node of the copy. ``order``: the dimensions, the outermost in memory first."""
    if order == tuple(range(tensor.dim())):
        return tensor.contiguous()      # what saved models become knows this, and nothing of other orders
    return torch.empty_permuted(tensor.shape, order, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
