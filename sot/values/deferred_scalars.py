"""Deferred scalars: Python numbers that emitted code reads from a tensor after the graph has run.

The value of ``loss.item()`` is needed during capture only if the program reads it: in a branch, an index. If the
program returns, stores or prints it, or computes with it, it is a ``DeferredScalar``: an expression in emitted code.
An operation on tensors takes it as a number of the graph (``graph_number``). Any other use raises ``NeededNow``. Then
the capture restarts and breaks where the number is read.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.guards.assumptions import Point, RestartCapture
from sot.guards.draws import Drawn
from sot.guards.terms import Term, leaves
from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import NotConstant, Value

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine
    from sot.values.text import ShownTensor

DEPTH_LIMIT = 60        # greatest depth of an expression
SIZE_BITS = 62          # greatest size of a varying int


class NeededNow(RestartCapture, NotConstant):
    """The program needs the value of a number that was deferred at one of ``points``. Code that can do without the
    constant catches this as ``NotConstant``.
    """

    def __init__(self, points: frozenset[Point]) -> None:
        super().__init__("the program needs a number that was deferred until after the graph", read_at_once=points)


class DeferredScalar(Value):
    """An int, float, bool or complex, or a NumPy array with the memory of a tensor. ``bits`` is the greatest bit length
    of an int, if it is known. ``reading`` is the value that yields this number. ``number`` makes a number of the graph
    of it. ``is_nonzero``: whether it is known that it is not zero.
    """

    is_nonzero = False

    def array_argument(self, m: Machine) -> Any:
        raise self.needed()

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.pytype is int or as_number:
            return self.graph_number(m)
        raise self.needed()

    def __init__(self, pytype: type, points: frozenset[Point], write: Callable[[Emitter], str], bits: float = 64,
                 depth: int = 0, reading: Reading | None = None,
                 number: Callable[[Any], Any] | None = None) -> None:
        if depth > DEPTH_LIMIT:
            raise NeededNow(points)
        self.pytype, self.points, self.write, self.bits, self.depth = pytype, points, write, bits, depth
        self.reading, self._number, self._in_graph = reading, number, None

    @property
    def is_in_graph(self) -> bool:
        """Whether the graph can compute the number."""
        return self._number is not None

    @property
    def is_held(self) -> bool:
        """Whether the graph has the number already."""
        return self._in_graph is not None

    def hold(self, number: Any) -> None:
        self._in_graph = number

    def graph_number(self, m: Machine) -> Any:
        """The number as a number of the graph, from now on."""
        if self._in_graph is None:
            if self._number is None:
                raise self.needed()
            self._in_graph = self._number(m)
        return self._in_graph

    @property
    def is_array(self) -> bool:
        return self.pytype not in (bool, int, float, complex)

    def needed(self) -> NeededNow:
        """The exception to raise when the number itself is needed."""
        return NeededNow(self.points)

    def constant(self) -> None:
        raise self.needed()

    def key(self) -> Any:
        """Python looks the key up, because a number that a graph reads is often another at the next call: as a
        constant it would need a capture each time.
        """
        raise Break(Reason.TENSOR_VALUE, "it is a key")

    def truth(self, m: Machine) -> bool | None:
        raise self.needed()

    def load_attr(self, m: Machine, name: str) -> Value:
        raise self.needed()

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, self.write(e))

    def __str__(self) -> str:
        return f"{self.pytype.__name__} that is read after the graph"


class Reading(Value):
    """The result of a tensor method that shows values, once the graph has run."""

    def __init__(self, shown: ShownTensor, points: frozenset[Point]) -> None:
        self.shown, self.points = shown, points

    def rebuild(self, e: Emitter) -> str:
        try:
            return e.variable(self, self.shown.expression(e))
        except NotRebuildable:      # the tensor changes later, and there is no copy
            raise NeededNow(self.points) from None


def refuse_drawn(*terms: Term) -> None:
    """A random number cannot be guarded: capture starts again, and breaks where the number is drawn."""
    points = {o.point for term in terms for o in leaves(term) if isinstance(o, Drawn)}
    if points:
        raise NeededNow(frozenset(points))
