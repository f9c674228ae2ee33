"""Sizes as arguments: one kernel for all values of a varying size.

A graph with symbolic sizes is lowered for the sizes of each call, which is quick and always right. Compiling a kernel
takes long. So kernels of different sizes share their source: a number that differs between the sizes becomes an
argument of the kernel, and all others stay literals. Lowering for two sets of sizes shows which numbers differ.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from sot.graph.kernels.index import Atom, Division, Index
from sot.graph.kernels.ir import Kernel, Stmt

FIXED = (0, 1)          # these influence the form of expressions
Number = int | float


class Size(int):
    """A number that prints as its argument. Products of it are expressions."""

    text: str

    def __new__(cls, value: int, text: str) -> Size:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.text

    def __mul__(self, other: Any) -> Any:
        return Size(int(self) * int(other), f"({self.text} * {other})") if other != 1 else self

    __rmul__ = __mul__


class Real(float):
    """The same for a number that is not an integer."""

    text: str

    def __new__(cls, value: float, text: str) -> Real:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Sized:
    """A kernel whose ``arguments`` print as their names."""

    kernel: Kernel
    arguments: dict[str, Number] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pattern:
    """The numbers of a kernel, position by position: a literal, or the index of an argument."""

    literals: tuple[Number | None, ...]
    arguments: tuple[int, ...]

    @staticmethod
    def of(first: list[Number], second: list[Number]) -> Pattern:
        """Numbers that differ between two kernels are arguments. Arguments that are equal in both are one."""
        pairs = [(a, b, type(a)) for a, b in zip(first, second, strict=True)]
        groups: dict[tuple[Number, Number, type], int] = {}
        for pair in pairs:
            if pair[0] != pair[1]:
                groups.setdefault(pair, len(groups))
        return Pattern(tuple(a if a == b else None for a, b, _ in pairs), tuple(groups.get(p, -1) for p in pairs))

    def values(self, numbers: list[Number]) -> dict[int, Number] | None:
        """The values of the arguments, for a kernel with these numbers; None if the pattern does not fit it."""
        found: dict[int, Number] = {}
        for number, literal, argument in zip(numbers, self.literals, self.arguments, strict=True):
            if (literal if argument < 0 else found.setdefault(argument, number)) != number:
                return None
        return found


class Sizes:
    """The patterns of a graph's kernels."""

    def __init__(self) -> None:
        self.patterns: dict[str, Pattern] = {}

    def learn(self, first: Iterable[Kernel], second: Iterable[Kernel]) -> None:
        """Learn from the same graph, lowered for two sets of sizes."""
        others: dict[str, Kernel] = {}
        for kernel in second:
            others.setdefault(skeleton(kernel), kernel)
        for kernel in first:
            shape = skeleton(kernel)
            if shape in others:
                self.patterns[shape] = Pattern.of(numbers(kernel), numbers(others[shape]))

    def of(self, kernel: Kernel) -> Sized:
        """The kernel with names for its arguments; unchanged if its pattern is unknown."""
        pattern = self.patterns.get(skeleton(kernel))
        values = pattern.values(numbers(kernel)) if pattern else None
        if not values or pattern is None:
            return Sized(kernel)
        names = {i: f"n{i}" for i in values}
        places = iter(pattern.arguments)

        def named(number: Number) -> Number:
            argument = next(places)
            if argument < 0:
                return number
            return (Size if isinstance(number, int) else Real)(number, names[argument])  # type: ignore[arg-type]

        return Sized(mapped(kernel, named), {names[i]: values[i] for i in sorted(values)})


# ---- the numbers of a kernel -----------------------------------------------------------------------------
def numbers(kernel: Kernel) -> list[Number]:
    """Every number in it that may vary, in a fixed order."""
    found: list[Number] = []

    def note(number: Number) -> Number:
        found.append(number)
        return number

    mapped(kernel, note)
    return found


def skeleton(kernel: Kernel) -> str:
    """The kernel without these numbers, as text."""
    bare = mapped(kernel, lambda number: 2 if isinstance(number, int) else 2.0)
    memory = " ".join(f"{name}:{m.dtype}" for name, m in kernel.buffers.items())
    return "\n".join((str(dataclasses.replace(bare, buffers={})), memory))


def mapped(kernel: Kernel, change: Callable[[Number], Number]) -> Kernel:
    """The kernel with its numbers changed, except 0, 1, values that are not numbers, and constants of 64-bit
    floats.
    """
    def of(number: Any) -> Any:
        return number if number in FIXED or number is None or number - number != 0 else change(number)

    def index(at: Index) -> Index:
        return Index(tuple((atom(a), of(c)) for a, c in at.terms), of(at.const))

    def atom(part: Atom) -> Atom:
        return part if isinstance(part, str) else Division(part.sign, index(part.of), of(part.by))

    def statement(stmt: Stmt) -> Stmt:
        at = stmt.index if stmt.index is None else index(stmt.index)
        varies = stmt.op == "inside" or stmt.op == "const" and stmt.dtype in ("f32", "i64", "i32")
        return dataclasses.replace(stmt, index=at, value=of(stmt.value) if varies else stmt.value)

    rows, reduced = (tuple((name, of(size)) for name, size in axes) for axes in (kernel.rows, kernel.reduced))
    body = tuple(map(statement, kernel.body))
    stores = tuple(dataclasses.replace(s, index=index(s.index)) for s in kernel.stores)
    return dataclasses.replace(kernel, rows=rows, reduced=reduced, body=body, stores=stores)


def varies(sizes: Iterable[int]) -> bool:
    """Whether one of them is an argument."""
    return any(isinstance(size, Size) for size in sizes)
