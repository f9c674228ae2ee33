"""Numbers that vary from call to call.

A number is a constant of the trace until it has changed once. From then on it is one of these. Capture knows an
example of it, emitted code computes it again, and the graph gets it as an input. Arithmetic makes new ones. A
comparison is decided by the example and guarded (``n < 10``). Code that reads the value itself (``real``) makes it a
constant.
"""
from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Collection
from enum import Enum
from math import copysign
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import NumberRef
from sot.guards.guards import IsGuard, RelationGuard, TypeGuard
from sot.guards.origin import Attr, Origin, TensorPart
from sot.guards.symbols import on_numbers
from sot.guards.terms import (
    COMPARISONS,
    DOMAINS,
    INFINITE,
    INFIX,
    OF_BITS,
    Term,
    computed_before,
    depth,
    function_of,
    is_of_symbols,
    leaves,
    term_code,
    term_text,
)
from sot.support.errors import Break, Reason
from sot.values.base import Const, LazyConst, Value, boolean

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine

ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**", *OF_BITS))
NUMBER_TYPES = (int, float)
LARGEST, MODERATE = 1000.0, 30.0     # exponents of 2: of the largest power, and of a base that varies
KEY_LIMIT = 32      # a number is compared with at most so many keys of a container
COMPARED = frozenset((int, float, bool, str, bytes, type(None)))     # their comparison with a number calls no code
DEPTH_LIMIT = 20    # greatest depth of a term; a number that is computed in more steps is a constant


class DynamicNumber(LazyConst):
    """An int or float. ``term`` says how it is computed from values that existed before.

    ``symbol`` is the SymInt that stands for it where it is a size or may become one.
    """

    def __init__(self, m: Machine, example: float, term: Term, symbol: torch.SymInt | None = None) -> None:
        super().__init__(m, example, term if isinstance(term, Origin) else next(leaves(term)))
        self.term = term
        self.example = example
        self._symbol: Any = symbol
        self._ref: NumberRef | None = None

    @property
    def varies(self) -> bool:
        return self._machine is not None

    @property
    def place(self) -> Origin | None:
        return super().place if isinstance(self.term, Origin) else None

    @property
    def was_constant(self) -> bool:
        """Whether it became a constant in an earlier capture, and then differed."""
        return self._machine is not None and not self._machine.varies.specialized.isdisjoint(leaves(self.term))

    @property
    def is_size(self) -> bool:
        """Whether it is computed from sizes, about which torch makes assumptions."""
        return any(isinstance(o, TensorPart) for o in leaves(self.term))

    @property
    def real(self) -> Any:
        if self._machine is not None:
            if self.pytype is float and self.was_constant:
                raise Break(Reason.VARYING_NUMBER, str(self))
            machine, self._machine = self._machine, None
            try:
                self.assume(machine)
            except BaseException:
                self._machine = machine     # a number that no guard can compare still varies
                raise
        return self._value

    def assume(self, m: Machine) -> None:
        """Guard that it is the number of this call. Raises Break if it is drawn in the call."""
        if self._symbol is not None:
            int(self._symbol)
            m.note_assumptions()
        elif self._value != self._value:
            m.guard(RelationGuard(self.origin, "!=", self.term, self.term))
        else:
            m.guard(RelationGuard(self.origin, "==", self.term, self._value))
            if self.pytype is float and self._value == 0.0:     # -0.0 is another number
                m.guard(RelationGuard(self.origin, "==", ("sign", self.term), copysign(1, self._value)))

    def symbol(self, m: Machine) -> Any:
        """torch's form of the number: a SymInt, a plain int if torch has found its value, or None."""
        if self._symbol is None and self.pytype is int:
            self._symbol = m.symbols.value(self.term, m.varying_numbers)
        return self._symbol

    def ref(self, m: Machine) -> NumberRef:
        """The number as a number of the graph."""
        if self._ref is None:
            self._ref = number_ref(m, self.term, self.example, self.symbol(m))
        return self._ref

    def truth(self, m: Machine) -> bool | None:
        if not self.varies:
            return bool(self.real)
        return bool(compare(m, "!=", self, Const(0)).real)

    def rebuild(self, e: Emitter) -> str:
        return term_code(self.term, e) if self.varies else Const.rebuild(self, e)

    def __str__(self) -> str:
        return term_text(self.term)

    def array_argument(self, m: Machine) -> Any:
        return self.ref(m) if self.varies else super().array_argument(m)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.varies and (self.pytype is int or as_number):
            return self.ref(m)
        return super().graph_argument(m, found, as_number)


