"""Integer arithmetic on the axes of an index space, for positions in buffers.

An ``Index`` is ``const + sum(coefficient * atom)``. An atom is a variable's name, or the quotient or remainder of an
``Index`` by a positive number. It prints as Python, and ``parse`` reads that back. The ranges of variables are not
part of it. ``Ranges`` maps a variable to its size, and is needed to simplify quotients and remainders.
"""
from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from sot.graph.kernels.sizes import Number, Size, divided, surely_less, terms_of

Ranges = Mapping[str, Number]


@dataclasses.dataclass(frozen=True)
class Division:
    """``of // by`` or ``of % by``. ``of`` is never negative where this is evaluated."""

    sign: str
    of: Index
    by: Number

    def __str__(self) -> str:
        return f"({self.of}) {self.sign} {self.by}"


Atom = str | Division


@dataclasses.dataclass(frozen=True)
class Index:
    terms: tuple[tuple[Atom, Number], ...] = ()
    const: Number = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.terms, self.const)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __add__(self, other: Index | Number) -> Index:
        other = index(other)
        if not self.terms:
            return other if not self.const else Index(other.terms, self.const + other.const)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        return make(sums.items(), self.const + other.const)

    def __mul__(self, factor: Number) -> Index:
        return make(((a, c * factor) for a, c in self.terms), self.const * factor)

    def __sub__(self, other: Index | Number) -> Index:
        return self + index(other) * -1

    def __str__(self) -> str:
        parts = [f"{c}*{_grouped(a)}" if c != 1 else _grouped(a) for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    @property
    def names(self) -> frozenset[str]:
        return _names(self)


def _grouped(atom: Atom) -> str:
    return atom if isinstance(atom, str) else f"({atom})"


@functools.lru_cache(maxsize=1 << 16)
def _names(of: Index) -> frozenset[str]:
    found: set[str] = set()
    for atom, _ in of.terms:
        found |= {atom} if isinstance(atom, str) else _names(atom.of)
    return frozenset(found)


def make(terms: Iterable[tuple[Atom, Number]], const: Number) -> Index:
    """Sorted and without zeros, so equal sums are equal objects. ``a % n + n * (a // n)`` is ``a``."""
    found = {a: c for a, c in terms if c != 0}
    for atom, coefficient in found.items():
        if isinstance(atom, Division) and atom.sign == "%":
            (quotient, _), = _atom("//", atom.of, atom.by).terms
            if found.get(quotient) == coefficient * atom.by:
                del found[atom], found[quotient]
                return make(found.items(), const) + atom.of * coefficient
    return Index(tuple(sorted(found.items(), key=lambda t: str(t[0]))), const)


def index(value: Index | Number | str) -> Index:
    if isinstance(value, Index):
        return value
    return Index(((value, 1),)) if isinstance(value, str) else Index((), value)


def dot(axes: Iterable[Index], strides: Iterable[Number], offset: Number = 0) -> Index:
    """``offset + sum(axis * stride)``."""
    total = Index((), offset)
    for axis, stride in zip(axes, strides, strict=True):
        total = total + axis * stride
    return total


# ---- ranges ----------------------------------------------------------------------------------------------
def bounds(of: Index, ranges: Ranges) -> tuple[Number, Number] | None:
    """The smallest and largest value; None if a variable has no range."""
    low = high = of.const
    for atom, coefficient in of.terms:
        found = _atom_bounds(atom, ranges)
        if found is None:
            return None
        ends = (found[0] * coefficient, found[1] * coefficient)
        if surely_less(ends[1], ends[0]):
            ends = ends[::-1]
        elif ends[0] != ends[1] and not surely_less(ends[0], ends[1]):
            return None
        low, high = low + ends[0], high + ends[1]
    return low, high


def _atom_bounds(atom: Atom, ranges: Ranges) -> tuple[Number, Number] | None:
    if isinstance(atom, str):
        return (0, ranges[atom] - 1) if atom in ranges else None
    inner = bounds(atom.of, ranges)
    if atom.sign == "%":
        return 0, inner[1] if inner and surely_less(inner[1], atom.by) else atom.by - 1
    return (inner[0] // atom.by, inner[1] // atom.by) if inner else None


def floordiv(of: Index, by: Number, ranges: Ranges) -> Index:
    whole, rest = split(of, by)
    inside = bounds(rest, ranges)
    if inside is not None and surely_less(-1, inside[0]):
        if surely_less(inside[1], by):
            return whole
        return whole + _atom("//", rest, by)
    return _atom("//", of, by)


def mod(of: Index, by: Number, ranges: Ranges) -> Index:
    _, rest = split(of, by)
    inside = bounds(rest, ranges)
    if inside is not None and surely_less(-1, inside[0]):
        return rest if surely_less(inside[1], by) else _atom("%", rest, by)
    return _atom("%", of, by)


def split(of: Index, by: Number) -> tuple[Index, Index]:
    """``whole`` and ``rest`` with ``of == whole * by + rest``: the terms that ``by`` divides, and the other terms."""
    exact = [(a, c, divided(c, by)) for a, c in of.terms]
    whole_const, rest_const = _constant_terms(of.const, by)
    return (make(((a, q) for a, _, q in exact if q is not None), whole_const),
            make(((a, c) for a, c, q in exact if q is None), rest_const))


def _constant_terms(const: Number, by: Number) -> tuple[Number, Number]:
    """The same for the constant."""
    if isinstance(const, int) and isinstance(by, int):
        return divmod(const, by)
    parts = [Size((term,)) if term[0] else term[1] for term in terms_of(const)]
    whole = [q for part in parts if (q := divided(part, by)) is not None]
    rest = [part for part in parts if divided(part, by) is None]
    return sum(whole), sum(rest)


def _atom(sign: str, of: Index, by: Number) -> Index:
    if by == 1:
        return of if sign == "//" else Index()
    if not of.terms:
        return Index((), of.const // by if sign == "//" else of.const % by)
    if len(of.terms) == 1 and not of.const and of.terms[0][1] == 1 and isinstance(of.terms[0][0], Division):
        inner = of.terms[0][0]
        if inner.sign == sign == "//":
            return _atom("//", inner.of, inner.by * by)
    return Index(((Division(sign, of, by), 1),))


def substitute(of: Index, values: Mapping[str, Index], ranges: Ranges) -> Index:
    """The index with other expressions for its variables. ``ranges`` are those of the new variables."""
    if not (of.names & values.keys()):
        return of
    total = Index((), of.const)
    for atom, coefficient in of.terms:
        if isinstance(atom, str):
            new = values.get(atom) or Index(((atom, 1),))
        else:
            inner = substitute(atom.of, values, ranges)
            new = (floordiv if atom.sign == "//" else mod)(inner, atom.by, ranges)
        total = total + new * coefficient
    return total


def unravel(flat: Index, sizes: Iterable[Number], ranges: Ranges) -> tuple[Index, ...]:
    """The axes of a row-major space of these sizes at a flat position."""
    axes: list[Index] = []
    for position, size in enumerate(reversed(tuple(sizes))):
        last = position + 1 == len(tuple(sizes))
        axes.append(flat if last else mod(flat, size, ranges))
        flat = flat if last else floordiv(flat, size, ranges)
    return tuple(axis if size > 1 else Index() for axis, size in zip(reversed(axes), tuple(sizes), strict=True))


def evaluate(of: Index, values: Mapping[str, Any]) -> Any:
    """The number, or array of numbers, for these values of the variables."""
    total: Any = of.const
    for atom, coefficient in of.terms:
        if isinstance(atom, str):
            value = values[atom]
        else:
            inner = evaluate(atom.of, values)
            value = inner // atom.by if atom.sign == "//" else inner % atom.by
        total = total + value * coefficient
    return total


# ---- text ------------------------------------------------------------------------------------------------
def parse(text: str) -> Index:
    """The index that prints as ``text``."""
    return _parsed(ast.parse(text, mode="eval").body)


def _parsed(node: ast.expr) -> Index:
    match node:
        case ast.Constant(value=int(value)):
            return index(value)
        case ast.Name(id=name):
            return index(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _parsed(operand) * -1
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _parsed(left) + _parsed(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _parsed(right) * _parsed(left).const
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right):
            sign = "//" if isinstance(op, ast.FloorDiv) else "%"
            return Index(((Division(sign, _parsed(left), _parsed(right).const), 1),))
    raise ValueError(f"not an index: {ast.unparse(node)}")
