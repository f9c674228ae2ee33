"""Sizes that vary from call to call: polynomials of symbols, with whole quotients and remainders as further factors.

One lowering serves all values of the symbols. Lowering and the passes compute with ``Size`` as with an int. A
comparison is decided for all values if possible. Otherwise the values of the current call decide it, and the decision
is an assumption of the result (``Facts.assumed``). Two sizes are equal if they are equal for all values, so code that
asks for equality must also be right if it gets False for numbers that are equal by accident.

A ``Size`` has no ``__index__`` and no ``__int__``: code that needs the number itself raises TypeError, and the graph is
lowered for this number. A heuristic, which only decides how fast the result is, asks for ``typical``.
"""
from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

LEAST = 2       # value of a symbol that is the size of an axis: sizes 0 and 1 are constants
Number = Any    # int | Size


@dataclasses.dataclass(frozen=True)
class Part:
    """``of // by`` or ``of % by``, rounded down as in Python."""

    sign: str
    of: Number
    by: Number

    def __str__(self) -> str:
        return f"({self.of} {self.sign} {self.by})"


Factor = str | Part
Terms = tuple[tuple[tuple[Factor, ...], int], ...]      # products of factors, and their coefficients


@dataclasses.dataclass(frozen=True)
class Size:
    """A sum of products. It is never a constant, which is an int."""

    terms: Terms

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __str__(self) -> str:
        texts = ["*".join(([str(c)] if c != 1 or not product else []) + [str(f) for f in product])
                 for product, c in self.terms]
        is_factor = self.terms[0][1] == 1 and len(self.terms[0][0]) == len(self.terms) == 1
        return texts[0] if is_factor else f"({' + '.join(texts)})"

    __repr__ = __str__

    # ---- arithmetic
    def __add__(self, other: Number) -> Number:
        if not isinstance(other, int | Size):
            return NotImplemented
        sums: dict[tuple[Factor, ...], int] = defaultdict(int, self.terms)
        for product, c in terms_of(other):
            sums[product] += c
        return made(sums)

    def __mul__(self, other: Number) -> Number:
        if not isinstance(other, int | Size):
            return NotImplemented
        sums: dict[tuple[Factor, ...], int] = defaultdict(int)
        for (a, ca), (b, cb) in itertools.product(self.terms, terms_of(other)):
            sums[tuple(sorted(a + b, key=str))] += ca * cb
        return made(sums)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Number:
        return self * -1

    def __sub__(self, other: Number) -> Number:
        return self + other * -1

    def __rsub__(self, other: Number) -> Number:
        return self * -1 + other

    def __floordiv__(self, other: Number) -> Number:
        return quotient(self, other)

    def __rfloordiv__(self, other: Number) -> Number:
        return quotient(other, self)

    def __mod__(self, other: Number) -> Number:
        return remainder(self, other)

    def __rmod__(self, other: Number) -> Number:
        return remainder(other, self)

    # ---- comparison
    def __lt__(self, other: Number) -> bool:
        return is_positive(other - self)

    def __gt__(self, other: Number) -> bool:
        return is_positive(self - other)

    def __le__(self, other: Number) -> bool:
        return not is_positive(self - other)

    def __ge__(self, other: Number) -> bool:
        return not is_positive(other - self)

    def evaluated(self, values: Mapping[str, int]) -> int:
        return sum(c * math.prod(_value(f, values) for f in product) for product, c in self.terms)


def symbol(name: str) -> Size:
    return Size((((name,), 1),))


def terms_of(value: Number) -> Terms:
    return value.terms if isinstance(value, Size) else (((), value),)


def made(sums: Mapping[tuple[Factor, ...], int]) -> Number:
    """The sum, as an int if it is one. Equal sums are equal objects."""
    terms = tuple(sorted(((p, c) for p, c in sums.items() if c), key=lambda t: (-len(t[0]), str(t[0]))))
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else Size(terms)


def divided(value: Number, by: Number) -> Number | None:
    """The quotient, if ``by`` divides the value whatever the symbols are; else None."""
    if isinstance(value, int) and isinstance(by, int):
        return value // by if value % by == 0 else None
    if len(terms_of(by)) > 1:
        return 1 if value == by else None
    (factors, divisor), = terms_of(by)
    found: dict[tuple[Factor, ...], int] = {}
    for product, c in terms_of(value):
        rest = list(product)
        for factor in factors:
            if factor not in rest:
                return 0 if value == 0 else None
            rest.remove(factor)
        if c % divisor:
            return None
        found[tuple(rest)] = c // divisor
    return made(found)


