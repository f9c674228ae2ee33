"""Numbers that vary from call to call.

A number is a constant of the trace until it has changed once. From then on it is one of these: known by an example,
computed again in emitted code, and handed to the graph as an input. Arithmetic makes new ones; a comparison
is decided by the example and guarded as it stands (``n < 10``). Whoever asks for the value itself (``real``)
makes it a constant after all.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from sot.graph import TensorRef
from sot.guards import RelationGuard, Term, leaves, term_code, term_text
from sot.origin import Origin
from sot.values.base import Const, LazyConst, Value, boolean

if TYPE_CHECKING:
    from sot.emit import Emitter
    from sot.execute.machine import Machine

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
              "%": operator.mod}
COMPARISONS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
               ">=": operator.ge}
NUMBER_TYPES = (int, float)
DEPTH_LIMIT = 20    # of a term; what is computed in more steps is a constant


class NumberRef(TensorRef):
    """A graph input that is a Python number."""

    __slots__ = ()

    def __init__(self, example: float, label: str) -> None:
        self.fake, self.node, self.real, self.label = example, None, example, label  # type: ignore[assignment]
        self.version = 0


class DynamicNumber(LazyConst):
    """An int or float of which ``term`` says how it is computed from what existed before."""

    def __init__(self, m: Machine, example: float, term: Term) -> None:
        super().__init__(m, example, term if isinstance(term, Origin) else next(leaves(term)))
        self.term = term
        self.example = example
        self._ref: NumberRef | None = None

    @property
    def varies(self) -> bool:
        return self._machine is not None

    @property
    def real(self) -> Any:
        if self._machine is not None:
            machine, self._machine = self._machine, None
            machine.guard(RelationGuard(self.origin, "==", self.term, self._value))
        return self._value

    def ref(self, m: Machine) -> NumberRef:
        """The number as an input of the graph."""
        if self._ref is None:
            self._ref = NumberRef(self.example, term_text(self.term))
            m.number_inputs[id(self._ref)] = self
        return self._ref

    def truth(self, m: Machine) -> bool | None:
        if not self.varies:
            return bool(self.real)
        return bool(compare(m, "!=", self, Const(0)).real)

    def rebuild(self, e: Emitter) -> str:
        return term_code(self.term, e) if self.varies else e.literal(self._value)

    def __str__(self) -> str:
        return term_text(self.term)


def is_dynamic(value: Value) -> bool:
    return isinstance(value, DynamicNumber) and value.varies


def operands(a: Value, b: Value) -> tuple[tuple[Any, Term], tuple[Any, Term]] | None:
    """Example and term of both operands, if one of them varies and both are numbers."""
    if not (is_dynamic(a) or is_dynamic(b)) or a.pytype not in NUMBER_TYPES or b.pytype not in NUMBER_TYPES:
        return None
    return _parts(a), _parts(b)


def _parts(value: Value) -> tuple[Any, Term]:
    if isinstance(value, DynamicNumber) and value.varies:
        return value.example, value.term
    return value.real, value.real


def arithmetic(m: Machine, symbol: str, a: Value, b: Value) -> Value | None:
    """``a <symbol> b`` for numbers of which one varies; None to leave it to the constants."""
    found = operands(a, b) if symbol in ARITHMETIC else None
    if found is None:
        return None
    (left, left_term), (right, right_term) = found
    try:
        example = ARITHMETIC[symbol](left, right)
    except ArithmeticError:
        return None
    term = folded(symbol, left_term, right_term)
    return DynamicNumber(m, example, term) if depth(term) <= DEPTH_LIMIT else None


def folded(symbol: str, left: Term, right: Term) -> Term:
    """``(n + 1) + 1`` is ``n + 2``: a counter in an unrolled loop stays as short as it is."""
    if symbol in ("+", "-") and type(right) is int and isinstance(left, tuple) and left[0] == "+" and (
            type(left[2]) is int):
        return ("+", left[1], left[2] + (right if symbol == "+" else -right))
    return ("+", left, -right) if symbol == "-" and type(right) is int else (symbol, left, right)


def depth(term: Term) -> int:
    return 1 + max(depth(term[1]), depth(term[2])) if isinstance(term, tuple) else 0


def negated(m: Machine, a: Value) -> Value | None:
    return arithmetic(m, "-", Const(0), a) if is_dynamic(a) and a.pytype is int else None


def compare(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b``, decided by the examples and guarded."""
    found = operands(a, b)
    if found is None:
        return boolean(COMPARISONS[symbol](a.real, b.real))
    (left, left_term), (right, right_term) = found
    holds = bool(COMPARISONS[symbol](left, right))
    origin = next(leaves((symbol, left_term, right_term)))
    m.guard(RelationGuard(origin, symbol, left_term, right_term, holds))
    return boolean(holds)
