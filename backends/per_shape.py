"""Backends that know static shapes only, on graphs whose sizes are symbols: one compilation for each combination met.

Capture is not repeated, and neither are guards: a dictionary leads from the layout of the inputs to what was compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

LIMIT = 16  # of combinations; for others the graph is run as it is

Run = Callable[..., Any]


class PerShape:
    """Runs a graph of symbolic sizes by what a backend makes of it for static ones.

    Arguments:
        compile_graph: the backend.
        gm: the graph; an input is a tensor or a number.
    """

    def __init__(self, compile_graph: Callable[[GraphModule, Sequence[Any]], Run], gm: GraphModule) -> None:
        self.compile_graph, self.gm = compile_graph, gm
        self.made: dict[tuple, tuple[Run, list[int]]] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple((a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args)
        found = self.made.get(key)
        if found is None:
            if len(self.made) >= LIMIT:
                return self.gm.forward(*args)
            static, tensors = with_numbers(self.gm, args)
            found = self.made[key] = self.compile_graph(static, [args[i] for i in tensors]), tensors
        run, tensors = found
        return run(*[args[i] for i in tensors])


def with_numbers(gm: GraphModule, args: Sequence[Any]) -> tuple[GraphModule, list[int]]:
    """The graph with constants for its inputs that are numbers, and which of its inputs are left."""
    graph = copy.deepcopy(gm.graph)
    tensors = []
    for i, (node, value) in enumerate(zip(graph.find_nodes(op="placeholder"), args, strict=True)):
        node.meta.pop("example_value", None)
        if isinstance(value, torch.Tensor):
            tensors.append(i)
            continue
        for user in list(node.users):
            user.args, user.kwargs = map_arg((user.args, user.kwargs), replacing(node, value))
        graph.erase_node(node)
    return GraphModule(gm, graph), tensors


def replacing(node: Node, value: Any) -> Callable[[Node], Any]:
    return lambda n: value if n is node else n
