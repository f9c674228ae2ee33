"""Compiled graphs that serve several captures of a function.

Captures may differ in what Python does while their graphs are equal: each side of a condition on a step counter, each
phase of a schedule of learning rates. The backend compiles such a graph once. Two graphs are equal if their nodes are,
with all constants (``sot/graph/written.py``), and if their inputs have the same metadata and share memory in the same
way.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from sot.codegen.build_graph import Graph
from sot.graph.written import Incomparable, constant, described, nodes_of, sharing
from sot.torch_compat.global_state import GlobalState


class EqualGraphs:
    """The compiled graphs that entries use, by what they were compiled from."""

    def __init__(self) -> None:
        self.made: WeakValueDictionary[Hashable, Callable[..., Any]] = WeakValueDictionary()
        self.facts: WeakKeyDictionary[Callable[..., Any], tuple[GlobalState, bool]] = WeakKeyDictionary()

    def find(self, key: Hashable) -> tuple[Callable[..., Any], bool] | None:
        """A compiled graph, and whether it returns more than the graph did. torch's state must be as at its
        compilation.
        """
        call = self.made.get(key) if key is not None else None
        if call is None:
            return None
        state, returns_more = self.facts[call]
        return (call, returns_more) if state.check() else None

    def keep(self, key: Hashable, call: Callable[..., Any], returns_more: bool) -> None:
        if key is None:
            return
        try:
            self.facts[call] = GlobalState(), returns_more
            self.made[key] = call
        except TypeError:
            pass        # it has no weak references


def key_of(graph: Graph, grad: bool) -> Hashable:
    """What the compiled form of a graph depends on, besides torch's state; None if that is not known."""
    if graph.has_data_sizes or graph.numpy or graph.has_generator or graph.asserted or graph.shows_leaves:
        return None
    try:
        inputs = tuple(map(described, graph.examples, graph.real))
        states = tuple((setter, constant(values, {}), undo[0], constant(undo[1], {}))
                       for setter, values, undo in graph.states)
        key = (inputs, sharing(graph.real), nodes_of(graph.module), states, graph.weights,
               grad, graph.turns_grad_on, graph.draws, graph.spent.leaves, graph.spent.is_known, graph.of_compilers)
        hash(key)
    except (Incomparable, TypeError):
        return None
    return key
