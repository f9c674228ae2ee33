"""Compares a compiled graph with its operations run one by one, and finds the smallest part that differs."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from sot.backends import Backend, call_backend
from sot.checking.compare import copied, difference, first, gradients
from sot.torch_compat.global_state import random_state, set_random_state


def graph_difference(call: Callable[..., Any], module: GraphModule, inputs: Sequence[Any]) -> str | None:
    """Run both on copies of the inputs: outputs, changes of the inputs, gradients."""
    random = random_state()
    theirs, mine = copied(list(inputs)), copied(list(inputs))
    want = module(*theirs)
    set_random_state(random)
    got = call(*mine)
    set_random_state(random)
    return first((
        difference(got, want, "the output"),
        difference(mine, theirs, "the inputs afterwards"),
        difference(gradients(got, only_tensors(mine)), gradients(want, only_tensors(theirs)), "the gradients"),
    ))


def only_tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor)]


# ---- the smallest piece -----------------------------------------------------------------------------------
class Values(Interpreter):
    """Runs a graph and keeps copies of its nodes' results."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.kept: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.kept[n] = copied(result)
        return result


def smallest(module: GraphModule, inputs: Sequence[Any], backend: Backend) -> tuple[GraphModule, list[Any]] | None:
    """A graph with as few operations as show a difference, with its inputs; None if no part alone does.

    Bisection finds the first operation whose value differs. Then earlier operations are added one by one, until the
    part alone shows the difference.
    """
    operations = [n for n in module.graph.nodes if n.op.startswith("call_")]
    random = random_state()
    values = Values(module)
    values.run(*copied(list(inputs)))
    set_random_state(random)

    def differs(start: int, end: int, everywhere: bool = False) -> tuple[GraphModule, list[Any]] | None:
        nodes = operations[start:end + 1]
        piece, given = extract(module, nodes, nodes if everywhere else nodes[-1:], values.kept)
        try:
            found = graph_difference(call_backend(backend, piece, copied(given)), piece, given)
        except Exception:       # a different failure
            return None
        return (piece, given) if found else None

    low, high = 0, len(operations) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(0, middle, everywhere=True) else (middle + 1, high)
    return next((found for start in range(low, -1, -1) if (found := differs(start, low))), None)


def extract(module: GraphModule, nodes: Sequence[Node], outputs: Sequence[Node],
            values: dict[Node, Any]) -> tuple[GraphModule, list[Any]]:
    """These nodes as a graph of their own, some of them its outputs; what they take from others are its inputs."""
    graph, copies, given = Graph(), dict[Node, Node](), []
    for node in nodes:
        for source in node.all_input_nodes:
            if source not in copies and source.op != "get_attr":
                copies[source] = graph.placeholder(source.name)
                copies[source].meta = dict(source.meta)
                given.append(copied(values[source]))
            elif source not in copies:
                copies[source] = graph.node_copy(source)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    return GraphModule(module, graph), given
