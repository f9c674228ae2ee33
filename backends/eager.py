"""The eager backend: PyTorch runs the captured graph one operation at a time.

It turns ``cond`` and ``while_loop`` into Python's ``if`` and ``while`` over the subgraphs. torch's operations trace
their subgraphs at each call that needs gradients, and return zeros as the gradients of the branch that was not taken;
Python returns none. A ``torch.cond`` that the program has written returns zeros here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from sot.graph.regions import WRITTEN, if_else

Subgraph = Callable[..., Any]


def run_while(condition: Subgraph, body: Subgraph, carried: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
    while condition(*carried, *operands):
        carried = body(*carried, *operands)
    return carried


class AllOrNone(torch.autograd.Function):
    """Tensors that all have a gradient if one of them has: zeros, where nothing is computed from one."""

    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t.view_as(t) for t in given)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gradients


def run_cond(test: Any, if_true: Subgraph, if_false: Subgraph, operands: Sequence[Any]) -> Sequence[Any]:
    """What ``torch.cond`` returns: results that require grad, and have a gradient of every operand, if one does."""
    def needs(t: Any) -> bool:
        return isinstance(t, torch.Tensor) and t.requires_grad
    if not torch.is_grad_enabled() or not any(map(needs, operands)):
        return if_else(test, if_true, if_false, operands)
    tied = AllOrNone.apply(*filter(needs, operands))
    given = iter(tied)
    results = if_else(test, if_true, if_false, [next(given) if needs(t) else t for t in operands])
    # A copy, because autograd refuses changes in place of views that one function returns.
    return tuple(t if t.requires_grad or not (t.is_floating_point() or t.is_complex())
                 else AllOrNone.apply(t, *tied)[0].clone() for t in results)


PLAIN: dict[Any, Callable[..., Any]] = {
    torch.ops.higher_order.cond: if_else,
    torch.ops.higher_order.while_loop: run_while,
}


def eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return with_plain_control_flow(gm).forward


def with_plain_control_flow(gm: GraphModule) -> GraphModule:
    """The same graph with Python's ``if`` and ``while``. Without control flow it is the graph itself."""
    if not any(gm.graph.find_nodes(op="call_function", target=target) for target in PLAIN):
        return gm
    subgraphs = {name: with_plain_control_flow(child) for name, child in gm.named_children()
                 if isinstance(child, GraphModule)}
    copy = torch.fx.Graph()
    copy.output(copy.graph_copy(gm.graph, {}))
    for node in copy.nodes:
        if node.op == "call_function" and node.target in PLAIN:
            node.target = run_cond if WRITTEN in node.meta else PLAIN[node.target]
    return GraphModule(dict(gm.named_children()) | subgraphs, copy)
