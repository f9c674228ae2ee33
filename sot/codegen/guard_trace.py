"""The guards of an entry: those of the trace, and those that compilation of its graph has added or made
superfluous.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sot.codegen.build_graph import Graph, is_weight
from sot.codegen.compile_graph import Compiled
from sot.codegen.compiled_graphs.inputs.shared_arguments import guards_of_memory
from sot.codegen.compiled_graphs.inputs.wrapper_inputs import guards_of_wrappers
from sot.guards.guards import Guard
from sot.guards.origin import Origin
from sot.guards.tensor_guards import AnyTensorGuard, ConstantGuard, TensorGuard
from sot.interpreter.trace import Line, Trace
from sot.torch_compat.fake_tensors import is_symbolic
from sot.values.classes import is_of_made_class


def guards_of(trace: Trace, graph: Graph | None, compiled: Compiled | None) -> Mapping[Guard, Line]:
    """The guards of an entry of the trace, each with the user's line that needed it."""
    guards = trace.guards
    if graph is not None and compiled is not None and compiled.is_unchanged and graph.can_free_weights:
        guards = with_free_weights(guards, trace)
    if graph is not None and compiled is not None and not compiled.is_unchanged:
        guards = {**guards, **dict.fromkeys(guards_of_wrappers(graph), trace.line)}
    if graph is not None and compiled is not None and (compiled.shares_memory or not compiled.is_unchanged):
        guards = {**guards, **dict.fromkeys(guards_of_memory(graph), trace.line)}
    more = [*backend_assumptions(trace), *constant_weights(trace, compiled.constants if compiled is not None else ())]
    return {**guards, **{guard: trace.line for guard in more if guard not in guards}}


def constant_weights(trace: Trace, origins: Iterable[Origin]) -> Iterator[Guard]:
    """Weights whose values the compiled graph has: they are the same objects, and nothing has changed them."""
    for origin in origins:
        weight: Any = origin.read(trace.inputs)
        yield ConstantGuard(origin, weight, weight._version)


def backend_assumptions(trace: Trace) -> list[Guard]:
    """The assumptions that torch has made about symbols while the graph was compiled."""
    news = trace.symbols.news() if trace.symbols is not None else ()
    return [guard for guard in news if not is_of_made_class(guard, trace.made_classes)]


def with_free_weights(guards: Mapping[Guard, Line], trace: Trace) -> Mapping[Guard, Line]:
    """Let unseen weights have any dtype and shape: their guards compare only the class.

    PyTorch runs the graph as it would run the program, so it treats such a weight as in the program. If that raises,
    Python runs the frame from its start, so the graph must not contain anything that cannot be repeated. Guards on
    arguments stay, because they report what a caller changed.
    """
    trace.graph.pass_on_seen()
    free = {value.origin for value in trace.tensors if value.origin is not None and not value.ref.is_seen
            and is_weight(value.origin, value.ref.real) and not is_symbolic(value.ref.fake)}
    return {AnyTensorGuard(g.origin, type(trace.examples[g])) if isinstance(g, TensorGuard) and g.origin in free else g:
            line for g, line in guards.items()}
