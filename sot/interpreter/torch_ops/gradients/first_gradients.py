"""The first gradient of a leaf, as autograd makes it: ``.grad`` is the gradient itself if nothing else holds it and if
it has the layout of the leaf, or else a copy. The rules are those of ``accumulate_grad.h`` in torch.

The program sees the difference in ``.grad._version``. It also sees it where two gradients are views of one tensor and
nothing holds that tensor: autograd then lets them share memory.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sot.torch_compat.autograd_nodes import USES_BY_AUTOGRAD
from sot.torch_compat.inductor.own_functions import traced_by_its_arguments

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from sot.graph import GraphBuilder


@dataclass(frozen=True)
class Reached:
    """A tensor that autograd has reached in a backward pass, on the fakes."""
    gradient: torch.Tensor
    uses: int           # of the gradient, at that moment
    is_leaf: bool       # the program may hold the gradients of others


def known_tensors(builder: GraphBuilder) -> set[int]:
    """The ids of the fakes of the graph so far, which are alive."""
    return {id(node.meta.get("example_value")) for node in builder.graph.nodes}


def is_unheld(reached: Sequence[Reached], i: int, known: Container[int]) -> bool:
    """Whether nothing but the leaf holds its gradient when autograd reaches the leaf.

    Args:
        reached: the tensors of a backward pass, in autograd's order.
        i: the index of the leaf.
        known: the ids of the fakes of earlier tensors, which the program may hold.
    """
    gradient = reached[i].gradient
    if id(gradient) in known:
        return False
    # ``.grad`` of earlier leaves does not hold it: it is a copy, or else nothing held the gradient
    before = [each.gradient for each in reached[:i] if each.is_leaf]
    views = {id(other) for other in before if other._is_view() and other._base is gradient}
    return reached[i].uses - sum(other is gradient for other in before) - len(views) == USES_BY_AUTOGRAD


@traced_by_its_arguments
def first_gradient(leaf: Any, gradient: Any, is_unheld: bool) -> torch.Tensor:
    """The node of the graph: the gradient itself if nothing else holds it and its layout is the leaf's, or else a copy.
    The layout that autograd wants is the leaf's if the leaf is dense, and contiguous if it is not. A sparse gradient
    (of an embedding) stays sparse.
    """
    if gradient.layout is not torch.strided:
        return gradient.clone()
    if is_unheld and leaf.is_contiguous() and gradient.is_contiguous():
        return gradient.detach()
    made = torch.empty_like(leaf, requires_grad=False)
    if made.stride() != leaf.stride():      # the leaf is not dense
        is_right = gradient.is_contiguous()
        return gradient.detach() if is_unheld and is_right else gradient.clone(memory_format=torch.contiguous_format)
    pairs = zip(leaf.stride(), gradient.stride(), leaf.shape, strict=True)
    if is_unheld and all(size == 1 or mine == its for mine, its, size in pairs):
        return gradient.detach()
    return made.copy_(gradient)
