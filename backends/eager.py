"""The eager backend: PyTorch runs the captured graph one operation at a time.

It turns ``cond`` and ``while_loop`` into Python's ``if`` and ``while`` over the subgraphs. torch's operations trace
their subgraphs at each call that needs gradients, and return zeros as the gradients of the branch that was not taken;
Python returns none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from sot.graph.regions import if_else

Subgraph = Callable[..., Any]


def run_while(condition: Subgraph, body: Subgraph, carried: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
    while condition(*carried, *operands):
        carried = body(*carried, *operands)
    return carried


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
            node.target = PLAIN[node.target]
    return GraphModule(dict(gm.named_children()) | subgraphs, copy)
