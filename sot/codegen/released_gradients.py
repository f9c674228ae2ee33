"""The gradients of the last step are released before the graph runs, as ``zero_grad`` releases them in plain Python.

All other changes of objects are written after the graph. Until then ``p.grad`` would keep the old gradient in memory,
next to the new one: as much as all parameters.
"""
from __future__ import annotations

from collections.abc import Iterable

from sot.codegen.build_graph import Graph
from sot.guards.origin import Attr, Origin, attribute, path
from sot.interpreter.trace import Trace
from sot.values.base import Value
from sot.values.tensor import TensorValue


def unread_gradients(trace: Trace, graph: Graph, read: Iterable[Origin]) -> list[Attr]:
    """The old gradients that the frame replaces, and that neither the graph nor the exit reads.

    If the graph raises, Python may run the frame from the start, or the program goes on with the old gradient. So only
    those count that the frame has read in ``zero_grad`` alone, where it makes no difference whether there is one, and
    before which nothing can raise.

    Args:
        read: what the exit reads.
    """
    used = {origin for end in (*graph.inputs, *read) for origin in path(end)}
    may_raise = graph.changes.may_run_again or graph.changes.refuses
    return [gradient for leaf in trace.mutated if (gradient := replaced(leaf, may_raise)) is not None
            and gradient not in used]


def replaced(leaf: Value, may_raise: bool) -> Attr | None:
    """The origin of the gradient that a leaf of autograd had before the frame and no longer has; else None."""
    if not isinstance(leaf, TensorValue) or leaf.origin is None or "grad" not in leaf.attrs:
        return None
    real = leaf.ref.real
    if real is None or not real.is_leaf or real.grad is None or may_raise and not leaf.drops_gradient:
        return None
    return attribute(leaf.origin, "grad", leaf.pytype)
