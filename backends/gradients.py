"""Gradients of compiled graphs as plain PyTorch has them.

AOTAutograd gives all results of a graph one node of autograd. Two things are lost. A weight that is only behind
results without a gradient gets zeros, where PyTorch leaves None; an optimizer with momentum or weight decay then
changes it. And a gradient with a history (``create_graph=True``) cannot be differentiated. So the node is asked before
its backward pass. It leaves out such weights. Gradients with a history are PyTorch's, which runs the graph again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from sot import _hook
from sot.backends.distinct_results import is_strided
from sot.interpreter.torch_ops.checkpoints import is_reentrant_checkpoint
from sot.torch_compat.autograd_nodes import (
    CALL,
    Gradients,
    ask_before_backward,
    base_of,
    compiled_node,
    edge_of,
    edges_below,
    node_above,
    wanted_edges,
    zeros_for,
)
from sot.torch_compat.global_state import autocast_states, in_autocast_states
from sot.torch_compat.tensors import storage_id

Run = Callable[..., Any]


def with_plain_gradients(compiled: Run, gm: GraphModule) -> Run:
    """``compiled``, whose gradients are those of ``gm``. The nodes of ``gm`` have ``example_value``."""
    histories = Histories(gm)
    if not histories.below:
        return compiled

    def run(*inputs: Any) -> Any:
        results = compiled(*inputs)
        node = histories.node_of(results)
        if node is not None:
            ask_before_backward(node, Call(histories, inputs), backward)
        return results
    return run


class Histories:
    """What the results of a graph depend on.

    ``below`` has the inputs below each result that requires grad, by its index; it is empty if they are not known.
    ``is_repeatable``: whether the graph may run again on its inputs.
    """

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.autocast = autocast_states()
        fakes = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
        changed = {storage for node in gm.graph.nodes for storage in node.meta.get("changes", ())}
        tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
        self.is_repeatable = not has_reentrant_checkpoints(gm) and not any(
            node.meta.get("draws") for node in gm.graph.nodes) and all(
            is_strided(fake) and storage_id(fake) not in changed for fake in tensors)
        self.below: dict[int, frozenset[int]] = {}
        self.views: set[int] = set()              # the results that are views of values inside of the graph, and
        self.of_bases: set[int] = set()           # those of them whose base has the compiled node
        self.places: dict[int, set[int]] = {}     # the results by their number at the compiled node; at the first run
        if not any(node_above(fake) is not None and fake._version for fake in tensors):     # none has a new history
            self.below = self.inputs_below(gm, fakes)

    def inputs_below(self, gm: GraphModule, fakes: Sequence[Any]) -> dict[int, frozenset[int]]:
        given = {storage_id(fake) for fake in fakes if isinstance(fake, torch.Tensor) and is_strided(fake)}
        ends: dict[Any, set[int]] = defaultdict(set)
        for i, fake in enumerate(fakes):
            if isinstance(fake, torch.Tensor) and fake.requires_grad:
                ends[edge_of(fake)].add(i)
        (output,) = gm.graph.find_nodes(op="output")
        results = output.args[0] if isinstance(output.args[0], (tuple, list)) else ()
        found: dict[int, frozenset[int]] = {}
        for i, node in enumerate(results if ends else ()):
            value = node.meta.get("example_value") if isinstance(node, Node) and node.op != "placeholder" else None
            if isinstance(value, torch.Tensor) and node_above(value) is not None:
                below = {*edges_below(value, ends)}
                if not is_strided(value) or not below or not below <= ends.keys():
                    return {}
                found[i] = frozenset(place for edge in below for place in ends[edge])
                if base_of(value) is not None and storage_id(value) not in given:
                    self.views.add(i)
        return found

    def node_of(self, results: Sequence[Any]) -> Any:
        """The node of autograd that a call of the compiled graph has made; None if it made none, or several."""
        if self.places:
            return self.made(results, next(iter(self.places))).grad_fn
        self.of_bases = {i for i in self.views if compiled_node(results[i]) is None}
        tensors = {i: self.through(results, i) for i in self.below}
        nodes = {i: compiled_node(tensor) for i, tensor in tensors.items()}
        made = {node for node in nodes.values() if node is not None and not hasattr(node, CALL)}
        if len(made) != 1:
            return None
        (node,) = made
        places = defaultdict(set)
        for i, above in nodes.items():
            if above is node:
                places[tensors[i].output_nr].add(i)
        self.places = dict(places)
        return node

    def made(self, results: Sequence[Any], number: int) -> torch.Tensor:
        """The tensor with this number at the compiled node."""
        return self.through(results, min(self.places[number]))

    def through(self, results: Sequence[Any], i: int) -> torch.Tensor:
        """The tensor through which the gradient of a result goes. AOTAutograd makes views after the graph."""
        result: torch.Tensor = results[i]
        base = base_of(result) if i in self.of_bases else None
        return result if base is None else base


def has_reentrant_checkpoints(gm: GraphModule) -> bool:
    """Whether a node is a checkpoint through which only ``backward()`` goes: ``torch.autograd.grad`` refuses to."""
    return any(is_reentrant_checkpoint(node) for module in gm.modules() if isinstance(module, GraphModule)
               for node in module.graph.nodes)


class Call:
    """A call of a compiled graph. It holds the inputs for PyTorch's run of the graph."""

    __slots__ = ("histories", "inputs", "versions")

    def __init__(self, histories: Histories, inputs: tuple) -> None:
        self.histories, self.inputs = histories, inputs
        self.versions = versions_of(inputs) if histories.is_repeatable else None

    def wanted(self, node: Any) -> list[tuple[int, list[int]]]:
        """The arguments of the node that get a gradient, each with the inputs of the graph that it is."""
        inputs: dict[Any, list[int]] = defaultdict(list)
        for i, given in enumerate(self.inputs):
            if isinstance(given, torch.Tensor) and given.requires_grad:
                inputs[edge_of(given)].append(i)
        return [(place, inputs.get(edge, [])) for place, edge in wanted_edges(node)]


