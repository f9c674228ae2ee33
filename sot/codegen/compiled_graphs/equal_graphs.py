"""Compiled graphs that serve several captures of a function.

Captures may differ in what Python does while their graphs are equal: each side of a condition on a step counter, each
phase of a schedule of learning rates. The backend compiles such a graph once. Two graphs are equal if their nodes are,
with all constants, and if their inputs have the same metadata and share memory in the same way. Graphs for which this
does not show (subgraphs, symbols, arrays, generators) are never equal.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import fx

from sot.codegen.build_graph import Graph
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.global_state import GlobalState
from sot.torch_compat.tensors import storage_id

CONSTANTS = (bool, int, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
             torch.memory_format)


class Incomparable(Exception):
    """The graph has a part that is not compared."""


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
        nodes = [*graph.module.graph.nodes]
        places = {node: i for i, node in enumerate(nodes)}
        inputs = tuple(map(described, graph.examples, graph.real))
        states = tuple((setter, constant(values, {}), undo[0], constant(undo[1], {}))
                       for setter, values, undo in graph.states)
        key = (inputs, sharing(graph.real), tuple(written(node, places) for node in nodes), states, graph.weights,
               grad, graph.turns_grad_on, graph.draws, graph.spent.leaves, graph.spent.is_known, graph.of_compilers)
        hash(key)
    except (Incomparable, TypeError):
        return None
    return key


def written(node: fx.Node, places: dict[fx.Node, int]) -> Hashable:
    if node.op == "placeholder":
        if isinstance(node.meta.get("example_value"), torch.Tensor) and is_symbolic(node.meta["example_value"]):
            raise Incomparable
        return node.op
    if node.op not in ("call_function", "call_method", "output"):
        raise Incomparable
    return node.op, node.target, constant(node.args, places), constant(node.kwargs, places)


def constant(value: Any, places: dict[fx.Node, int]) -> Hashable:
    """An argument of a node, so that equal means the same to an operation: 1 and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(value, fx.Node):
        return fx.Node, places[value]
    if isinstance(value, (tuple, list)):
        return type(value), tuple(constant(part, places) for part in value)
    if isinstance(value, dict):
        return dict, tuple((key, constant(part, places)) for key, part in value.items())
    if isinstance(value, slice):
        return slice, *(constant(part, places) for part in (value.start, value.stop, value.step))
    if type(value) is float:
        return float, value.hex()
    if isinstance(value, CONSTANTS):
        return type(value), value
    raise Incomparable


def described(example: Any, real: Any) -> Hashable:
    """The metadata of an input."""
    if type(real) in (bool, int):
        return type(real), real
    if type(real) not in (torch.Tensor, torch.nn.Parameter) or example is not real or real.layout is not torch.strided:
        raise Incomparable
    return (type(real), real.dtype, real.device, tuple(real.shape), real.stride(), real.storage_offset(),
            real.requires_grad, real.is_leaf, real._is_view(), real.is_conj(), real.is_neg(), real.is_inference())


def sharing(inputs: tuple[Any, ...]) -> Hashable:
    """For each input, the first one with the same memory."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(storage_id(v), i) if isinstance(v, torch.Tensor) else i for i, v in enumerate(inputs))
