"""Views of new memory that a graph returns without a history, for example ``torch.arange(6).view(2, 3)``.

AOTAutograd makes them inside a function of autograd, or with gradients off. Autograd refuses to change such a view in
place by a tensor that requires a gradient. It takes the change of a view that the program has made with gradients on.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from sot.codegen.build_graph import Graph
from sot.torch_compat.tensors import creation_of, set_creation


def with_creation(compiled: Callable[..., Any], graph: Graph) -> Callable[..., Any]:
    """The compiled graph, whose results are marked as made in the mode in which the program makes them."""
    (output,) = graph.module.graph.find_nodes(op="output")
    values = [node.meta.get("example_value") if isinstance(node, fx.Node) else None for node in output.args[0]]
    modes = [(i, mode) for i, mode in enumerate(map(creation_of, values)) if mode is not None]

    def call(*args: Any) -> Any:
        results = compiled(*args)
        for i, mode in modes:
            set_creation(results[i], mode)
        return results
    return call if modes else compiled
