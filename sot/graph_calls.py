"""From the graph of a trace to its call: the backend is given the graph, and what comes back is wrapped."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sot import recording
from sot.backends import Backend, BackendError, backend_name, call_backend, rescued
from sot.checking.calls import CheckedGraph
from sot.emit import Emitter
from sot.entry import Changes, GraphCall, leaving_states, turns_grad_on, write_graph_call
from sot.execute import gradients, seeds
from sot.execute.arrays import raising
from sot.execute.checkpoints import run_checkpointed
from sot.execute.elements import element, set_element
from sot.execute.machine import Machine
from sot.execute.tensor_hooks import make_place
from sot.execute.torch_handlers import assign_data
from sot.graph import NumberRef, TensorRef
from sot.origin import Attr, Item, Origin
from sot.progress import timed
from sot.records import Capture, GraphRecord
from sot.symbols import ShapesMustBeStatic
from sot.tensor_guards import AnyTensorGuard, TensorGuard
from sot.terms import leaves
from sot.torch_compat import FLAGS, asking_no_class, is_symbolic, overrides_enabled, plain_example, storage_id
from sot.values.tensor import TensorValue

# What a backend that compiles would not do.
ONLY_AS_IT_IS = (run_checkpointed, make_place, assign_data, element, set_element,
                 *seeds.NODES, *FLAGS)


WEIGHTS = "_parameters", "_buffers"      # of a module


class FloatsMustBeConstant(Exception):
    """The backend compiles its graph, and would take the floats among its inputs for constants."""

    def __init__(self, origins: set[Origin]) -> None:
        super().__init__(origins)
        self.origins = origins


class CompilesGraphs(Exception):
    """The backend compiles its graph, and would lose the leaves that the graph makes, or its checkpoints."""


class GraphCompiler:
    """A translator's backend, and how its graphs are run.

    Args:
        backend: What graphs are given to.
        check: The share of calls that are compared with plain Python.
        strict: Are errors of a compiled graph raised, rather than mended by running the graph as it is?
    """

    def __init__(self, backend: Backend, check: float, strict: bool) -> None:
        self.backend, self.check, self.strict = backend, check, strict
        self.compiles = False       # has it compiled any?

    def call_of(self, machine: Machine, emitter: Emitter, capture: Capture) -> GraphCall:
        """The code that calls what the backend makes of the trace's graph.

        Raises FloatsMustBeConstant, CompilesGraphs, ShapesMustBeStatic: another attempt is to be made.
        """
        builder = machine.builder
        if builder.operations == 0:
            return GraphCall(before=[f"{emitter.const(s)}(*{emitter.const(values)})"
                                     for s, values, _ in machine.state_log])
        changes = Changes(machine)
        check_layouts(machine)
        module = builder.finish((ref for ref, _ in emitter.outputs.values()), capture.name)
        origins = tuple(machine.input_origins.get(id(ref)) for ref in builder.inputs)
        capture.graph = GraphRecord(capture.name, module, builder.operations, capture.place, origins)
        with timed(capture, "backend"):
            real = [ref.fake if isinstance(ref, NumberRef) else example(ref) for ref in builder.inputs]
            examples = [*map(plain_example, real)]
            if grad := turns_grad_on(machine.state_log):
                set_grad_off_first(module)
            written = nodes_of(module)
            # It may trace with proxies, whose class torch has to ask.
            with torch.set_grad_enabled(grad or torch.is_grad_enabled()), overrides_enabled(True):
                compiled = self.compile(module, examples, bool(builder.warnings))
        floats = {leaf for ref in builder.inputs if isinstance(ref, NumberRef) and type(ref.real) is float
                  for leaf in leaves(machine.input_origins[id(ref)])}
        as_it_is = is_as_it_is(compiled, module)
        if floats and not as_it_is:
            raise FloatsMustBeConstant(floats)
        self.compiles = self.compiles or not as_it_is
        if as_it_is and nodes_of(module) == written:
            free_weights(machine, changes)
        if not as_it_is and gradients.shows_leaves(
                machine, [ref for ref, _ in emitter.outputs.values()]):
            raise CompilesGraphs
        compiled = rescued(
            compiled, module, backend_name(self.backend), f"{capture.name} at {capture.place}", strict=self.strict,
            changes=bool(changes.inputs) or changes.traceless, draws=builder.fake_mode.draws)
        if not as_it_is:
            compiled = leaving_states(compiled, machine.state_log, grad)
        if any(builder.warnings):
            compiled = raising(compiled)
        if machine.asserted:
            compiled = raising_asserted(compiled, machine.asserted)
        if self.check and not has_generator(examples):      # which would draw twice
            compiled = CheckedGraph(compiled, module, self.backend, capture.name, self.check)
        if recording.current is not None:
            compiled = recording.current.counted(compiled, capture)
        if any(given is not tensor for given, tensor in zip(examples, real, strict=True)):
            compiled = asking_no_class(compiled, as_it_is)
        inputs = [machine.input_origins[id(ref)] for ref in builder.inputs]
        return write_graph_call(emitter, compiled, inputs, machine.state_log, changes)

    def compile(self, module: torch.fx.GraphModule, examples: list[Any], holds_arrays: bool) -> Callable:
        """What the backend makes of a graph. Raises CompilesGraphs if there is in it what is lost by that."""
        if not holds_arrays and not has_generator(examples) and not any(
                module.graph.find_nodes(op="call_function", target=target) for target in ONLY_AS_IT_IS):
            return call_backend(self.backend, module, examples)
        try:
            compiled = call_backend(self.backend, module, examples)
        except BackendError:
            raise CompilesGraphs from None
        if not is_as_it_is(compiled, module):
            raise CompilesGraphs
        return compiled


def free_weights(machine: Machine, changes: Changes) -> None:
    """Let weights be of any dtype and shape that capture has seen nothing of: their guards ask for the class alone.

    PyTorch runs the graph as it runs the program, so what it does with such a weight is what the program would do with
    it. Where that raises, Python runs the frame from its start; so nothing may be in the graph that cannot be done
    twice. Arguments keep their guards, which say what a caller did otherwise.
    """
    builder = machine.builder
    if (changes.inputs or changes.traceless or changes.hooks or changes.generators or builder.modules
            or builder.warnings or machine.made_leaves or builder.fake_mode.draws and not changes.keeps_random):
        return
    builder.pass_on_seen()
    tensors = [value for _, value in machine.by_id.values() if isinstance(value, TensorValue)]
    free = {value.origin for value in tensors if is_weight(value) and not value.ref.is_seen}
    machine.guards = {
        AnyTensorGuard(g.origin, type(machine.examples[g])) if isinstance(g, TensorGuard) and g.origin in free else g:
        where for g, where in machine.guards.items()}


def is_weight(tensor: TensorValue) -> bool:
    """Is it a parameter or buffer of a module, whose sizes do not vary?"""
    table = tensor.origin.base if isinstance(tensor.origin, Item) else None
    return isinstance(table, Attr) and table.name in WEIGHTS and not is_symbolic(tensor.ref.fake)


def raising_asserted(compiled: Callable, asserted: dict[str, tuple[type, tuple]]) -> Callable:
    """A graph whose assertions raise what the program would: ``asserted`` has it by the assertion's text."""
    def run(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except RuntimeError as error:
            kind, args = asserted.get(str(error), (None, ()))
            if kind is None:
                raise
        raise kind(*args)
    return run


def has_generator(inputs: list[Any]) -> bool:
    return any(isinstance(given, torch.Generator) for given in inputs)


def check_layouts(machine: Machine) -> None:
    """Raises ShapesMustBeStatic if the graph changes what fake tensors of symbolic sizes do not show: the layout of an
    input (a backend is shown what it is in the end), or memory that inputs share."""
    builder = machine.builder
    if not machine.has_symbols:
        return
    memory = [storage_id(t) for t in machine.examples.values()]
    for ref in builder.changed_inputs():
        real = ref.real
        if real is None:
            continue
        if memory.count(storage_id(real)) > 1:
            raise ShapesMustBeStatic("a change of an input that shares its memory with another")
        if machine.symbols.layout_changed(ref.fake, real):
            raise ShapesMustBeStatic("a change of the shape of an input")


def example(ref: TensorRef) -> Any:
    """What a backend is shown of an input. It may run the graph, and must not change the program's arrays."""
    real = ref.real
    return np.broadcast_to(np.zeros((), real.dtype), real.shape) if isinstance(real, np.ndarray) else real


def set_grad_off_first(module: torch.fx.GraphModule) -> None:
    """Let a graph begin with gradients on: a compiler that finds them off leaves out what records them."""
    first = next(n for n in module.graph.nodes if n.op != "placeholder")
    with module.graph.inserting_before(first):
        module.graph.call_function(torch._C._set_grad_enabled, (False,))
    module.recompile()


def nodes_of(module: torch.fx.GraphModule) -> list[tuple]:
    """What a graph consists of: a backend may change it in place, for the tensors that it was shown."""
    return [(node, node.op, node.target, node.args, node.kwargs) for node in module.graph.nodes]


def is_as_it_is(compiled: Any, module: torch.fx.GraphModule) -> bool:
    """Is what a backend has made of a graph that graph?"""
    return getattr(compiled, "__self__", compiled) is module