def versions_of(inputs: Sequence[Any]) -> list[int]:
    return [given._version for given in inputs if isinstance(given, torch.Tensor) and not given.is_inference()]


def backward(node: Any, call: Call, gradients: Gradients, compiled: Callable[[Gradients], Any]) -> Any:
    """The backward pass of a compiled node. A result without a gradient has None."""
    if torch.is_grad_enabled() and (found := PLAIN_GRADIENTS(node, call, gradients)) is not None:
        return found
    given = [i for i, gradient in enumerate(gradients) if gradient is not None]
    places = call.histories.places
    if len(given) == len(gradients):
        return compiled(gradients)
    for i, gradient in enumerate(gradients):
        if gradient is None:
            gradients[i] = zeros_for(node, i, i in places)
    behind = reached(call, given)
    without = [] if behind is None else [place for place, inputs in call.wanted(node)
                                         if inputs and behind.isdisjoint(inputs)]
    found = list(compiled(gradients))
    for place in without:
        found[place] = None
    return tuple(found)


def reached(call: Call, given: Sequence[int]) -> frozenset[int] | None:
    """The inputs below the results that have a gradient; None if these results are not known."""
    places, below = call.histories.places, call.histories.below
    if not places.keys() >= set(given):
        return None
    return frozenset().union(*(below[i] for number in given for i in places[number]))


def plain_gradients(node: Any, call: Call, gradients: Gradients) -> Any:
    """The gradients with their history; None if the graph cannot run again as it ran before."""
    histories, wanted = call.histories, call.wanted(node)
    given = [i for i, gradient in enumerate(gradients) if gradient is not None]
    if call.versions is None or reached(call, given) is None or call.versions != versions_of(call.inputs) or not all(
            inputs for _, inputs in wanted):
        return None
    # Hooks of the inputs are called when the gradients arrive there.
    inputs = [value.view_as(value) if isinstance(value, torch.Tensor) and value.requires_grad else value
              for value in call.inputs]
    with in_autocast_states(histories.autocast):
        results = histories.gm(*inputs)
    through = [(histories.made(results, i), gradients[i]) for i in given]
    if any(gradient is None or result.shape != gradient.shape for result, gradient in through):
        return None
    found: list[Any] = [None] * len(node.needs_input_grad)
    targets = [(place, inputs[i]) for place, same in wanted for i in same]
    made = torch.autograd.grad([r for r, _ in through], [target for _, target in targets], [g for _, g in through],
                               create_graph=True, allow_unused=True)
    for (place, _), gradient in zip(targets, made, strict=True):
        if gradient is not None:
            found[place] = gradient if found[place] is None else found[place] + gradient
    return tuple(found)


# A capture of what it runs would get the graph compiled once more, and ask for its gradients again, without end.
PLAIN_GRADIENTS = _hook.plain(plain_gradients)