def quotient(value: Number, by: Number) -> Number:
    exact = divided(value, by)
    return symbolic(Part("//", value, by)) if exact is None else exact


def remainder(value: Number, by: Number) -> Number:
    return symbolic(Part("%", value, by)) if divided(value, by) is None else 0


def symbolic(part: Part) -> Size:
    return Size((((part,), 1),))


def _value(factor: Factor, values: Mapping[str, int]) -> int:
    if isinstance(factor, str):
        return values[factor]
    of, by = evaluated(factor.of, values), evaluated(factor.by, values)
    return of // by if factor.sign == "//" else of % by


def evaluated(value: Number, values: Mapping[str, int]) -> Any:
    return value.evaluated(values) if isinstance(value, Size) else value


@dataclasses.dataclass(frozen=True)
class Real:
    """A float that is computed from sizes, as Python computes it. Kernels read it from a tensor."""

    text: str

    def __str__(self) -> str:
        return self.text


# ---- what is known about the symbols -----------------------------------------------------------------------
@dataclasses.dataclass
class Facts:
    """The values of the symbols in the current call, and what has been assumed about all calls.

    Arguments:
        values: of each symbol.
        axes: the symbols that are sizes of axes, at least ``LEAST``.
    """

    values: Mapping[str, int]
    axes: frozenset[str]
    assumed: dict[Number, bool] = dataclasses.field(default_factory=dict)   # whether each number is positive

    def is_positive(self, number: Size) -> bool:
        proven = sign(number, self.axes)
        if proven is None:
            proven = self.assumed.setdefault(number, number.evaluated(self.values) > 0)
        return proven


_FACTS: ContextVar[Facts] = ContextVar("facts")


@contextmanager
def assuming(facts: Facts) -> Iterator[None]:
    """The context in which sizes are compared."""
    token = _FACTS.set(facts)
    try:
        yield
    finally:
        _FACTS.reset(token)


def is_positive(number: Number) -> bool:
    return number > 0 if isinstance(number, int) else _FACTS.get().is_positive(number)


def surely_less(a: Number, b: Number) -> bool:
    """Whether ``a < b`` holds for all values, without a new assumption."""
    number = b - a
    if isinstance(number, int):
        return number > 0
    facts = _FACTS.get()
    return bool(sign(number, facts.axes) or facts.assumed.get(number))


def varies(numbers: Iterable[Number]) -> bool:
    """Whether one of them differs from call to call."""
    return any(isinstance(number, Size) for number in numbers)


def typical(number: Number) -> Any:
    """The value in the current call, for decisions that only influence speed."""
    return number.evaluated(_FACTS.get().values) if isinstance(number, Size) else number


def sign(number: Size, axes: frozenset[str]) -> bool | None:
    """Whether a number is positive for all values, or for none; None if that depends on them.

    Each axis is written as ``LEAST`` plus a number that is not negative. If no coefficient is negative then, the
    smallest value is the constant.
    """
    sums: dict[tuple[Factor, ...], int] = defaultdict(int)
    for product, c in number.terms:
        if not all(f in axes or isinstance(f, Part) and _is_natural(f, axes) for f in product):
            return None
        shifts = [((f,), LEAST) if f in axes else ((f,),) for f in product]
        for chosen in itertools.product(*shifts):
            rest = tuple(f for f in chosen if not isinstance(f, int))
            flat = tuple(sorted((one for f in rest for one in (f if isinstance(f, tuple) else (f,))), key=str))
            sums[flat] += c * math.prod(f for f in chosen if isinstance(f, int))
    constant = sums.pop((), 0)
    if constant > 0 and all(c >= 0 for c in sums.values()):
        return True
    return False if constant <= 0 and all(c <= 0 for c in sums.values()) else None


def _is_natural(part: Part, axes: frozenset[str]) -> bool:
    """Whether it is never negative."""
    def natural(value: Number) -> bool:
        return value >= 0 if isinstance(value, int) else sign(value + 1, axes) is True
    return natural(part.of) and natural(part.by)
