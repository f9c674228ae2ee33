"""Gradients of compiled graphs as plain PyTorch has them.

AOTAutograd gives all results of a graph one node of autograd. Two things are lost. A weight that is only behind
results without a gradient gets zeros, where PyTorch leaves None; an optimizer with momentum or weight decay then
changes it. And a gradient with a history (``create_graph=True``) cannot be differentiated. So the node is asked before
its backward pass. It leaves out such weights. Gradients with a history are PyTorch's, which runs the graph again.

A third is lost where one result is computed from another one: of the gradient of the other one, autograd sees only what
comes from outside of the graph. So if that one has hooks, or retains its gradient, or ``torch.autograd.grad`` is asked
for its gradient, PyTorch runs the graph again, too. From then on it runs the graph as it is.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from sot import _hook
from sot.backends.errors import BackendWarning
from sot.backends.results.distinct import is_strided
from sot.interpreter.torch_ops.checkpoints import is_reentrant_checkpoint
from sot.support.random_states import kept_random_states, states_of_torch
from sot.torch_compat.autograd_nodes import (
    CALL,
    Gradients,
    ask_before_backward,
    ask_for_gradients,
    base_of,
    compiled_node,
    edge_of,
    edges_below,
    edges_inside,
    hooks_of,
    node_above,
    refused,
    wanted_edges,
    zeros_for,
)
from sot.torch_compat.global_state import autocast_states, in_autocast_states
from sot.torch_compat.tensors import storage_id, versions_of

Run = Callable[..., Any]
COPIED_ELEMENTS = 65_536        # at each call: counters and running statistics
RandomState = tuple[Callable[[Any], Any], Any]      # the function that sets it

PARTLY_SEEN = ("hooks, retain_grad() or torch.autograd.grad see only a part of the gradient of a result of a compiled "
               "graph from which another result is computed, in this call: the graph changes its inputs, or draws "
               "other random numbers than PyTorch, so it cannot run again. Later calls run the graph as it is")


def with_plain_gradients(compiled: Run, gm: GraphModule, draws_as_eager: bool) -> Run:
    """``compiled``, whose gradients are those of ``gm``. The nodes of ``gm`` have ``example_value``.
    ``draws_as_eager``: whether it draws the random numbers that ``gm`` would draw.
    """
    histories = Histories(gm, draws_as_eager)
    if not histories.below:
        return compiled

    def run(*inputs: Any) -> Any:
        if histories.are_seen:
            return gm(*inputs)
        states = states_of_torch() if histories.draws else ()
        before = histories.copy_changed(inputs)
        results = compiled(*inputs)
        node = histories.node_of(results)
        if node is not None:
            call = Call(histories, before, states, [(results[i].output_nr, results[i]) for i in histories.inner
                                            if results[i].grad_fn is node])
            ask_before_backward(node, call, backward)
            if call.inner:
                ask_for_gradients(whole_gradients)
        return results
    return run


class Histories:
    """What the results of a graph depend on.

    ``below`` has the inputs below each result that requires grad, by its index; it is empty if they are not known.
    ``is_repeatable``: whether the graph may run again on its inputs, those with the indices ``copied`` as they were
    before. ``draws``: whether it then has to draw the same random numbers again. ``inner``: the results from which
    others are computed. ``are_seen``: whether the program has looked at the gradients of such results.
    """

    def __init__(self, gm: GraphModule, draws_as_eager: bool) -> None:
        self.gm = gm
        self.autocast = autocast_states()
        fakes = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
        changed = {storage for node in gm.graph.nodes for storage in node.meta.get("changes", ())}
        tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
        draws = any(node.meta.get("draws") for node in gm.graph.nodes)
        self.draws = draws and draws_as_eager
        self.are_seen = False
        self.inner: list[int] = []
        self.below: dict[int, frozenset[int]] = {}
        self.views: set[int] = set()              # the results that are views of values inside of the graph, and
        self.of_bases: set[int] = set()           # those of them whose base has the compiled node
        self.places: dict[int, set[int]] = {}     # the results by their number at the compiled node; at the first run
        # none has a new history, or one that autograd does not show
        if not any(refused(t) or node_above(t) is not None and t._version for t in tensors):
            self.below = self.inputs_below(gm, fakes)
        if len(self.below) > 1:
            made = results_of(gm)
            inside = edges_inside(made.values())
            self.inner = [i for i, value in made.items() if edge_of(value) in inside]
        kept = {i: fake for i, fake in enumerate(fakes) if isinstance(fake, torch.Tensor) and (
            not is_strided(fake) or storage_id(fake) in changed)}
        self.copied = [*kept] if self.inner and can_be_copied(kept.values(), tensors) else []
        self.is_repeatable = self.draws == draws and len(self.copied) == len(kept) and not has_reentrant_checkpoints(gm)

    def copy_changed(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with copies of those that the graph changes, if it may have to run again."""
        if not self.copied:
            return inputs
        found = [*inputs]
        for i in self.copied:
            found[i] = inputs[i].clone()
        return found

    def inputs_below(self, gm: GraphModule, fakes: Sequence[Any]) -> dict[int, frozenset[int]]:
        given = {storage_id(fake) for fake in fakes if isinstance(fake, torch.Tensor) and is_strided(fake)}
        ends: dict[Any, set[int]] = defaultdict(set)
        for i, fake in enumerate(fakes):
            if isinstance(fake, torch.Tensor) and fake.requires_grad:
                ends[edge_of(fake)].add(i)
        found: dict[int, frozenset[int]] = {}
        for i, value in (results_of(gm) if ends else {}).items():
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


