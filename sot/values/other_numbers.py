"""Numbers of NumPy and complex numbers that vary from call to call. The graph does not compute with them.

Python computes them before the graph, from values that existed before: a term says how. An operation on tensors gets
the Python number of the same value. A term gives NaN where NumPy would warn or Python would raise. A guard fails then,
and Python runs the frame.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sot.guards.guards import RelationGuard
from sot.guards.origin import Origin
from sot.guards.terms import COMPARISONS, QUIET, Term, computed_before, depth, function_of, kind_of, leaves, term_code
from sot.support.errors import Break, Reason
from sot.values import numbers
from sot.values.arrays import ArrayValue, may_call_numpy
from sot.values.base import Const, LazyConst, OtherTensor, Value
from sot.values.constants import SCALARS
from sot.values.numbers import DEPTH_LIMIT, DynamicNumber, MemberWithNumber, is_member_with_number, number_ref

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine

KINDS = frozenset((complex, *(kind for kind in SCALARS if kind is not np.bool_)))
NUMBERS = (int, float, complex, np.number)
ITEM = np.generic.item
TO_PYTHON: dict[Any, type | None] = {int: int, float: float, ITEM: None}
CALLED: dict[Any, str] = {
    complex: "quiet complex", abs: "quiet abs",
    **{getattr(np, name.removeprefix("numpy.")): name for name in QUIET if name.startswith("numpy.")}}
FUNCTIONS = frozenset((*CALLED, *TO_PYTHON))


class OtherNumber(LazyConst):
    """A number of NumPy or a complex number. ``term`` says how it is computed from values that existed before."""

    def __init__(self, m: Machine, example: Any, term: Term) -> None:
        super().__init__(m, example, term if isinstance(term, Origin) else next(leaves(term)))
        self.term = term

    @property
    def real(self) -> Any:
        if (machine := self._machine) is not None:
            if not machine.varies.specialized.isdisjoint(leaves(self.term)):
                raise Break(Reason.VARYING_NUMBER, str(self))
            self._machine = None
            machine.guard(RelationGuard(self.origin, "==", ("repr", self.term), repr(self._value)))     # -0.0, NaN
        return self._value

    @property
    def place(self) -> Origin | None:
        return super().place if isinstance(self.term, Origin) else None

    def truth(self, m: Machine) -> bool | None:
        return bool(compared(m, "!=", self, Const(0)).real) if self.is_unread else bool(self.real)     # type: ignore[union-attr]

    def rebuild(self, e: Emitter) -> str:
        return term_code(self.term, e) if self.is_unread else Const.rebuild(self, e)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.is_unread and as_number and self.pytype is complex:
            return number_ref(m, computed_before(self.term, m.varying_numbers))
        return super().graph_argument(m, found, as_number)

    def __str__(self) -> str:
        return str(self.origin) if isinstance(self.term, Origin) else f"a number of type {self.pytype.__name__}"


def existing(m: Machine, real: Any, origin: Origin) -> Value:
    """A number of NumPy, a complex number or a member of an enum that existed before. A graph that calls NumPy gets
    a number of NumPy as it is.
    """
    kind = type(real)
    if is_member_with_number(real):
        return MemberWithNumber(m, real, origin)
    if kind in SCALARS and may_call_numpy(m):
        return ArrayValue.existing(m, real, origin)
    if kind not in KINDS:
        return OtherTensor(real, origin, "a number of NumPy that differs from call to call")
    m.varying_numbers[origin] = real
    return OtherNumber(m, real, origin)


def is_other(value: Value | None) -> bool:
    return isinstance(value, OtherNumber) and value.is_unread


def is_number(value: Value) -> bool:
    return isinstance(value, Const) and issubclass(value.pytype, NUMBERS)


def parts(value: Any) -> tuple[Any, Term]:
    """The example and the term of a number."""
    if isinstance(value, DynamicNumber | OtherNumber) and value.is_unread:
        return value.unguarded, value.term
    return value.real, value.real


def computed(m: Machine, name: str, *values: Value) -> Value | None:
    """A number that a function of terms computes. None if the constants should be used."""
    if not all(map(is_number, values)):
        return None
    examples, terms = zip(*map(parts, values), strict=True)
    try:
        example = function_of(name)(*examples)
    except (ArithmeticError, TypeError, ValueError):
        return None
    term, kind = (name, *terms), kind_of(example)
    origin = next(leaves(term), None)
    if origin is None or kind not in (*KINDS, int, float) or depth(term) > DEPTH_LIMIT:
        return None
    m.guard(RelationGuard(origin, "!=", ("kind_of", term), kind, False))
    if kind in (int, float):
        return DynamicNumber(m, example, computed_before(term, m.varying_numbers))
    return OtherNumber(m, example, term)


def arithmetic(m: Machine, symbol: str, a: Value, b: Value) -> Value | None:
    """``a <symbol> b`` for numbers of which at least one varies; None if the constants should be used."""
    if (found := numbers.arithmetic(m, symbol, a, b)) is not None:
        return found
    name = f"quiet {symbol}"
    return computed(m, name, a, b) if name in QUIET and (is_other(a) or is_other(b)) else None


def negated(m: Machine, a: Value) -> Value | None:
    return computed(m, "quiet neg", a) if is_other(a) else numbers.negated(m, a)


def compared(m: Machine, symbol: str, a: Value, b: Value) -> Value | None:
    """``a <symbol> b``, decided by the examples and guarded; None if the constants should be used."""
    if numbers.operands(a, b) is not None:
        return numbers.compare(m, symbol, a, b)
    if not (is_other(a) or is_other(b)) or not (is_number(a) and is_number(b)):
        return None
    (left, left_term), (right, right_term) = parts(a), parts(b)
    try:
        holds = COMPARISONS[symbol](left, right)
    except TypeError:
        return None
    m.guard(RelationGuard(next(leaves((symbol, left_term, right_term))), symbol, left_term, right_term, bool(holds)))
    return Const(holds)


def called(m: Machine, function: Callable[..., Any], args: list[Value]) -> Value | None:
    """A function of numbers that is computed before the graph."""
    if function in TO_PYTHON:
        made = as_python(m, args[0], TO_PYTHON[function]) if len(args) == 1 else None
        return None if is_other(made) else made     # where it cannot be converted
    if function in CALLED:
        return computed(m, CALLED[function], *args)
    return None


def as_python(m: Machine, value: Value, kind: type | None = None) -> Value:
    """The Python number of a number; ``kind`` is its class if that of its value is not meant."""
    if not is_other(value):
        return value
    if issubclass(value.pytype, np.complex128) and kind is None:
        kind = complex
    elif issubclass(value.pytype, complex | np.complexfloating):
        return value
    kind = kind or (int if issubclass(value.pytype, np.integer) else float)
    return computed(m, f"quiet {kind.__name__}", value) or value


__all__ = ["FUNCTIONS", "KINDS", "OtherNumber", "arithmetic", "as_python", "called", "compared",
           "existing", "is_other", "negated"]
