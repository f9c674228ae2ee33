"""Changes at the end of a graph that only a backend that compiles needs.

AOTAutograd removes operations that no result needs, differentiates each result that requires grad, and before torch
2.13 refuses a graph that leaves autocast changed. A backend may also return the graph as it is. Then the changes are
undone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import fx


class GraphEnd:
    """The end of a graph, which can be changed and then restored."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        (self.output,) = module.graph.find_nodes(op="output")
        self.module, self.before = module, self.output.args[0]
        self.made: list[fx.Node] = []

    def detach(self, which: Iterable[int]) -> None:
        """Detach the results with these indices."""
        results = [*self.output.args[0]]
        for i in which:
            results[i] = self.detached(results[i])
        self.set_results(results)

    def also_return(self, nodes: Iterable[fx.Node]) -> None:
        """Return these tensors, too, detached."""
        self.set_results([*self.output.args[0], *map(self.detached, nodes)])

    def call(self, calls: Iterable[tuple[Callable[..., object], tuple]]) -> None:
        """Call these functions last."""
        with self.module.graph.inserting_before(self.output):
            self.made += [self.module.graph.call_function(function, args) for function, args in calls]
        self.module.recompile()

    def detached(self, node: fx.Node) -> fx.Node:
        with self.module.graph.inserting_before(self.output):
            made = self.module.graph.call_method("detach", (node,))
        made.meta["example_value"] = node.meta["example_value"].detach()
        self.made.append(made)
        return made

    def set_results(self, results: Iterable[fx.Node]) -> None:
        self.output.args = (tuple(results),)
        self.module.recompile()

    def restore(self) -> None:
        """Undo all changes."""
        self.output.args = (self.before,)
        for node in self.made:
            self.module.graph.erase_node(node)
        self.module.recompile()