def results_of(gm: GraphModule) -> dict[int, torch.Tensor]:
    """The fake results with a history, by their index."""
    (output,) = gm.graph.find_nodes(op="output")
    nodes = output.args[0] if isinstance(output.args[0], (tuple, list)) else ()
    values = {i: node.meta.get("example_value") for i, node in enumerate(nodes)
              if isinstance(node, Node) and node.op != "placeholder"}
    return {i: v for i, v in values.items() if isinstance(v, torch.Tensor) and node_above(v) is not None}


def can_be_copied(changed: Iterable[torch.Tensor], inputs: Sequence[torch.Tensor]) -> bool:
    """Whether tensors may be copied at each call: they are small, and share no memory with other inputs."""
    changed = [*changed]
    if not all(is_strided(fake) and not fake.requires_grad and is_known(fake) for fake in changed):
        return False
    places = [storage_id(fake) for fake in inputs if is_strided(fake)]
    return sum(fake.numel() for fake in changed) <= COPIED_ELEMENTS and all(
        places.count(storage_id(fake)) == 1 for fake in changed)


def is_known(fake: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in fake.shape)


def has_reentrant_checkpoints(gm: GraphModule) -> bool:
    """Whether a node is a checkpoint through which only ``backward()`` goes: ``torch.autograd.grad`` refuses to."""
    return any(is_reentrant_checkpoint(node) for module in gm.modules() if isinstance(module, GraphModule)
               for node in module.graph.nodes)


class Call:
    """A call of a compiled graph. It holds the inputs for PyTorch's run of the graph, and the states of generators.

    ``inner``: the results from which others are computed, by their number at the node. ``hooks``: those of such
    results.
    """

    __slots__ = ("histories", "hooks", "inner", "inputs", "states", "versions")

    def __init__(self, histories: Histories, inputs: Sequence[Any], states: Sequence[RandomState],
                 inner: Sequence[tuple[int, torch.Tensor]]) -> None:
        self.histories, self.inputs, self.states = histories, inputs, states
        self.versions = versions_of(inputs) if histories.is_repeatable else None
        self.inner = {number: weakref.ref(result) for number, result in inner}
        self.hooks: dict[int, dict[int, Callable[..., Any]]] = {}

    def hides(self, number: int) -> bool:
        """Whether autograd sees only a part of the gradient of the result with this number."""
        return number in self.inner

    def takes_hooks(self, result: torch.Tensor) -> bool:
        """Whether this call, and not autograd, calls the hooks that a result has got."""
        if result.output_nr not in self.inner:
            return False
        if not self.can_run_again():
            warnings.warn(PARTLY_SEEN, BackendWarning, stacklevel=4)
            self.histories.are_seen = True
            return False
        self.hooks[result.output_nr] = hooks_of(result)
        return True

    def seen(self) -> dict[int, torch.Tensor | None]:
        """The numbers of results whose gradients the program sees, with those that retain them."""
        retaining = {number: result for number, ref in self.inner.items()
                     if (result := ref()) is not None and result.retains_grad}
        return {number: retaining.get(number) for number in (*self.hooks, *retaining)
                if number in retaining or self.hooks[number]}

    def can_run_again(self) -> bool:
        return self.versions is not None and self.versions == versions_of(self.inputs)

    def wanted(self, node: Any) -> list[tuple[int, list[int]]]:
        """The arguments of the node that get a gradient, each with the inputs of the graph that it is."""
        inputs: dict[Any, list[int]] = defaultdict(list)
        for i, given in enumerate(self.inputs):
            if isinstance(given, torch.Tensor) and given.requires_grad:
                inputs[edge_of(given)].append(i)
        return [(place, inputs.get(edge, [])) for place, edge in wanted_edges(node)]


def backward(node: Any, call: Call, gradients: Gradients, compiled: Callable[[Gradients], Any]) -> Any:
    """The backward pass of a compiled node. A result without a gradient has None."""
    if seen := call.seen():
        call.histories.are_seen = True
    if (torch.is_grad_enabled() or seen) and (found := PLAIN_GRADIENTS(node, call, gradients, seen)) is not None:
        return found
    if seen:
        warnings.warn(PARTLY_SEEN, BackendWarning, stacklevel=2)
    given = given_in(gradients)
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