class MemberWithNumber(LazyConst):
    """A member of an enum whose value is a number. It differs from call to call: only the number is read as one that
    varies. Code that reads anything else makes the member a constant.
    """

    @property
    def real(self) -> Any:
        if self._machine is not None:
            machine, self._machine = self._machine, None
            machine.guard(IsGuard(self.origin, self._value))
        return self._value

    def load_attr(self, m: Machine, name: str) -> Value:
        if self.is_unread and (name == "_value_" or name == "value" and has_plain_value(self.pytype)):
            number, origin = self._value._value_, Attr(self.origin, "_value_")
            m.guard(TypeGuard(origin, type(number)))
            return m.varying_number(number, origin)
        self.real  # noqa: B018 - guards it
        return super().load_attr(m, name)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.is_unread and not issubclass(self.pytype, NUMBER_TYPES):
            raise Break(Reason.OPAQUE_VALUE, f"{self} as an argument of a tensor operation")
        if self.is_unread and all(type(v._value_)(v) == v._value_ for v in list[Any](self.pytype)):  # type: ignore[call-overload]
            return self.load_attr(m, "_value_").graph_argument(m, found, as_number)
        return super().graph_argument(m, found, as_number)


def has_plain_value(kind: type) -> bool:
    """Whether the ``value`` of an enum's members is what the class statement has given."""
    return inspect.getattr_static(kind, "value") is vars(Enum)["value"]


def is_member_with_number(real: Any) -> bool:
    return isinstance(real, Enum) and type(real._value_) in NUMBER_TYPES


class VaryingRange(LazyConst):
    """``range(...)`` of numbers of which one varies. Code that reads its elements makes them constants."""

    def __init__(self, m: Machine, parts: list[Value]) -> None:
        varying = next(p for p in parts if isinstance(p, DynamicNumber) and p.varies)
        examples: list[Any] = [p.example if isinstance(p, DynamicNumber) else p.real for p in parts]
        super().__init__(m, range(*examples), varying.origin)
        self.parts = parts

    place = None

    @property
    def varies(self) -> bool:
        return self._machine is not None

    @property
    def real(self) -> Any:
        found = range(*(p.real for p in self.parts))
        self._machine = None
        return found

    def rebuild(self, e: Emitter) -> str:
        return f"range({', '.join(map(e.value, self.parts))})" if self.varies else e.literal(self.real)

    def __str__(self) -> str:
        return f"range({', '.join(map(str, self.parts))})"


def number_ref(m: Machine, term: Term, example: Any = None, symbol: Any = None) -> Any:
    """A term as a number of the graph: its origins are inputs, and the graph computes the rest."""
    if isinstance(term, Origin):
        found = m.number_inputs.get(term)
        if found is None:
            example = m.varying_numbers[term]
            symbol = m.symbols.number(term, example) if type(example) is int else example
            found = m.number_inputs[term] = NumberRef(symbol, example, term_text(term))
            m.input_origins[id(found)] = term
        return found
    if is_computed_before(m, term, example):
        return number_ref(m, computed_before(term, m.varying_numbers))
    if isinstance(term, tuple):
        parts = tuple(number_ref(m, part) for part in term[1:])
        if symbol is None:
            symbol = m.symbols.value(term, m.varying_numbers)
        return NumberRef(symbol, example, "", on_numbers(term[0]), parts)
    return term


