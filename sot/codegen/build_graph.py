"""From a trace to its graph: the graph gets the outputs that the exit uses.

``Graph`` is the graph for a backend, together with all properties that matter for its call.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sot.codegen.compiled_graphs.first_checks import take_checks
from sot.codegen.compiled_graphs.spent_results import Spent, has_gradients, spent_of
from sot.graph import GeneratorRef, NumberRef, TensorRef
from sot.graph.builder import flagged_inputs
from sot.graph.refs import version_of
from sot.guards.assumptions import Part, RestartCapture
from sot.guards.origin import Attr, Item, Origin
from sot.guards.terms import leaves
from sot.interpreter.torch_ops.gradients.backward import shows_leaves
from sot.interpreter.trace import Trace
from sot.torch_compat.global_state import SET_GRAD, StateChange, enter_inference_mode, set_anomaly, turns_grad_on
from sot.torch_compat.tensors import plain_example, storage_id

WEIGHTS = "_parameters", "_buffers"      # of a module


@dataclass(frozen=True)
class Changes:
    """The side effects of a graph before it may fail.

    Arguments:
        versions: the inputs that it changes, and by how much their versions rise.
        unversioned: those that change only by way of another tensor with a version of its own (``x.data.add_(1)``).
        traceless: whether it changes inputs without a change of their versions.
        put_back: the inputs that it changes so, and that get their elements back if it fails.
        flags: the leaves among the inputs of which it sets whether they require gradients, with what holds before.
        hooks: whether it puts hooks on tensors.
        generators: the generators of random numbers among its inputs.
        refuses: whether it may raise because of the values of its inputs.
        keeps_random: whether the random state must be kept until it has run, in case it fails.
    """

    versions: Mapping[Origin, int]
    unversioned: frozenset[Origin]
    traceless: bool
    put_back: tuple[Origin, ...]
    flags: tuple[tuple[Origin, bool], ...]
    hooks: bool
    generators: tuple[Origin, ...]
    refuses: bool
    keeps_random: bool

    @property
    def inputs(self) -> tuple[Origin, ...]:
        return (*self.versions,)

    @property
    def may_run_again(self) -> bool:
        """Whether Python may run the frame if the graph raises. Otherwise the exception leaves the function."""
        return not self.traceless and (self.refuses or not self.versions)

    @classmethod
    def of(cls, trace: Trace) -> Changes:
        builder, origins = trace.graph, trace.input_origins
        # Any graph may run out of memory, but reading the random state of a GPU takes long.
        keeps_random = builder.draws_then_refuses or builder.fake_mode.draws and not torch.cuda.is_initialized()
        versions = {origins[id(ref)]: version_of(ref.fake) - ref.version for ref in builder.changed_inputs()}
        unversioned = {origins[id(ref)]: 0 for ref in builder.inputs_changed_untracked()}
        return cls({**unversioned, **versions}, frozenset(unversioned) - versions.keys(), builder.changes_traceless,
                   tuple(origins[id(ref)] for ref in builder.put_back),
                   tuple((origins[id(ref)], was) for ref, was in flagged_inputs(builder)),
                   trace.hooked,
                   tuple(origins[id(ref)] for ref in builder.inputs if isinstance(ref, GeneratorRef)),
                   builder.refuses, keeps_random)


@dataclass(frozen=True)
class Graph:
    """A graph that is ready for a backend.

    Arguments:
        name: the name of its function.
        module: the graph.
        operations: the number of operations.
        inputs: the origins of its inputs.
        real: the inputs of the captured call.
        examples: the example inputs for the backend: plain tensors, and SymInts for varying numbers.
        weights: which inputs are parameters and buffers of modules.
        floats: the origins of the floats and complex numbers among its inputs.
        changes: its side effects.
        states: the changes of torch's global state that are part of it.
        turns_grad_on: whether it starts with gradients off and turns them on.
        asserted: the exceptions that its assertions stand for, by their texts.
        numpy: for each NumPy operation in it, whether the operation may warn.
        draws: whether it draws random numbers.
        shows_leaves: whether the program can reach leaves of autograd that the graph has made.
        spent: the results that the graph has gone backward through.
        of_inference: the indices of the results that it makes in an inference mode which it enters itself.
        of_compilers: whether a part of it has the form for backends that compile: a step of an optimizer, or hooks.
        has_data_sizes: whether sizes or numbers in it depend on data.
        checks: runs the checks that come before it, if there are any.
        can_free_weights: whether weights may have any dtype and shape, if the graph runs as it is written.
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
    of_inference: tuple[int, ...]
    of_compilers: bool
    has_data_sizes: bool
    checks: Callable[..., Any] | None
    can_free_weights: bool

    @property
    def can_be_cut(self) -> bool:
        """Whether parts of it may be compiled separately. They may not if they depend on each other by more than
        tensors and the grad mode.
        """
        has_states = any(setter is not SET_GRAD for setter, *_ in self.states)
        return not (self.has_data_sizes or has_states or self.floats or self.shows_leaves or self.asserted
                    or has_gradients(self.module)
                    or any(isinstance(v, torch.SymFloat) for v in self.examples))

    @property
    def has_numpy(self) -> bool:
        """Whether it calls NumPy, or takes arrays or numbers of NumPy."""
        return bool(self.numpy) or any(isinstance(given, (np.ndarray, np.generic)) for given in self.examples)

    @property
    def has_generator(self) -> bool:
        return any(isinstance(given, torch.Generator) for given in self.examples)