def given_in(gradients: Gradients) -> list[int]:
    return [i for i, gradient in enumerate(gradients) if gradient is not None]


def reached(call: Call, given: Sequence[int]) -> frozenset[int] | None:
    """The inputs below the results that have a gradient; None if these results are not known."""
    places, below = call.histories.places, call.histories.below
    if not places.keys() >= set(given):
        return None
    return frozenset().union(*(below[i] for number in given for i in places[number]))


def plain_gradients(node: Any, call: Call, gradients: Gradients, seen: Mapping[int, torch.Tensor | None]) -> Any:
    """The gradients by PyTorch, with their history where autograd wants it; None if the graph cannot run again as it
    ran before. ``seen``: the results whose gradients the program sees (``Call.seen``).
    """
    histories, wanted = call.histories, call.wanted(node)
    given = given_in(gradients)
    if not call.can_run_again() or reached(call, given) is None or not all(inputs for _, inputs in wanted):
        return None
    with_history = torch.is_grad_enabled()
    inputs, results = run_again(call)
    through = [(histories.made(results, i), gradients[i]) for i in given]
    if any(gradient is None or result.shape != gradient.shape for result, gradient in through):
        return None
    shown = {number: histories.made(results, number) for number in seen}
    for number, result in shown.items():
        for hook in call.hooks.get(number, {}).values():
            result.register_hook(hook)
        result.retain_grad()
    found: list[Any] = [None] * len(node.needs_input_grad)
    targets = [(place, inputs[i]) for place, same in wanted for i in same]
    made = torch.autograd.grad([r for r, _ in through], [target for _, target in targets], [g for _, g in through],
                               create_graph=with_history, allow_unused=True)
    for (place, _), gradient in zip(targets, made, strict=True):
        if gradient is not None:
            found[place] = gradient if found[place] is None else found[place] + gradient
    for number, retaining in seen.items():
        if retaining is not None:
            set_whole_gradient(retaining, gradients[number], shown[number].grad)
    return tuple(found)


def run_again(call: Call) -> tuple[list[Any], Sequence[Any]]:
    """What the graph returns as it is, with the inputs: hooks of those of the call are called when gradients arrive
    there.
    """
    histories = call.histories
    with in_autocast_states(histories.autocast), torch.enable_grad():
        inputs = [value.view_as(value) if isinstance(value, torch.Tensor) and value.requires_grad else value
                  for value in call.inputs]
        with kept_random_states():
            for set_state, state in call.states:
                set_state(state)
            return inputs, histories.gm(*histories.copy_changed(inputs))


def whole_gradients(call: Call, gradients: Gradients, numbers: Collection[int], create_graph: bool,
                    ) -> dict[int, torch.Tensor | None]:
    """The gradients of results from which others are computed, for ``torch.autograd.grad``. ``gradients`` has those of
    all results, as far as they come from outside of the graph.
    """
    if not (given := given_in(gradients)):
        return {}
    call.histories.are_seen = True
    if call.can_run_again() and reached(call, given) is not None:
        return PLAIN_GRADIENTS_OF_RESULTS(call, gradients, numbers, create_graph)
    warnings.warn(PARTLY_SEEN, BackendWarning, stacklevel=4)
    return {}


def gradients_of_results(call: Call, gradients: Gradients, numbers: Collection[int], create_graph: bool,
                         ) -> dict[int, torch.Tensor | None]:
    """The same by PyTorch, which runs the graph again."""
    histories, given = call.histories, given_in(gradients)
    _, results = run_again(call)
    for number, hooks in call.hooks.items():
        for hook in hooks.values():
            histories.made(results, number).register_hook(hook)
    made = torch.autograd.grad([histories.made(results, i) for i in given],
                               [histories.made(results, number) for number in numbers], [gradients[i] for i in given],
                               create_graph=create_graph, allow_unused=True)
    return dict(zip(numbers, made, strict=True))


def set_whole_gradient(result: torch.Tensor, part: torch.Tensor | None, whole: torch.Tensor | None) -> None:
    """Replace in ``.grad`` the part of the gradient that autograd has added to it."""
    if part is None or result.grad is None or torch.equal(result.grad, part):
        before = result.grad if part is None else None
    else:
        before = result.grad - part
    result.grad = whole if before is None or whole is None else before + whole


# A capture of what it runs would get the graph compiled once more, and ask for its gradients again, without end.
PLAIN_GRADIENTS, PLAIN_GRADIENTS_OF_RESULTS = _hook.plain(plain_gradients), _hook.plain(gradients_of_results)
