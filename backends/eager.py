"""The eager backend: the graph as it was captured, run by PyTorch one operation at a time.

Of ``cond`` and ``while_loop`` it makes Python's own ``if`` and ``while`` over the subgraphs. Torch's operations trace
their subgraphs at each call that needs gradients, and give zeros as the gradients of the branch that was not taken;
Python gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

Subgraph = Callable[..., Any]


def run_cond(test: torch.Tensor, if_true: Subgraph, if_false: Subgraph, operands: Sequence[Any]) -> Sequence[Any]:
    return if_true(*operands) if test else if_false(*operands)


def run_while(condition: Subgraph, body: Subgraph, carried: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
    while condition(*carried, *operands):
        carried = body(*carried, *operands)
    return carried


PLAIN: dict[Any, Callable[..., Any]] = {
    torch.ops.higher_order.cond: run_cond,
    torch.ops.higher_order.while_loop: run_while,
}


def eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return with_plain_control_flow(gm).forward


def with_plain_control_flow(gm: GraphModule) -> GraphModule:
    """The same graph with Python's ``if`` and ``while``: the graph itself, where it has no control flow."""
    if not any(gm.graph.find_nodes(op="call_function", target=target) for target in PLAIN):
        return gm
    subgraphs = {name: with_plain_control_flow(child) for name, child in gm.named_children()
                 if isinstance(child, GraphModule)}
    copy = torch.fx.Graph()
    copy.output(copy.graph_copy(gm.graph, {}))
    for node in copy.nodes:
        if node.op == "call_function" and node.target in PLAIN:
            node.target = PLAIN[node.target]
    return GraphModule(dict(gm.named_children()) | subgraphs, copy)