def is_computed_before(m: Machine, term: Term, example: Any) -> bool:
    """Whether Python computes the number before the graph. The graph computes only ints and numbers that follow from
    sizes.
    """
    if not isinstance(term, tuple):
        return False
    below = [*leaves(term)]
    if not is_of_symbols(term) or any(type(m.varying_numbers.get(o)) is float for o in below):
        return True
    return type(example) is float and not all(isinstance(o, TensorPart) for o in below)


def is_dynamic(value: Value) -> bool:
    return isinstance(value, DynamicNumber) and value.varies


def operands(a: Value, b: Value) -> tuple[tuple[Any, Term], tuple[Any, Term]] | None:
    """Example and term of both operands, if both are numbers and at least one varies."""
    if not (is_dynamic(a) or is_dynamic(b)) or a.pytype not in NUMBER_TYPES or b.pytype not in NUMBER_TYPES:
        return None
    return _parts(a), _parts(b)


def _parts(value: Value) -> tuple[Any, Term]:
    if isinstance(value, DynamicNumber) and value.varies:
        return value.example, value.term
    return value.real, value.real


def arithmetic(m: Machine, symbol: str, a: Value, b: Value) -> Value | None:
    """``a <symbol> b`` for numbers of which at least one varies; None if the constants should be used."""
    found = operands(a, b) if symbol in ARITHMETIC else None
    if found is None:
        return None
    (left, left_term), (right, right_term) = found
    if symbol in OF_BITS and not type(left) is type(right) is int:
        return None
    if symbol == "**" and not power_of_known_type(left_term, right_term) and not is_float_power(m, a, b):
        return None
    try:
        example = INFIX[symbol][0](left, right)
    except (ArithmeticError, MemoryError, ValueError):
        return None
    if symbol in ("<<", ">>") and right > 62:
        return None
    stay_in_domain(m, symbol, b)
    return computed(m, example, folded(symbol, left_term, right_term))


def power_of_known_type(base: Term, exponent: Term) -> bool:
    """Whether the type of the result is known for all values. A negative exponent makes a float, a negative base a
    complex number.
    """
    if type(exponent) is int and exponent > 0:
        return True
    return isinstance(base, TensorPart) and type(exponent) is float


def is_float_power(m: Machine, base: Value, exponent: Value) -> bool:
    """Guard that ``base ** exponent`` is a float in Python, and that it is not too large."""
    (left, _), (right, _) = operands(base, exponent) or ((0, 0), (0, 0))
    if float not in (type(left), type(right)):
        return False
    if is_dynamic(base) and is_dynamic(exponent):
        return within(m, base, 2.0 ** -MODERATE, 2.0 ** MODERATE) and within(
            m, exponent, -LARGEST / MODERATE, LARGEST / MODERATE)
    if is_dynamic(exponent):
        if left == 0:
            return within(m, exponent, 0.0, INFINITE)
        if not left > 0:
            return False
        bits = math.log2(left)
        return within(m, exponent, LARGEST / bits if bits < 0 else -INFINITE, LARGEST / bits if bits > 0 else INFINITE)
    least, most = 2.0 ** (LARGEST / right) if right < 0 else 0.0, 2.0 ** (LARGEST / right) if right > 1 else INFINITE
    return within(m, base, least, most)


def within(m: Machine, value: Value, least: float, most: float) -> bool:
    """Guard that a number is between two others, if it is now."""
    (example, _), _ = operands(value, Const(0)) or ((0, 0), 0)
    if not least <= example <= most:
        return False
    limits = ((">=", least), ("<=", most))
    return all(compare(m, symbol, value, Const(limit)).real for symbol, limit in limits if abs(limit) < INFINITE)


def is_among(m: Machine, value: Any, keys: Collection[Any]) -> bool | None:
    """``value in keys``, decided by the example and guarded; None if the number itself is needed to know."""
    found = [key for key in keys if isinstance(key, NUMBER_TYPES)]
    if len(found) > KEY_LIMIT or not all(type(key) in COMPARED for key in keys):
        return None
    if any(key != key for key in found):    # a NaN is among them if it is this object
        return None
    same = [key for key in found if key == value.example]
    if not same:
        return not all(compare(m, "!=", value, Const(key)).real for key in found)
    if value.is_size or len(found) == 1:
        return bool(compare(m, "==", value, Const(same[0])).real)
    terms: list[Term] = [("==", value.term, key) for key in found]
    m.guard(RelationGuard(value.origin, "or", functools.reduce(lambda a, b: ("or", a, b), terms[1:]), terms[0]))
    return True


