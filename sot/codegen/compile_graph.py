"""From a graph to its callable: the backend compiles the graph, and the result is wrapped."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from sot.backends import Backend, BackendError, backend_name, call_backend, rescued
from sot.backends.selection import is_known_to_compile
from sot.checking.calls import CheckedGraph
from sot.codegen.build_graph import Graph
from sot.codegen.compiled_graphs.equal_graphs import EqualGraphs, key_of
from sot.codegen.compiled_graphs.failing_changes import (
    assertions,
    changed_before_failure,
    changes_history_by_data,
    raises_after_data,
    raising_without_changes,
)
from sot.codegen.compiled_graphs.failing_constants import loses_check, raises_on_constants
from sot.codegen.compiled_graphs.graph_end import GraphEnd
from sot.codegen.compiled_graphs.independent_results import apart
from sot.codegen.compiled_graphs.inputs.shared_arguments import share_memory
from sot.codegen.compiled_graphs.inputs.versions import with_versions
from sot.codegen.compiled_graphs.inputs.views_of_inputs import with_views_of_inputs
from sot.codegen.compiled_graphs.inputs.wrapper_inputs import override_operations, refuse_shared_memory, wrappers_of
from sot.codegen.compiled_graphs.new_views import with_creation
from sot.codegen.compiled_graphs.number_tensors import NoTensor, number_places, taking_numbers, with_number_tensors
from sot.codegen.compiled_graphs.operators.changes_in_place import changes_shape_of_input, restate_changes
from sot.codegen.compiled_graphs.operators.draws_in_order import draw_by_operator, is_drawn_in_order
from sot.codegen.compiled_graphs.operators.layouts import copy_own_layouts
from sot.codegen.compiled_graphs.operators.powers import with_tensors
from sot.codegen.compiled_graphs.operators.recurrent_layers import has_recurrence, separate_layers
from sot.codegen.compiled_graphs.operators.same_sizes import call_kernels
from sot.codegen.compiled_graphs.operators.shuffles import call_permutations
from sot.codegen.compiled_graphs.pieces import has_sparse, in_pieces, is_left_to_pytorch, shows_gradient
from sot.codegen.compiled_graphs.recomputation import compute_once_without_gradients, recompute_inside
from sot.codegen.compiled_graphs.spent_results import has_gradients, with_spent_results
from sot.codegen.compiled_graphs.unused_operations import first_results, number_of_results, unused_operations
from sot.codegen.compiled_graphs.wrong_gradients import (
    cuts_history,
    functions_of_views,
    gives_history_to_detached,
    needs_old_values,
    resizes_memory,
    returns_conjugated,
    saves_what_it_changes,
)
from sot.graph.fake_rules import is_opaque, on_packed, part_of_sparse, recurrence
from sot.graph.generator_nodes import NODES as NODES_OF_GENERATORS
from sot.graph.nodes import has_own_layout
from sot.graph.padded_encoders import NODES as NODES_OF_ENCODERS
from sot.graph.regions import if_else
from sot.guards.assumptions import Part, RestartCapture
from sot.guards.origin import Origin
from sot.interpreter.effects.shown_warnings import remembered
from sot.interpreter.effects.torch_warnings import naming_lines, unheard, warnings_of
from sot.interpreter.numpy_ops.numpy_arrays import putting_back, raising
from sot.interpreter.torch_ops.autograd import is_function_of_program, runs_code_of_program
from sot.interpreter.torch_ops.checkpoints import run_as_it_is
from sot.interpreter.torch_ops.constructors.capsules import same_memory
from sot.interpreter.torch_ops.data_sizes.storages import assign_data
from sot.interpreter.torch_ops.elements import element, set_element
from sot.interpreter.torch_ops.hooks.tensor_hooks import SEEN, remove_from_place
from sot.interpreter.torch_ops.uninitialized import initialized
from sot.reports import recording
from sot.reports.records import Capture, GraphRecord
from sot.torch_compat.compilers import DECOMPOSED_WRONGLY, tracing_recurrence
from sot.torch_compat.dynamo.inputs import mark_weights
from sot.torch_compat.dynamo.lazy_backward import around_lazy_backward
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.global_state import (
    FLAGS,
    REGIONS,
    SET_DEFAULT_DTYPE,
    SET_GRAD,
    STATE_SETTERS,
    StateChange,
    autocast_as_before,
    autocast_nesting,
    enter_inference_mode,
    exit_inference_mode,
    nest_autocast,
    set_anomaly,
    states_left,
    undoing_regions,
)
from sot.torch_compat.hooks import is_pushing
from sot.torch_compat.tensors import asking_no_class, of_inference_mode, overrides_enabled, without_subclasses

# A backend that compiles loses these, or computes something else.
ONLY_AS_IT_IS = (run_as_it_is, remove_from_place, assign_data, element, set_element, *NODES_OF_GENERATORS, *FLAGS,
                 SET_DEFAULT_DTYPE, if_else, *DECOMPOSED_WRONGLY)
AS_IT_IS_UNLESS_SAVED = on_packed, part_of_sparse, recurrence, *NODES_OF_ENCODERS
ONLY_WHOLE = same_memory, initialized       # a graph with these is not cut
ALL = ""      # optimizers
COMPILES = "the backend compiles its graph, and would lose leaves that the graph makes, or hooks"


@dataclass(frozen=True)
class Compiled:
    """``call`` takes the inputs of a graph and returns its outputs. ``is_unchanged``: whether it runs the nodes of the
    graph as they are, so that PyTorch treats the inputs as in the program. ``constants``: the weights whose values are
    part of it. ``shares_memory``: whether it was not compiled because arguments share memory.
    """

    call: Callable[..., Any]
    is_unchanged: bool
    constants: tuple[Origin, ...] = ()
    shares_memory: bool = False


class GraphCompiler:
    """A backend, and how its graphs are run.

    Arguments:
        backend: compiles the graphs.
        check: the share of calls that are compared with plain Python.
        strict: whether errors of a compiled graph are raised. Otherwise the graph is run as it is.
        cuts: whether a graph may be compiled as several (pieces between what a compiled graph would lose, or
            independent results) or not at all. A graph that is saved may not.
    """

    def __init__(self, backend: Backend, check: float, strict: bool, cuts: bool = True) -> None:
        self.backend, self.check, self.strict, self.cuts = backend, check, strict, cuts
        self.compiles = is_known_to_compile(backend)        # or has compiled a graph
        self.equal = EqualGraphs() if is_known_to_compile(backend) and not check else None

    def compile(self, graph: Graph, record: Capture) -> Compiled:
        """The callable of a graph. Raises RestartCapture, BackendError."""
        if not (graph.floats and self.compiles):
            return self.compile_as_given(graph, record)
        places, needs = number_places(graph), ""
        try:
            tensors = with_number_tensors(graph)
            return Compiled(taking_numbers(self.compile_as_given(tensors, record).call, places), False)
        except NoTensor as error:
            needs = error.operation
        except BackendError:
            pass        # the value of the number is needed
        if graph.of_compilers:
            why = "the value of a number that changes is needed"
            raise RestartCapture(why, plain_optimizers={ALL: why})
        if needs:
            raise RestartCapture(f"{needs} takes a float only as a number, and the backend compiles its graph",
                                 needs_numbers={needs}, specialized=graph.floats)
        raise RestartCapture("the backend compiles its graph, and would specialise on a float",
                             constant=graph.floats)

    def compile_as_given(self, graph: Graph, record: Capture) -> Compiled:
        if self.cuts:
            call_kernels(graph.module)
            call_permutations(graph.module)
        if self.compiles:
            with_tensors(graph.module)
        record.graph = GraphRecord(graph.name, graph.module, graph.operations, record.place, graph.inputs)
        before, count = nodes_of(graph.module), number_of_results(graph.module)
        # The backend may trace with proxies, for whose class torch must look for overrides.
        grad = graph.turns_grad_on or torch.is_grad_enabled()
        constants = () if grad else constant_inputs(graph, self.backend)
        mark_weights(graph.module, graph.weights, constants)
        key = key_of(graph, grad) if self.equal is not None and not constants else None
        found = self.equal.find(key) if self.equal is not None else None
        texts = ["".join(map(str, node.args[1:])) for node in self.asserted(graph)]
        if self.compiles:
            refuse_code_of_program(graph)
        shares, ordered = self.compiles and share_memory(graph), self.cuts and needs_order(graph)
        stays = self.compiles and ordered
        with (record.timed("backend"), torch.set_grad_enabled(grad), overrides_enabled(True),
              unheard(warnings_of(graph.module)), undoing_regions(),
              tracing_recurrence(has_recurrence(graph.module))):
            made = graph.module.forward if stays else found[0] if found is not None else self.ask_backend(graph)
        as_it_is = is_as_it_is(made, graph.module)
        self.compiles = self.compiles or not as_it_is
        if as_it_is and graph.of_compilers:
            raise RestartCapture("the backend runs its graph as it is", interprets=True)
        if not as_it_is:        # the backend was maybe not known to compile
            around_lazy_backward(remembered)
            refuse_code_of_program(graph)
            refuse_shared_memory(graph)
            refuse_gradients_in_inference(graph)
        if graph.floats and not as_it_is:
            return self.compile(graph, record)
        if not as_it_is and (graph.shows_leaves or ordered):     # the backend was not known to compile
            raise RestartCapture(COMPILES, compiles=True)
        call = self.wrapped(made, graph, record, texts, as_it_is)
        returns_more = number_of_results(graph.module) > count
        if found is not None:
            returns_more = found[1]
        elif self.equal is not None and not as_it_is:
            self.equal.keep(key, made, returns_more)
        if returns_more:
            call = first_results(call, count)
        return Compiled(call, as_it_is and nodes_of(graph.module) == before,
                        () if as_it_is else tuple(map(graph.inputs.__getitem__, constants)), shares)

    def ask_backend(self, graph: Graph) -> Callable[..., Any]:
        """The callable that the backend makes of a graph, whose end is changed for a backend that compiles. Raises
        RestartCapture if compilation would lose a part of the graph.
        """
        has_backward = has_gradients(graph.module)
        if has_backward:
            recompute_inside(graph.module)
        else:
            compute_once_without_gradients(graph.module)
        undo = ExitStack()
        undo.callback(separate_layers(graph.module))
        undo.callback(restate_changes(graph.module))
        undo.callback(draw_by_operator(graph.module))
        undo.callback(copy_own_layouts(graph.module))
        end = changed_end(graph, has_backward, self.asserted(graph))
        if end is not None:
            undo.callback(end.restore)      # before the others: what they have added may be returned at the end
        forward = graph.module.forward
        try:
            with unheard({}):
                compiled = self.ask_about_leaves(graph)
        except BackendError as error:
            undo.close()
            if not raises_on_constants(graph.module):
                refuse_part(graph, has_backward, error)
                if not is_left_to_pytorch(error):
                    raise
            compiled = forward
        if is_as_it_is(compiled, graph.module):
            undo.close()
            return graph.module.forward if end is not None or compiled == forward else compiled
        if has_backward and not graph.spent.is_known and not is_as_it_is(compiled, graph.module):
            raise RestartCapture.without(
                Part.GRADIENTS, "the backend compiles its graph, which changes what it has gone backward through")
        return compiled

    def ask_about_leaves(self, graph: Graph) -> Callable[..., Any]:
        """The same for a graph that a backend may have to get in pieces."""
        examples, nodes = [*graph.examples], graph.module.graph.nodes
        if self.compiles and any(SEEN in node.meta for node in nodes):
            return graph.module.forward     # a compiled graph would show a part of the gradient
        is_whole = any(is_pushing(setter) for setter, _, _ in graph.states) or any(
            node.target in ONLY_WHOLE for node in nodes)
        of_views = functions_of_views(graph.module) if self.cuts else set()
        as_it_is = is_whole or graph.has_generator or self.cuts and (
            graph.has_numpy or bool(of_views)) or any(
            shows_gradient(node) or is_drawn_in_order(node) or node.target in ONLY_AS_IT_IS or is_opaque(node.target)
            or self.cuts and (
                node.target in AS_IT_IS_UNLESS_SAVED or has_sparse(node) or loses_check(node)
                or has_own_layout(node)) for node in nodes)
        if not as_it_is and not marks_tensors(graph.module):
            return self.ask_about_results(graph, examples)
        if not self.compiles:
            try:
                compiled = call_backend(self.backend, graph.module, examples)
                if is_as_it_is(compiled, graph.module):
                    return compiled
            except BackendError:
                pass
        if self.cuts and graph.can_be_cut and not is_whole and not marks_tensors(graph.module):
            plain = *ONLY_AS_IT_IS, *AS_IT_IS_UNLESS_SAVED, *of_views
            return in_pieces(graph.module, self.backend, plain) or graph.module.forward
        raise RestartCapture(COMPILES, compiles=True)

    def ask_about_results(self, graph: Graph, examples: list[Any]) -> Callable[..., Any]:
        """The same for a graph that is compiled as one, or as several graphs if the program goes backward through its
        results one by one.
        """
        if not self.compiles:
            compiled = call_backend(self.backend, graph.module, examples)
            if is_as_it_is(compiled, graph.module):
                return compiled
            return self.cuts and apart(graph, self.backend) or compiled
        return self.cuts and apart(graph, self.backend) or call_backend(self.backend, graph.module, examples)

    def asserted(self, graph: Graph) -> list[torch.fx.Node]:
        """The assertions whose conditions a compiled graph returns, because it changes inputs."""
        return assertions(graph.module) if self.cuts and changed_tensors(graph) else []

    def wrapped(self, call: Callable[..., Any], graph: Graph, record: Capture, texts: Sequence[str],
                as_it_is: bool) -> Callable[..., Any]:
        """The wrapped callable: it raises and changes state as the program would, and compares results if
        requested. ``texts`` are those of assertions that the compiled graph returns.
        """
        changed = [] if as_it_is else changed_tensors(graph)
        if not as_it_is:
            call = with_views_of_inputs(call, graph)
        call = rescued(
            call, graph.module, backend_name(self.backend), f"{graph.name} at {record.place}", strict=self.strict,
            changes=bool(graph.changes.inputs) or graph.changes.traceless, draws=graph.draws, changed=changed,
            unversioned=bool(graph.changes.unversioned) or graph.changes.traceless,
            leaves=not graph.changes.may_run_again,
            early=changed_before_failure(graph, changed) if changed else None)
        if not as_it_is:
            call = with_creation(with_versions(call, graph), graph)
        if not as_it_is and graph.spent.leaves:
            call = with_spent_results(call, graph.spent)
        if not as_it_is and graph.of_inference:
            call = with_inference_results(call, graph.of_inference)
        if not as_it_is:
            call = leaving_states(call, graph.states, graph.turns_grad_on)
        if graph.changes.put_back:
            call = putting_back(call, [i for i, origin in enumerate(graph.inputs) if origin in graph.changes.put_back])
        if any(graph.numpy):
            call = raising(call)
        places = warnings_of(graph.module)
        if places or any(setter is set_anomaly for setter, *_ in graph.states):     # it warns before it raises
            call = naming_lines(call, places, is_compiled=not as_it_is)
        if texts and not as_it_is:
            call = raising_without_changes(call, texts, changed)
        if graph.asserted:
            call = raising_asserted(call, graph.asserted)
        if self.check and not graph.has_generator:      # the comparison would draw twice
            call = CheckedGraph(call, graph.module, self.backend, graph.name, self.check)
        if recording.current is not None:
            call = recording.current.counted(call, record)
        if override_operations(graph.module) or any(
                given is not tensor for given, tensor in zip(graph.examples, graph.real, strict=True)):
            call = asking_no_class(call, as_it_is)
        return call


def has_call(module: torch.fx.GraphModule, function: Callable) -> bool:
    return bool(module.graph.find_nodes(op="call_function", target=function, sort=False))


def constant_inputs(graph: Graph, backend: Backend) -> list[int]:
    """The weights that a backend may take for constants, if it does so: those whose changes show. A change within
    inference mode does not.
    """
    if not getattr(backend, "keeps_constants", False):
        return []
    changed = set(graph.changes.inputs)
    return [i for i in sorted(graph.weights) if graph.inputs[i] not in changed and not graph.real[i].is_inference()]


def marks_tensors(module: torch.fx.GraphModule) -> bool:
    """Whether a graph sets ``requires_grad`` of an input. A compiled graph would not."""
    return any(node.args[0].op == "placeholder" for target in ("requires_grad_", "detach_")
               for node in module.graph.find_nodes(op="call_method", target=target))


def changed_tensors(graph: Graph) -> list[int]:
    """The indices of the inputs that a graph changes, if all can be restored: leaves that are not views."""
    changed = set(graph.changes.inputs)
    found = [i for i, origin in enumerate(graph.inputs) if origin in changed]
    with without_subclasses():
        plain = all(isinstance(v, torch.Tensor) and not v._is_view() and v.is_leaf and not v.is_inference()
                    for v in map(graph.real.__getitem__, found))
    return found if plain and not graph.changes.traceless else []


def nodes_of(module: torch.fx.GraphModule) -> list[tuple]:
    """The nodes of a graph. A backend may change the graph in place, for the tensors of its examples."""
    return [(node, node.op, node.target, node.args, node.kwargs) for node in module.graph.nodes]


def changed_end(graph: Graph, has_backward: bool, asserted: Sequence[torch.fx.Node]) -> GraphEnd | None:
    """Change the end of a graph where a backend that compiles needs it. None if there is nothing to change.

    After a compiled graph the states of autocast are set, and inference modes are entered, in any case
    (``leaving_states``).
    """
    unused = unused_operations(graph.module)
    autocast, spent = autocast_as_before(graph.states), [i for i, _ in graph.spent.leaves] if has_backward else []
    modes = sum(setter is enter_inference_mode for setter, _ in states_left(graph.states))
    if not (unused or autocast or spent or modes or asserted):
        return None
    end = GraphEnd(graph.module)
    end.also_return(unused)
    end.call(autocast)
    end.call([(exit_inference_mode, ())] * modes)
    end.detach(spent)
    if asserted:
        inputs = graph.module.graph.find_nodes(op="placeholder")
        end.put_back(asserted, [inputs[i] for i in changed_tensors(graph)])
    return end


def refuse_part(graph: Graph, has_backward: bool, error: BackendError) -> None:
    """Restart the capture without what the backend probably does not support, the most likely part first."""
    nodes, has_step, why = graph.module.graph.nodes, has_backward and graph.of_compilers, str(error)
    parts: tuple[tuple[bool, dict[str, Any]], ...] = (
        (any(node.target is if_else for node in nodes), {"plain": {Part.BRANCHES: why}}),
        (has_step, {"plain_optimizers": {ALL: why}}),
        (bool(wrappers_of(graph.module)), {"plain": {Part.WRAPPERS: why}}),
        (any(setter is enter_inference_mode for setter, _, _ in graph.states), {"plain": {Part.INFERENCE: why}}),
        (has_symbols(graph) and any(setter in REGIONS for setter, _, _ in graph.states), {"static": True}),
        (any(is_function_of_program(node.target) for node in nodes), {"plain": {Part.FUNCTIONS: why}}),
        (has_backward, {"plain": {Part.GRADIENTS: why}}),
        (graph.has_data_sizes, {"plain": {Part.SIZES: why}}),
        (changes_weights(graph), {"plain": {Part.CHANGES: why}}),
        (has_symbols(graph), {"static": True}))
    for is_there, assumption in parts:
        if is_there:
            raise RestartCapture(why, **assumption) from None


def refuse_code_of_program(graph: Graph) -> None:
    """Restart the capture without nodes whose code a compiler would trace: it may change what is outside of the graph,
    and a trace keeps what it reads.
    """
    if any(node.target is if_else for node in graph.module.graph.nodes):
        raise RestartCapture.without(Part.BRANCHES, "the backend compiles its graph, and would keep one side")
    if any(runs_code_of_program(node.target) for node in graph.module.graph.nodes):
        raise RestartCapture("the backend compiles its graph, and would keep what the program's code reads",
                             compiles=True)


def refuse_gradients_in_inference(graph: Graph) -> None:
    """Restart the capture without regions of inference mode if one turns it off where it is on: a compiled graph
    would make tensors of inference mode there, and record no gradients.
    """
    if torch.is_inference_mode_enabled() and any(
            setter is enter_inference_mode and not values[0] for setter, values, _ in graph.states):
        raise RestartCapture.without(Part.INFERENCE, "a compiled graph records no gradients within inference mode")


def has_symbols(graph: Graph) -> bool:
    return any(isinstance(v, torch.SymInt) or isinstance(v, torch.Tensor) and is_symbolic(v) for v in graph.examples)


def changes_weights(graph: Graph) -> bool:
    """Whether the graph changes leaves of autograd in place."""
    changed = set(graph.changes.inputs)
    return any(origin in changed and isinstance(real, torch.Tensor) and real.requires_grad and real.is_leaf
               for origin, real in zip(graph.inputs, graph.real, strict=True))


def is_as_it_is(compiled: Any, module: torch.fx.GraphModule) -> bool:
    """Whether a backend returned the graph unchanged."""
    return getattr(compiled, "__self__", compiled) is module


def leaving_states(compiled: Callable, log: Sequence[StateChange], grad: bool) -> Callable:
    """The compiled graph of a trace that sets states of torch.

    A compiler sets the states of a graph while it compiles, but the compiled graph sets none, or only some. Here the
    states are restored after the run, and then those that the trace leaves are set. ``grad``: whether to begin with
    gradients on although they are off (``turns_grad_on``).
    """
    states, grad = states_left(log), grad and not any(setter in REGIONS for setter, _, _ in log)
    if not (states or grad):
        return compiled
    setters = {(setter, *values[:-1]): (setter, values) for setter, values, _ in log if setter in STATE_SETTERS}

    def call(*args: Any) -> Any:
        before = [(setter, STATE_SETTERS[setter](*values)) for setter, values in setters.values()]
        nesting = autocast_nesting()
        try:
            if grad:
                SET_GRAD(True)
            results = compiled(*args)
        finally:
            for setter, values in before:
                setter(*values)
            nest_autocast(nesting)
        for setter, values in states:
            setter(*values)
        return results
    return call


def needs_order(graph: Graph) -> bool:
    """Whether only PyTorch, which runs the operations in order, changes the inputs of a graph as the program does, or
    goes backward through its results.
    """
    return (share_memory(graph) or raises_after_data(graph) or changes_history_by_data(graph)
            or returns_conjugated(graph.module) or cuts_history(graph) or gives_history_to_detached(graph)
            or saves_what_it_changes(graph) or needs_old_values(graph) or resizes_memory(graph)
            or changes_shape_of_input(graph.module))


def with_inference_results(compiled: Callable, which: Sequence[int]) -> Callable:
    """The compiled graph of a trace that enters inference mode. AOTAutograd does not, so the results become tensors
    of inference mode afterwards.
    """
    def call(*args: Any) -> Any:
        results = [*compiled(*args)]
        for i in which:
            results[i] = of_inference_mode(results[i])
        return results
    return call


def raising_asserted(compiled: Callable, asserted: Mapping[str, tuple[type, tuple]]) -> Callable:
    """A graph whose assertions raise the program's exceptions, which ``asserted`` has by the text of the assertion."""
    def run(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except RuntimeError as error:
            kind, args = asserted.get(str(error), (None, ()))
            if kind is None:
                raise
        raise kind(*args)
    return run
