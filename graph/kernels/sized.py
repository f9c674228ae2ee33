"""Kernels whose sizes vary: their numbers, replaced all at once."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from sot.graph.kernels.index import Atom, Division, Index, make
from sot.graph.kernels.ir import Kernel, Memory, Stmt
from sot.graph.kernels.sizes import Factor, Number, Size, evaluated, made, symbol


def mapped(kernel: Kernel, change: Callable[[Size], Number]) -> Kernel:
    """The kernel with each size that varies changed."""
    def of(number: Number) -> Number:
        return change(number) if isinstance(number, Size) else number

    def index(at: Index) -> Index:
        return make(((atom(a), of(c)) for a, c in at.terms), of(at.const))

    def atom(part: Atom) -> Atom:
        return part if isinstance(part, str) else Division(part.sign, index(part.of), of(part.by))

    def statement(stmt: Stmt) -> Stmt:
        return dataclasses.replace(stmt, index=stmt.index if stmt.index is None else index(stmt.index),
                                   value=of(stmt.value))

    rows, reduced = (tuple((name, of(size)) for name, size in axes) for axes in (kernel.rows, kernel.reduced))
    stores = tuple(dataclasses.replace(s, index=index(s.index)) for s in kernel.stores)
    buffers = {name: Memory(m.dtype, of(m.size)) for name, m in kernel.buffers.items()}
    return dataclasses.replace(kernel, rows=rows, reduced=reduced, body=tuple(map(statement, kernel.body)),
                               stores=stores, buffers=buffers)


def at_values(kernel: Kernel, values: Mapping[str, int]) -> Kernel:
    """The kernel for these values of the symbols."""
    return mapped(kernel, lambda size: evaluated(size, values))


def with_arguments(kernel: Kernel) -> tuple[Kernel, dict[str, Number]]:
    """The kernel with its symbols, and its quotients and remainders of these, as arguments n0, n1, ...; and their
    values. Equal kernels of different symbols are equal.
    """
    names: dict[Factor, str] = {}

    def renamed(size: Size) -> Number:
        return made({tuple(sorted(names.setdefault(f, f"n{len(names)}") for f in product)): c
                     for product, c in size.terms})

    changed = mapped(kernel, renamed)
    return changed, {name: symbol(f) if isinstance(f, str) else Size((((f,), 1),)) for f, name in names.items()}
