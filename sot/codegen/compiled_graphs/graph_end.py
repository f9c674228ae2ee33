"""Changes at the end of a graph that only a backend that compiles needs.

AOTAutograd removes operations that no result needs, differentiates each result that requires grad, and before torch
2.13 refuses a graph that leaves autocast changed. A backend may also return the graph as it is. Then the changes are
undone.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from sot.torch_compat.global_state import SET_GRAD
from sot.torch_compat.tensors import storage_id


class GraphEnd:
    """The end of a graph, which can be changed and then restored."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        (self.output,) = module.graph.find_nodes(op="output")
        self.module, self.before = module, self.output.args[0]
        self.made: list[fx.Node] = []
        self.replaced: list[tuple[fx.Node, Any, Any]] = []

    def detach(self, which: Iterable[int]) -> None:
        """Detach the results with these indices."""
        results = [*self.output.args[0]]
        for i in which:
            results[i] = self.detached(results[i])
        self.set_results(results)

    def also_return(self, nodes: Iterable[fx.Node]) -> None:
        """Return these tensors, too, detached, and these numbers. Of several results the first tensor is returned."""
        self.set_results([*self.output.args[0], *map(self.kept, nodes)])

    def kept(self, node: fx.Node) -> fx.Node:
        made = node.meta["example_value"]
        if isinstance(made, (tuple, list)):
            place = next(i for i, part in enumerate(made) if isinstance(part, torch.Tensor))
            with self.module.graph.inserting_before(self.output):
                node = self.module.graph.call_function(operator.getitem, (node, place))
            node.meta["example_value"] = made = made[place]
            self.made.append(node)
        return self.detached(node) if isinstance(made, torch.Tensor) else node

    def call(self, calls: Iterable[tuple[Callable[..., object], tuple]]) -> None:
        """Call these functions last."""
        with self.module.graph.inserting_before(self.output):
            self.made += [self.module.graph.call_function(function, args) for function, args in calls]
        self.module.recompile()

    def put_back(self, asserted: Iterable[fx.Node], inputs: Iterable[fx.Node]) -> None:
        """Return the conditions of assertions in their place, and put inputs back if one does not hold."""
        graph, conditions, inputs = self.module.graph, [*asserted], [*inputs]
        for node in conditions:
            self.replaced.append((node, node.target, node.args))
            condition, = node.all_input_nodes
            node.target, node.args = torch.ne, (condition, 0)
            node.meta["example_value"] = condition.meta["example_value"] != 0
        places = [(self.last_change(given, conditions), given) for given in inputs]
        with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
            before = {given: self.call_method("clone", self.call_method("detach", given)) for given in inputs}
        for place in dict.fromkeys(place for place, _ in places):
            mode = grad_mode(place)
            with graph.inserting_after(place):
                after = graph.call_function(SET_GRAD, (mode,))
            with graph.inserting_before(after):
                self.made.append(graph.call_function(SET_GRAD, (False,)))
                holds = functools.reduce(functools.partial(self.call_method, "logical_and"), conditions)
                for given in (given for at, given in places if at is place):
                    kept = self.call_method("where", given, holds, before[given])
                    node = self.call_method("copy_", given, kept)
                    node.meta["changes"] = {storage_id(given.meta["example_value"])}
            self.made.append(after)
        self.set_results([*self.output.args[0], *conditions])

    def last_change(self, given: fx.Node, conditions: Iterable[fx.Node]) -> fx.Node:
        """The last node that changes an input, or computes a condition. What follows may save the input for the
        backward pass, so it is put back there, and not at the end.
        """
        memory = storage_id(given.meta["example_value"])
        changing = [node for node in self.module.graph.nodes if memory in node.meta.get("changes", ())]
        if not changing:
            return self.output.prev
        return next(node for node in reversed(self.module.graph.nodes) if node in {*conditions, *changing})

    def call_method(self, name: str, *args: fx.Node) -> fx.Node:
        made = self.module.graph.call_method(name, args)
        with torch.no_grad():
            made.meta["example_value"] = getattr(torch.Tensor, name)(*(node.meta["example_value"] for node in args))
        self.made.append(made)
        return made

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
        for node, target, args in self.replaced:
            node.target, node.args = target, args
        for node in reversed(self.made):
            self.module.graph.erase_node(node)
        self.module.recompile()


def grad_mode(place: fx.Node) -> bool:
    """Whether gradients are on after a node."""
    node = place
    while node.op not in ("placeholder", "root"):
        if node.target is SET_GRAD:
            return bool(node.args[0])
        node = node.prev
    return torch.is_grad_enabled()
