"""From a trace to its graph: the graph is closed with the results that the exit uses.

``Graph`` is what a backend is given, and all that has to be minded when it is called.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sot.codegen.spent_results import Spent, has_gradients, spent_of
from sot.graph import GeneratorRef, NumberRef, TensorRef
from sot.guards.assumptions import RestartCapture
from sot.guards.origin import Attr, Item, Origin
from sot.guards.terms import leaves
from sot.interpreter.torch_ops import gradients
from sot.interpreter.trace import Trace
from sot.torch_compat.global_state import SET_GRAD, StateChange, turns_grad_on
from sot.torch_compat.tensors import plain_example, storage_id

WEIGHTS = "_parameters", "_buffers"      # of a module


@dataclass(frozen=True)
class Changes:
    """What a graph does to its surroundings before it may fail.

    Arguments:
        inputs: those that it changes.
        traceless: does it change inputs in a way that their versions do not tell?
        hooks: does it put hooks on tensors?
        generators: the generators of random numbers among its inputs.
        refuses: may it raise because of the values that it gets?
        keeps_random: has the state of the generators to be kept until it has run, in case it fails?
    """

    inputs: tuple[Origin, ...]
    traceless: bool
    hooks: bool
    generators: tuple[Origin, ...]
    refuses: bool
    keeps_random: bool

    @classmethod
    def of(cls, trace: Trace) -> Changes:
        builder, origins = trace.graph, trace.input_origins
        # Any graph may run out of memory; but on a GPU it takes long to ask for the state.
        keeps_random = builder.draws_then_refuses or builder.fake_mode.draws and not torch.cuda.is_initialized()
        return cls(tuple(origins[id(ref)] for ref in builder.changed_inputs()), builder.changes_traceless, trace.hooked,
                   tuple(origins[id(ref)] for ref in builder.inputs if isinstance(ref, GeneratorRef)),
                   builder.refuses, keeps_random)


@dataclass(frozen=True)
class Graph:
    """A graph that is ready for a backend.

    Arguments:
        name: of the function that it is of.
        module: the graph.
        operations: how many there are.
        inputs: where they come from.
        real: the inputs of the captured call.
        examples: what a backend is shown of them: plain tensors, SymInts for numbers that vary.
        weights: which of them are parameters and buffers of modules.
        floats: where the floats among its inputs come from.
        changes: what it does to its surroundings.
        states: the changes of torch's global state that are part of it.
        turns_grad_on: does it begin with gradients off, and turn them on?
        asserted: the exceptions that its assertions stand for, by their texts.
        numpy: for each operation of NumPy's in it, whether that may warn.
        draws: does it draw random numbers?
        shows_leaves: does the program get at leaves of autograd that the graph has made?
        spent: the results that the graph has gone backward through.
        optimizers: does it have steps of optimizers in it?
        can_free_weights: could weights be of any dtype and shape, if the graph runs as it is written?
    """

    name: str
    module: torch.fx.GraphModule
    operations: int
    inputs: tuple[Origin, ...]
    real: tuple[Any, ...]
    examples: tuple[Any, ...]
    weights: frozenset[int]
    floats: frozenset[Origin]
    changes: Changes
    states: tuple[StateChange, ...]
    turns_grad_on: bool
    asserted: Mapping[str, tuple[type, tuple]]
    numpy: tuple[bool, ...]
    draws: bool
    shows_leaves: bool
    spent: Spent
    optimizers: bool
    can_free_weights: bool

    @property
    def can_be_cut(self) -> bool:
        """May parts of it be compiled on their own? Not where they depend on each other by more than tensors."""
        return not (self.states or self.floats or self.shows_leaves or self.asserted or self.changes.hooks
                    or has_gradients(self.module)
                    or any(isinstance(v, torch.SymInt | torch.SymFloat) for v in self.examples))

    @property
    def has_generator(self) -> bool:
        return any(isinstance(given, torch.Generator) for given in self.examples)


def build_graph(trace: Trace, outputs: Iterable[tuple[TensorRef, str]], name: str) -> Graph | None:
    """The graph that gives these results, each with a name; None without operations. Raises RestartCapture."""
    builder, results = trace.graph, [ref for ref, _ in outputs]
    if trace.operations == 0:
        return None
    changes = Changes.of(trace)
    check_layouts(trace)
    module = builder.finish(results, name)
    origins = tuple(trace.input_origins[id(ref)] for ref in builder.inputs)
    real = tuple(ref.fake if isinstance(ref, NumberRef) else example(ref) for ref in builder.inputs)
    turns_on = turns_grad_on(trace.state_log)
    if turns_on:
        set_grad_off_first(module)
    floats = {leaf for ref, origin in zip(builder.inputs, origins, strict=True)
              if isinstance(ref, NumberRef) and type(ref.real) is float for leaf in leaves(origin)}
    redone = changes.inputs or changes.traceless or changes.hooks or changes.generators or (
        builder.fake_mode.draws and not changes.keeps_random)
    return Graph(name, module, builder.operations, origins, real, tuple(map(plain_example, real)),
                 frozenset(i for i, (o, v) in enumerate(zip(origins, real, strict=True)) if is_weight(o, v)),
                 frozenset(floats),
                 changes, trace.state_log, turns_on, trace.asserted, (*builder.warnings,), builder.fake_mode.draws,
                 gradients.shows_leaves(trace.made_leaves, results) or builder.keeps_nodes,
                 spent_of(builder, module, results), bool(trace.optimizers),
                 not (redone or builder.modules or builder.warnings or trace.made_leaves))


def is_weight(origin: Origin, real: Any) -> bool:
    table = origin.base if isinstance(origin, Item) else None
    return isinstance(table, Attr) and table.name in WEIGHTS and isinstance(real, torch.Tensor)


def check_layouts(trace: Trace) -> None:
    """Raises RestartCapture if the graph changes what fake tensors of symbolic sizes do not show: the layout of an
    input (a backend is shown what it is in the end), or memory that inputs share."""
    if trace.symbols is None:
        return
    memory = [storage_id(t) for t in trace.examples.values()]
    for ref in trace.graph.changed_inputs():
        if ref.real is None:
            continue
        if memory.count(storage_id(ref.real)) > 1:
            raise RestartCapture("a change of an input that shares its memory with another", static=True)
        if trace.symbols.layout_changed(ref.fake, ref.real):
            raise RestartCapture("a change of the shape of an input", static=True)


def example(ref: TensorRef) -> Any:
    """What a backend is shown of an input. It may run the graph, and must not change the program's arrays."""
    real = ref.real
    return np.broadcast_to(np.zeros((), real.dtype), real.shape) if isinstance(real, np.ndarray) else real


def set_grad_off_first(module: torch.fx.GraphModule) -> None:
    """Let a graph begin with gradients on: a compiler that finds them off leaves out what records them."""
    first = next(n for n in module.graph.nodes if n.op != "placeholder")
    with module.graph.inserting_before(first):
        module.graph.call_function(SET_GRAD, (False,))
    module.recompile()