def computed(m: Machine, example: Any, term: Term) -> Value | None:
    """A number that is computed from others; None if it took too many steps."""
    return DynamicNumber(m, example, term) if depth(term) <= DEPTH_LIMIT else None


def applied(m: Machine, name: str, *values: Value) -> Value | None:
    """A function of numbers (``FUNCTIONS`` of terms) of which at least one varies; None if the constants should be
    used.
    """
    if not any(map(is_dynamic, values)) or any(v.pytype not in NUMBER_TYPES for v in values):
        return None
    parts = [_parts(v) for v in values]
    try:
        example = function_of(name)(*(example for example, _ in parts))
    except (ArithmeticError, ValueError):
        return None
    stay_in_domain(m, name, values[0])
    return computed(m, example, (name, *(term for _, term in parts)))


def stay_in_domain(m: Machine, name: str, operand: Value) -> None:
    """Guard that Python will not raise when the number is computed again."""
    if is_dynamic(operand) and (operand.pytype is float or name in INFIX):
        for symbol, bound in DOMAINS.get(name, ()):
            compare(m, symbol, operand, Const(bound))


def folded(symbol: str, left: Term, right: Term) -> Term:
    """``(n + 1) + 1`` as ``n + 2``, so that a counter in an unrolled loop stays short. ``n >> 1`` as ``n // 2``, which
    torch knows.
    """
    if symbol in ("<<", ">>") and type(right) is int:
        return ("*" if symbol == "<<" else "//", left, 1 << right)
    if symbol in ("+", "-") and type(right) is int and isinstance(left, tuple) and left[0] == "+" and (
            type(left[2]) is int):
        return ("+", left[1], left[2] + (right if symbol == "+" else -right))
    return ("+", left, -right) if symbol == "-" and type(right) is int else (symbol, left, right)


def is_finite(m: Machine, value: Value) -> Value:
    """``math.isfinite``"""
    if value.pytype is int:
        return boolean(True)
    return boolean(bool(compare(m, "<", value, Const(INFINITE)).real and compare(m, ">", value, Const(-INFINITE)).real))


def is_nan(m: Machine, value: Value) -> Value:
    """``math.isnan``"""
    return compare(m, "!=", value, value)


def is_infinite(m: Machine, value: Value) -> Value:
    """``math.isinf``"""
    return boolean(not is_nan(m, value).real and not is_finite(m, value).real)


def negated(m: Machine, a: Value) -> Value | None:
    return applied(m, "neg", a)


def compare(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b``, decided by the examples and guarded."""
    found = operands(a, b)
    if found is None:
        return boolean(COMPARISONS[symbol](a.real, b.real))
    (left, left_term), (right, right_term) = found
    holds = bool(COMPARISONS[symbol](left, right))
    if any(isinstance(v, DynamicNumber) and v.varies and v.is_size for v in (a, b)):
        numbers = _symbol(m, a), _symbol(m, b)
        if all(number is not None for number in numbers):
            holds = bool(COMPARISONS[symbol](*numbers))     # torch may know the answer without a guard
            if m.note_assumptions() or not m.assumptions.of_file:
                return boolean(holds)
            if (symbol, right_term) == (">=", 2):       # as sizes are for torch; a file also takes those of 0 and 1
                symbol, right_term = ">", 1
    origin = next(leaves((symbol, left_term, right_term)))
    m.guard(RelationGuard(origin, symbol, left_term, right_term, holds))
    return boolean(holds)


def _symbol(m: Machine, value: Value) -> Any:
    if isinstance(value, DynamicNumber) and value.varies:
        return value.symbol(m)
    return value.real if value.pytype is int else None
