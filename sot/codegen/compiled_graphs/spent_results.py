"""Results of a graph that the graph itself has gone backward through, such as a loss after ``loss.backward()``.

In the program they require grad, and a second backward pass through them raises. A backend that compiles
differentiates every result that requires grad, which would raise during compilation. So it gets a graph whose results
are detached there. Its results are then attached to the leaves again, by a node of autograd that raises as PyTorch's
own does.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sot.graph import GraphBuilder, TensorRef
from sot.torch_compat.autograd_nodes import spent_leaves

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward.")


@dataclass(frozen=True)
class Spent:
    """The results of a graph with nothing left to differentiate.

    Arguments:
        leaves: for each such result, by its index, the inputs of the graph that are leaves below it.
        is_known: whether they may be treated like this. They may not if an input has such a history, or if the fake
            tensors
            describe a gradient that capture has undone.
    """

    leaves: tuple[tuple[int, tuple[int, ...]], ...] = ()
    is_known: bool = True

    def __bool__(self) -> bool:
        return bool(self.leaves) or not self.is_known


def has_gradients(module: torch.fx.GraphModule) -> bool:
    return bool(module.graph.find_nodes(op="call_function", target=torch.autograd.grad))


def spent_of(builder: GraphBuilder, module: torch.fx.GraphModule, results: Sequence[TensorRef]) -> Spent:
    """The spent results of a finished graph."""
    if not has_gradients(module):
        return Spent()
    places = {id(ref.fake): i for i, ref in enumerate(builder.inputs)}
    found, is_known = [], True
    for i, ref in enumerate(results):
        below = spent_leaves(ref.fake) if isinstance(ref.fake, torch.Tensor) else None
        if below is not None:
            found.append((i, tuple(places[id(leaf)] for leaf in below if id(leaf) in places)))
            is_known = is_known and ref.real is None and bool(found[-1][1])
    is_known = is_known and not any(spent_leaves(ref.fake) is not None for ref in builder.changed_inputs())
    return Spent(tuple(found), is_known and not (found and builder.freed_in_vain))


class SpentBackward(torch.autograd.Function):
    """The node of a result whose history has been freed."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(result)      # so the result stays the same tensor
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(SECOND_TIME)


def with_spent_results(compiled: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
    """A compiled graph with detached results, which require grad again."""
    def call(*args: Any) -> Any:
        results = list(compiled(*args))
        with torch.enable_grad():
            bases: dict[int, torch.Tensor] = {}
            for i, leaves in sorted(spent.leaves, key=lambda which: results[which[0]]._is_view()):
                given = results[i]
                base = bases.get(id(given._base))
                if base is not None:
                    results[i] = base.as_strided(given.shape, given.stride(), given.storage_offset())
                else:
                    results[i] = bases[id(given)] = SpentBackward.apply(own(given), *(args[at] for at in leaves))
        return results
    return call


def own(result: torch.Tensor) -> torch.Tensor:
    """A result that autograd allows to be changed. A compiler may return a view of a tensor that it does not
    return.
    """
    if not result._is_view():
        return result
    return result.new_empty(0).set_(result.untyped_storage(), result.storage_offset(), result.shape, result.stride())
