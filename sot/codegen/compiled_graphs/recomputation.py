"""Checkpoints of a graph that goes backward itself: its own backward pass computes their functions again.

AOTAutograd recomputes marked operations where it cuts a graph into a forward and a backward graph. A training step is
one graph and is not cut. So the trace of such a checkpoint is a function with a gradient of its own: the gradient runs
the subgraph again, on the inputs, and goes backward through that. Random draws, and what a policy of selective
checkpoints keeps, are not computed again: the second run takes the results of the first.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from sot.codegen.compiled_graphs.pieces import tensors_of
from sot.codegen.compiled_graphs.unused_operations import results_of
from sot.interpreter.torch_ops.checkpoints import CONTEXT, TRACED, run_checkpointed
from sot.torch_compat.global_state import autocast_states, in_autocast_states
from sot.torch_compat.hooks import saving_policy

Operation = Callable[..., Any]
COMPUTED_AGAIN = object()       # in a log of results


def recompute_inside(module: fx.GraphModule) -> None:
    """Let the checkpoints of a graph with ``torch.autograd.grad`` be computed again in its backward pass.

    Gradients of gradients would need the first run again, so such a graph computes nothing twice.
    """
    twice = any(node.kwargs.get("create_graph") for node in module.graph.find_nodes(
        op="call_function", target=torch.autograd.grad))
    for subgraph, _ in checkpoints_of(module):
        subgraph.meta[TRACED] = computed_once if twice else recomputed_inside


def compute_once_without_gradients(module: fx.GraphModule) -> None:
    """Let the checkpoints through which no backward pass can go be plain parts of the graph. AOTAutograd refuses random
    draws in a checkpoint of a graph that it does not cut.
    """
    changing = (node for node in module.graph.nodes if "changes" in node.meta)
    goes_backward = any(map(needs_gradient, (*results_of(module), *changing)))
    for subgraph, node in checkpoints_of(module):
        if not (goes_backward and needs_gradient(node)):
            subgraph.meta[TRACED] = computed_once


def checkpoints_of(module: fx.GraphModule) -> Iterator[tuple[fx.GraphModule, fx.Node]]:
    """The subgraphs of checkpoints, each with the node that runs it."""
    for part in module.modules():
        for node in part.graph.find_nodes(op="call_function", target=run_checkpointed) if isinstance(
                part, fx.GraphModule) else ():
            yield getattr(part, node.args[0].target), node


def needs_gradient(node: fx.Node) -> bool:
    return any(tensor.requires_grad for tensor in tensors_of(node))


def computed_once(subgraph: fx.GraphModule, *given: torch.Tensor) -> Any:
    return subgraph(*given)


def recomputed_inside(subgraph: fx.GraphModule, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return Recomputed.apply(Runs(subgraph), *given)


class Runs:
    """The two runs of a subgraph: the second is in autocast's states of the first, and takes from its log."""

    def __init__(self, subgraph: fx.GraphModule) -> None:
        self.subgraph = subgraph
        make = subgraph.meta.get(CONTEXT)
        self.keeps = saving_policy(make()) if make is not None else None
        self.log: list[Any] = []
        self.autocast = autocast_states()

    def first(self, given: Sequence[torch.Tensor]) -> Any:
        with torch.enable_grad(), Kept(self.log, self.keeps):
            return self.subgraph(*given)

    def second(self, given: Sequence[torch.Tensor]) -> Any:
        with torch.enable_grad(), in_autocast_states(self.autocast), Taken(self.log):
            return self.subgraph(*given)


class Recomputed(torch.autograd.Function):
    """The results of a subgraph. For the backward pass only its inputs are kept."""

    @staticmethod
    def forward(ctx: Any, runs: Runs, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.runs = runs
        ctx.save_for_backward(*given)
        ctx.set_materialize_grads(False)
        made = runs.first(leaves(given))
        results = tuple(result.detach() for result in made)
        ctx.mark_non_differentiable(*(r for r, inside in zip(results, made, strict=True) if not inside.requires_grad))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        inside = leaves(ctx.saved_tensors)
        results = ctx.runs.second(inside)
        through = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
        wanted = [tensor for tensor in inside if tensor.requires_grad]
        found = iter(torch.autograd.grad([r for r, _ in through], wanted, [g for _, g in through], allow_unused=True)
                     if through and wanted else [None] * len(wanted))
        return None, *(next(found) if tensor.requires_grad else None for tensor in inside)


def leaves(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors without their histories."""
    return [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in given]


class Kept(TorchDispatchMode):
    """Logs the results that the second run takes: random draws, and those that ``keeps`` asks for."""

    def __init__(self, log: list[Any], keeps: Callable[..., bool] | None) -> None:
        super().__init__()
        self.log, self.keeps = log, keeps

    def __torch_dispatch__(self, func: Operation, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        results = func(*args, **kwargs or {})
        kept = draws(func) or self.keeps is not None and self.keeps(func, args, kwargs or {}, results)
        self.log.append(copies(results) if kept else COMPUTED_AGAIN)
        return results


class Taken(TorchDispatchMode):
    """Runs the operations of a log again, except those whose results it has."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        self.log = iter(log)

    def __torch_dispatch__(self, func: Operation, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        taken = next(self.log)
        if taken is COMPUTED_AGAIN:
            return func(*args, **kwargs or {})
        if not func._schema.is_mutable:     # type: ignore[attr-defined]
            return copies(taken)
        if [changed.name for changed in func._schema.arguments if changed.is_write] != ["self"]:  # type: ignore
            raise NotImplementedError(f"{func} changes more than the tensor that it is called on")
        return args[0].copy_(taken)


def draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def copies(results: Any) -> Any:
    """Results may be changed in place later."""
    return tree_map_only(torch.Tensor, torch.clone, results)
