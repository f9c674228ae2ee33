"""Numbers of Python that are read off a tensor once the graph has run.

``loss.item()`` is needed at once only where the program looks at the number: a branch, an index, a tensor operation. A
program that returns, stores or prints it, or reckons with it, gets a ``DeferredScalar``: an expression in emitted code.
Whoever asks for more raises ``NeededNow``: capture begins again, and breaks where the number is read.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.guards.assumptions import Point, RestartCapture
from sot.support.errors import NotRebuildable
from sot.values.base import NotConstant, Value

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine
    from sot.values.text import ShownTensor

DEPTH_LIMIT = 60        # of expressions


class NeededNow(RestartCapture, NotConstant):
    """The program looks at a number that was to be read after the graph, at one of ``points``. Code that can do without
    the constant catches it as ``NotConstant``."""

    def __init__(self, points: frozenset[Point]) -> None:
        super().__init__("the program looks at a number that was to be read after the graph", read_at_once=points)


class DeferredScalar(Value):
    """An int, float or bool, or an array of NumPy's that has the memory of a tensor. ``bits`` are those that an int has
    at most, if that is known; ``reading`` is what has just this number."""

    def array_argument(self, m: Machine) -> Any:
        raise self.needed()

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        raise self.needed()

    def __init__(self, pytype: type, points: frozenset[Point], write: Callable[[Emitter], str], bits: float = 64,
                 depth: int = 0, reading: Reading | None = None) -> None:
        if depth > DEPTH_LIMIT:
            raise NeededNow(points)
        self.pytype, self.points, self.write, self.bits, self.depth = pytype, points, write, bits, depth
        self.reading = reading

    @property
    def is_array(self) -> bool:
        return self.pytype not in (bool, int, float)

    def needed(self) -> NeededNow:
        """What to raise where the number itself is asked for."""
        return NeededNow(self.points)

    def constant(self) -> None:
        raise self.needed()

    def truth(self, m: Machine) -> bool | None:
        raise self.needed()

    def load_attr(self, m: Machine, name: str) -> Value:
        raise self.needed()

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, self.write(e))

    def __str__(self) -> str:
        return f"{self.pytype.__name__} that is read after the graph"


class Reading(Value):
    """What a method of a tensor gives that shows its values, once the graph has run."""

    def __init__(self, shown: ShownTensor, points: frozenset[Point]) -> None:
        self.shown, self.points = shown, points

    def rebuild(self, e: Emitter) -> str:
        try:
            return e.variable(self, self.shown.expression(e))
        except NotRebuildable:      # the tensor is changed later, and there is no copy
            raise NeededNow(self.points) from None
