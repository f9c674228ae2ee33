"""The guards of an entry: those of the trace, and what compiling its graph has added or made superfluous."""
from __future__ import annotations

from collections.abc import Mapping

from sot.codegen.build_graph import Graph, is_weight
from sot.codegen.compile_graph import Compiled
from sot.guards.guards import Guard
from sot.guards.tensor_guards import AnyTensorGuard, TensorGuard
from sot.interpreter.trace import Line, Trace
from sot.torch_compat.fake_tensors import is_symbolic
from sot.values.classes import is_of_made_class


def guards_of(trace: Trace, graph: Graph | None, compiled: Compiled | None) -> Mapping[Guard, Line]:
    """What must hold for an entry of the trace to be run, each guard with the line of the user's that needed it."""
    guards = trace.guards
    if graph is not None and compiled is not None and compiled.is_unchanged and graph.can_free_weights:
        guards = with_free_weights(guards, trace)
    return {**guards, **{guard: trace.line for guard in backend_assumptions(trace) if guard not in guards}}


def backend_assumptions(trace: Trace) -> list[Guard]:
    """What torch has assumed about symbols while the graph was compiled."""
    news = trace.symbols.news() if trace.symbols is not None else ()
    return [guard for guard in news if not is_of_made_class(guard, trace.made_classes)]


def with_free_weights(guards: Mapping[Guard, Line], trace: Trace) -> Mapping[Guard, Line]:
    """Let weights be of any dtype and shape that capture has seen nothing of: their guards ask for the class alone.

    PyTorch runs the graph as it runs the program, so what it does with such a weight is what the program would do with
    it. Where that raises, Python runs the frame from its start; so nothing may be in the graph that cannot be done
    twice. Arguments keep their guards, which say what a caller did otherwise.
    """
    trace.graph.pass_on_seen()
    free = {value.origin for value in trace.tensors if value.origin is not None and not value.ref.is_seen
            and is_weight(value.origin, value.ref.real) and not is_symbolic(value.ref.fake)}
    return {AnyTensorGuard(g.origin, type(trace.examples[g])) if isinstance(g, TensorGuard) and g.origin in free else g:
            line for g, line in guards.items()}