def build_graph(trace: Trace, outputs: Iterable[tuple[TensorRef, str]], name: str) -> Graph | None:
    """The graph with these named outputs; None if it has no operations. Raises RestartCapture."""
    builder, results = trace.graph, [ref for ref, _ in outputs]
    if trace.operations == 0:
        return None
    changes = Changes.of(trace)
    check_layouts(trace)
    refuse_anomalies(trace, results)
    module = builder.finish(results, name)
    origins = tuple(trace.input_origins[id(ref)] for ref in builder.inputs)
    real = tuple(ref.fake if isinstance(ref, NumberRef) else example(ref) for ref in builder.inputs)
    turns_on = turns_grad_on(trace.state_log)
    if turns_on:
        set_grad_off_first(module)
    floats = {leaf for ref, origin in zip(builder.inputs, origins, strict=True)
              if isinstance(ref, NumberRef) and type(ref.real) in (float, complex) for leaf in leaves(origin)}
    redone = changes.inputs or changes.traceless or changes.hooks or changes.generators or (
        builder.fake_mode.draws and not changes.keeps_random)
    return Graph(name, module, builder.operations, origins, real, tuple(map(plain_example, real)),
                 frozenset(i for i, (o, v) in enumerate(zip(origins, real, strict=True)) if is_weight(o, v)),
                 frozenset(floats),
                 changes, trace.state_log, turns_on, trace.asserted, (*builder.warnings,), builder.fake_mode.draws,
                 shows_leaves(trace.made_leaves, results) or builder.keeps_nodes,
                 spent_of(builder, module, results), of_inference(trace, results), trace.of_compilers,
                 builder.has_data_sizes, take_checks(module),
                 not (redone or builder.modules or builder.warnings or trace.made_leaves))


def refuse_anomalies(trace: Trace, results: Sequence[TensorRef]) -> None:
    """Start again if a history from inside of anomaly mode would name lines of the graph."""
    if any(setter is set_anomaly for setter, *_ in trace.state_log) and any(
            isinstance(ref.fake, torch.Tensor) and ref.fake.requires_grad for ref in results):
        raise RestartCapture.without(Part.ANOMALIES, "anomaly mode around what has a history")


def of_inference(trace: Trace, results: Sequence[TensorRef]) -> tuple[int, ...]:
    if not any(setter is enter_inference_mode for setter, _, _ in trace.state_log):
        return ()
    return tuple(i for i, ref in enumerate(results)
                 if ref.real is None and isinstance(ref.fake, torch.Tensor) and ref.fake.is_inference())


def is_weight(origin: Origin, real: Any) -> bool:
    table = origin.base if isinstance(origin, Item) else None
    return isinstance(table, Attr) and table.name in WEIGHTS and isinstance(real, torch.Tensor)


def check_layouts(trace: Trace) -> None:
    """Raises RestartCapture if the graph changes something that symbolic fake tensors do not show: the layout of an
    input (a backend sees its final layout), or memory that inputs share.
    """
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
    """The example of an input for the backend. The backend may run the graph, and must not change the program's
    arrays.
    """
    real = ref.real
    return np.broadcast_to(np.zeros((), real.dtype), real.shape) if isinstance(real, np.ndarray) else real


def set_grad_off_first(module: torch.fx.GraphModule) -> None:
    """Make a graph begin with gradients on. A compiler that finds them off omits the code that records them."""
    first = next(n for n in module.graph.nodes if n.op != "placeholder")
    with module.graph.inserting_before(first):
        module.graph.call_function(SET_GRAD, (False,))
    module.recompile()
