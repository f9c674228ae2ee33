"""The kernel IR: a loop nest over an index space, and the statements of its body.

    kernel mean over p0:128 | r0:64
    buffer x f32 8192
    buffer y f32 128
    v0:f32 = load x[64*p0 + r0]
    v1:f32 = sum v0
    v2:f32 = const 0.015625
    v3:f32 = mul v1 v2
    store y[p0] v3

The axes before the bar are independent. Those after it are reduced over, or, in a kernel without reductions, the second
dimension of its blocks. A statement that depends on a reduced axis
has a value at each point; any other statement has a value for each row. A reduction turns the first kind into the
second. A scan (``cumsum``) computes a value at each point from the points up to it, along the only reduced axis. Loads
happen before stores, and no buffer is stored twice. A store at looked-up places, which may coincide, is ``add`` (all
values are added to the contents) or ``put`` (one of them stays). The other places of such a buffer keep their
contents.

A kernel ``over p0:128 by 16 | r0:64`` has a loop: one program computes 16 rows, one after the other. ``line`` is the
number of the program. A store that is a ``sum`` adds up the values of these rows at each point: ``sum y[64*line + r0]
v3`` fills ``y`` with a line of sums for each program.

``Builder`` makes all statements. It folds constants and shares equal statements. Kernels print as above, and ``parse``
reads that back.
"""
from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ops import DTYPES, NUMPY, OPS, REDUCTIONS, SCANS, apply, nothing, rounded, widens, wrapped
from sot.graph.kernels.sizes import Number, Size, surely_less

STRUCTURAL = frozenset(("load", "index", "const", "cast", "inside"))
LINE = "line"


class InvalidKernel(ValueError):
    """A kernel breaks a rule of the IR. The message has the statement."""


@dataclasses.dataclass(frozen=True)
class Stmt:
    """``op`` is a row of ``OPS``, ``REDUCTIONS`` or ``SCANS``, or in ``STRUCTURAL``.

    A load may have a condition as its argument. Where it is false, the result is ``value``, and memory is not
    accessed. The result of ``inside`` is its argument, a position that must be in ``[0, value)``. Otherwise the kernel
    fails.
    """

    name: str
    dtype: str
    op: str
    args: tuple[str, ...] = ()
    buffer: str = ""
    index: Index | None = None
    value: Any = None
    note: str = dataclasses.field(default="", compare=False)

    def uses(self) -> frozenset[str]:
        """The values that it reads, also in its index."""
        return frozenset(self.args) | (self.index.names if self.index is not None else frozenset())

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype} = {self.op} {self._operands()}".rstrip()

    def _operands(self) -> str:
        match self.op:
            case "load":
                guard = f" if {self.args[0]} else {number(self.value)}" if self.args else ""
                return f"{self.buffer}[{self.index}]{guard}"
            case "index":
                return str(self.index)
            case "const":
                return number(self.value)
            case "inside":
                return f"{self.args[0]} of {self.value}"
        return " ".join(self.args)


@dataclasses.dataclass(frozen=True)
class Store:
    """``how`` is ``store`` or ``sum``, which fill the buffer, or ``add`` or ``put``, which change some places."""

    buffer: str
    index: Index
    value: str
    how: str = "store"

    def __str__(self) -> str:
        return f"{self.how} {self.buffer}[{self.index}] {self.value}"


@dataclasses.dataclass(frozen=True)
class Memory:
    """A buffer as a kernel sees it: ``size`` contiguous elements."""

    dtype: str
    size: Number


@dataclasses.dataclass(frozen=True)
class Kernel:
    """``loop`` is the number of rows that a program computes one after the other; 0 for a kernel without a loop."""

    name: str
    rows: tuple[tuple[str, Number], ...]
    reduced: tuple[tuple[str, Number], ...]
    body: tuple[Stmt, ...]
    stores: tuple[Store, ...]
    buffers: Mapping[str, Memory]
    loop: int = 0

    @property
    def ranges(self) -> dict[str, Number]:
        return dict(self.rows + self.reduced) | ({LINE: -(-self.row_count // self.loop)} if self.loop else {})

    @property
    def row_count(self) -> Number:
        return math.prod(size for _, size in self.rows)

    @property
    def width(self) -> Number:
        """How many points are reduced to one."""
        return math.prod(size for _, size in self.reduced)

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the points of the reduced axis matters."""
        return any(s.op in SCANS for s in self.body)

    @property
    def is_tiled(self) -> bool:
        """Whether nothing is reduced along the axes after the bar: the kernel is pointwise, in two dimensions."""
        if not self.reduced or any(s.op in REDUCTIONS or s.op in SCANS for s in self.body):
            return False
        varying = points(self)
        return all(s.how == "store" and (s.value in varying or s.index.names & varying) for s in self.stores)

    def loads(self) -> Iterator[Stmt]:
        return (s for s in self.body if s.op == "load")

    def read(self) -> frozenset[str]:
        """The buffers that must be initialised before."""
        return frozenset(s.buffer for s in self.loads()) | self.changed()

    def written(self) -> frozenset[str]:
        return frozenset(s.buffer for s in self.stores)

    def changed(self) -> frozenset[str]:
        """The buffers of which only some places are stored to."""
        return frozenset(s.buffer for s in self.stores if s.how in ("add", "put"))

    def __str__(self) -> str:
        axes = " ".join(f"{v}:{n}" for v, n in self.rows)
        reduced = " ".join(f"{v}:{n}" for v, n in self.reduced)
        loop = f" by {self.loop}" if self.loop else ""
        head = f"kernel {self.name} over {axes}".rstrip() + loop + (f" | {reduced}" if reduced else "")
        memory = (f"buffer {name} {m.dtype} {m.size}" for name, m in self.buffers.items())
        return "\n".join((head, *memory, *map(str, self.body), *map(str, self.stores)))


def number(value: Any) -> str:
    """A constant as text that ``float``, ``int`` or ``bool`` reads back exactly."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def points(kernel: Kernel) -> frozenset[str]:
    """The values that differ along the reduced axes."""
    varying = {name for name, _ in kernel.reduced}
    for stmt in kernel.body:
        if stmt.op in SCANS or stmt.op not in REDUCTIONS and stmt.uses() & varying:
            varying.add(stmt.name)
    return frozenset(varying)


def stages(kernel: Kernel) -> dict[str, int]:
    """After how many passes over the reduced axes each value is known."""
    found: dict[str, int] = {}
    for stmt in kernel.body:
        found[stmt.name] = max((found.get(u, 0) for u in stmt.uses()), default=0) + (stmt.op in REDUCTIONS)
    return found


# ---- building --------------------------------------------------------------------------------------------
class Builder:
    """Appends statements; equal ones are one, and what is known now is computed now."""

    def __init__(self, ranges: Mapping[str, Number]) -> None:
        self.ranges = dict(ranges)
        self.body: list[Stmt] = []
        self.by_name: dict[str, Stmt] = {}
        self._known: dict[Stmt, str] = {}
        self.note = ""

    # ---- statements
    def emit(self, op: str, *args: str) -> str:
        record = OPS[op]
        stmts = [self.by_name[a] for a in args]
        dtype = stmts[-1].dtype if record.result == "same" else record.result
        if all(s.op == "const" for s in stmts):
            values: Any = (np.asarray(s.value, NUMPY[s.dtype]) for s in stmts)
            return self.const(rounded(apply(op, *values), dtype).item(), dtype)
        return self._simpler(op, stmts) or self._add(Stmt("", dtype, op, args))

    def reduce(self, op: str, value: str) -> str:
        """A reduction, or a scan."""
        return self._add(Stmt("", self.by_name[value].dtype, op, (value,)))

    def const(self, value: Any, dtype: str) -> str:
        if isinstance(value, Size):
            return self.cast(self._add(Stmt("", "i64", "index", index=Index((), value))), dtype)
        kind = bool if dtype == "b1" else float if DTYPES[dtype].is_floating_point else int
        return self._add(Stmt("", dtype, "const", value=wrapped(int(value), dtype) if kind is int else kind(value)))

    def index(self, of: Index) -> str:
        if not of.terms:
            return self.const(of.const, "i64")
        if len(of.terms) == 1 and of.const == 0 and of.terms[0][1] == 1 and of.terms[0][0] in self.by_name:
            return str(of.terms[0][0])
        return self._add(Stmt("", "i64", "index", index=of))

    def load(self, buffer: str, at: Index, dtype: str, mask: str | None = None, other: Any = None) -> str:
        if mask is not None and self.by_name[mask].op == "const":
            if not self.by_name[mask].value:
                return self.const(other, dtype)
            mask = None
        args = () if mask is None else (mask,)
        return self._add(Stmt("", dtype, "load", args, buffer, at, None if mask is None else other))

    def inside(self, value: str, size: Number) -> Index:
        """A place on an axis of this size. A position that is not known is checked when the kernel runs."""
        known = self.by_name[value]
        if not self.is_inside(value, size):
            return ix.index(self._add(Stmt("", "i64", "inside", (value,), value=size)))
        return ix.index(known.value) if known.index is None else known.index

    def is_inside(self, value: str, size: Number) -> bool:
        """Whether a position is known to be on an axis of this size."""
        known = self.by_name[value]
        if known.op == "const":
            return bool(0 <= known.value and surely_less(known.value, size))
        within = ix.bounds(known.index, self.ranges) if known.op == "index" and known.index is not None else None
        return within is not None and surely_less(-1, within[0]) and surely_less(within[1], size)

    def cast(self, value: str, dtype: str) -> str:
        source = self.by_name[value]
        if source.dtype == dtype:
            return value
        if source.op == "const":
            return self.const(rounded(np.asarray(source.value, NUMPY[source.dtype]), dtype).item(), dtype)
        if source.op == "cast" and self.by_name[source.args[0]].dtype == dtype and widens(dtype, source.dtype):
            return source.args[0]
        return self._add(Stmt("", dtype, "cast", (value,)))

    def _simpler(self, op: str, stmts: list[Stmt]) -> str | None:
        """The result of the operation, if it does not depend on unknown values."""
        if op == "where" and (stmts[0].op == "const" or stmts[1] == stmts[2]):
            return stmts[1 if stmts[0].op != "const" or stmts[0].value else 2].name
        if op in ("mul", "div") and stmts[1].op == "const" and stmts[1].value == 1 and stmts[1].dtype != "b1":
            return stmts[0].name
        if op in ("and", "or"):
            for known, other in (stmts, stmts[::-1]):
                if known.op == "const" and known.dtype == "b1":
                    return other.name if known.value == (op == "and") else known.name
        return None

    def _add(self, stmt: Stmt) -> str:
        key = stmt if stmt.op != "const" else dataclasses.replace(stmt, value=(type(stmt.value), repr(stmt.value)))
        if found := self._known.get(key):
            return found
        name = f"v{len(self.body)}"
        self.body.append(dataclasses.replace(stmt, name=name, note=self.note))
        self.by_name[name] = self.body[-1]
        self._known[key] = name
        return name

    # ---- other kernels' statements
    def copy(self, stmts: Iterable[Stmt], axes: Mapping[str, Index], given: Mapping[tuple[str, Index], str],
             ) -> dict[str, str]:
        """Append statements with their axes replaced; a load that is ``given`` is that value. New names by old."""
        names: dict[str, str] = {}
        for stmt in stmts:
            at = self._placed(stmt, names, axes)
            found = given.get((stmt.buffer, at)) if stmt.op == "load" and at is not None and not stmt.args else None
            names |= {stmt.name: found} if found else self.copy_one(stmt, names, axes)
        return names

    def copy_one(self, stmt: Stmt, names: Mapping[str, str], axes: Mapping[str, Index] | None = None,
                 mask: str | None = None) -> dict[str, str]:
        """Append one statement again, ``names`` being what its arguments are called here; its new name by the old.

        With a ``mask``, a load happens only where that holds too, and only there a position must be within its axis.
        """
        kept, self.note = self.note, stmt.note
        at, args = self._placed(stmt, names, axes or {}), tuple(names[a] for a in stmt.args)
        if stmt.op == "load" and mask is not None:
            stmt = dataclasses.replace(stmt, value=stmt.value if args else nothing(stmt.dtype))
            args = (self.emit("and", mask, args[0]) if args else mask,)
        elif stmt.op == "inside" and mask is not None:
            if self.by_name[mask].op == "const" and not self.by_name[mask].value:
                return {stmt.name: self.const(0, "i64")}
            if not self.is_inside(args[0], stmt.value):
                args = (self.emit("where", mask, args[0], self.const(0, "i64")),)
        name = self._again(stmt, args, at)
        self.note = kept
        return {stmt.name: name}

    def _placed(self, stmt: Stmt, names: Mapping[str, str], axes: Mapping[str, Index]) -> Index | None:
        if stmt.index is None:
            return None
        values = {**axes, **{n: ix.index(names[n]) for n in stmt.index.names if n in names}}
        return ix.substitute(stmt.index, values, self.ranges)

    def _again(self, stmt: Stmt, args: tuple[str, ...], at: Index | None) -> str:
        match stmt.op:
            case "load":
                assert at is not None
                return self.load(stmt.buffer, at, stmt.dtype, args[0] if args else None, stmt.value)
            case "index":
                assert at is not None
                return self.index(at)
            case "const":
                return self.const(stmt.value, stmt.dtype)
            case "cast":
                return self.cast(args[0], stmt.dtype)
            case "inside":
                return self.index(self.inside(args[0], stmt.value))
        return self.reduce(stmt.op, *args) if stmt.op in REDUCTIONS or stmt.op in SCANS else self.emit(stmt.op, *args)


def pruned(body: Iterable[Stmt], stores: Iterable[Store]) -> tuple[Stmt, ...]:
    """The body without statements that no store needs."""
    stores = list(stores)
    needed = {s.value for s in stores}.union(*(s.index.names for s in stores))
    kept = []
    for stmt in reversed(list(body)):
        if stmt.name in needed:
            needed |= stmt.uses()
            kept.append(stmt)
    return tuple(reversed(kept))


def renumbered(kernel: Kernel) -> Kernel:
    """The same kernel with values named v0, v1, ... in order, and only the buffers that it accesses."""
    names = {s.name: f"v{i}" for i, s in enumerate(kernel.body)}
    to = {old: ix.index(new) for old, new in names.items()}

    def moved(at: Index) -> Index:
        return ix.substitute(at, to, kernel.ranges)

    body = tuple(dataclasses.replace(
        s, name=names[s.name], args=tuple(names[a] for a in s.args),
        index=None if s.index is None else moved(s.index)) for s in kernel.body)
    stores = tuple(dataclasses.replace(s, index=moved(s.index), value=names[s.value]) for s in kernel.stores)
    touched = {s.buffer for s in body if s.buffer} | {s.buffer for s in stores}
    buffers = {name: memory for name, memory in kernel.buffers.items() if name in touched}
    return dataclasses.replace(kernel, body=body, stores=stores, buffers=buffers)


# ---- checking --------------------------------------------------------------------------------------------
def verify(kernel: Kernel) -> None:
    """Raise InvalidKernel unless every statement satisfies the rules of the IR."""
    ranges = kernel.ranges
    types: dict[str, str] = {}
    varying = points(kernel)
    for stmt in kernel.body:
        _require(stmt.name not in types, stmt, "is defined twice")
        for used in stmt.uses():
            _require(used in types or used in ranges and used not in stmt.args, stmt, f"uses {used}, not defined yet")
        _verify_types(stmt, [types[a] for a in stmt.args], kernel)
        if stmt.op in REDUCTIONS:
            _require(bool(kernel.reduced), stmt, "reduces, but no axis is reduced")
        if stmt.op in SCANS:
            _require(len(kernel.reduced) == 1, stmt, "needs exactly one reduced axis")
        types[stmt.name] = stmt.dtype
    for store in kernel.stores:
        _require(store.value in types, store, "stores an unknown value")
        _require(store.buffer in kernel.buffers, store, "stores to an unknown buffer")
        _require(types[store.value] == kernel.buffers[store.buffer].dtype, store, "has another type than its buffer")
        _require(store.how != "add" or store.buffer not in {s.buffer for s in kernel.loads()}, store,
                 "changes what the kernel reads")
        if store.value in varying and kernel.reduced and store.how == "store":
            missing = {v for v, n in kernel.reduced if n > 1} - store.index.names
            _require(not missing, store, "would be stored to one place many times")
        if store.how == "sum":
            lines = {LINE, *(v for v, n in kernel.reduced if n > 1)}
            _require(bool(kernel.loop) and lines <= store.index.names <= {LINE, *dict(kernel.reduced)}, store,
                     "is no line of sums")
        _verify_bounds(store, store.index, kernel.buffers[store.buffer].size, ranges)
    _require(len(kernel.written()) == len(kernel.stores), kernel.name, "stores to a buffer twice")
    _require(kernel.loop & (kernel.loop - 1) == 0, kernel.name, "has a loop whose number of rows is no power of two")


def _verify_types(stmt: Stmt, types: list[str], kernel: Kernel) -> None:
    if stmt.op == "load":
        _require(stmt.buffer in kernel.buffers, stmt, "loads from an unknown buffer")
        _require(stmt.dtype == kernel.buffers[stmt.buffer].dtype, stmt, "has another type than its buffer")
        _require(types in ([], ["b1"]), stmt, "has a condition that is not b1")
        if not types and stmt.index is not None:
            _verify_bounds(stmt, stmt.index, kernel.buffers[stmt.buffer].size, kernel.ranges)
    elif stmt.op in OPS:
        op = OPS[stmt.op]
        of = types[1:] if stmt.op == "where" else types
        _require(len(types) == op.arity, stmt, f"takes {op.arity} arguments")
        _require(len(set(of)) == 1 and of[0] in op.takes, stmt, f"is not defined for {', '.join(types)}")
        _require(stmt.dtype == (of[0] if op.result == "same" else op.result), stmt, "has a wrong type")
    elif stmt.op in REDUCTIONS or stmt.op in SCANS:
        _require(types == [stmt.dtype], stmt, "has another type than its argument")
    else:
        _require(stmt.op in STRUCTURAL, stmt, "is not known")


def _verify_bounds(where: object, at: Index, size: int, ranges: Mapping[str, Number]) -> None:
    inside = ix.bounds(at, ranges)
    _require(inside is None or (inside[0] >= 0 and inside[1] < size), where, f"leaves its buffer: {inside} of {size}")


def _require(holds: bool, where: object, message: str) -> None:
    if not holds:
        raise InvalidKernel(f"{where}: {message}")


# ---- reading ---------------------------------------------------------------------------------------------
HEAD = re.compile(r"kernel (\w+) over(.*?)(?: by (\d+))?(?: \|(.*))?$")
STORES = ("store ", "sum ", "add ", "put ")
STATEMENT = re.compile(r"(\w+):(\w+) = (\w+) ?(.*)$")
ACCESS = re.compile(r"(\w+)\[(.*)\](?: if (\w+) else (.*))?$")


def parse(text: str) -> Kernel:
    """The kernel that prints as ``text``."""
    lines = [line.strip() for line in text.strip().splitlines()]
    head = HEAD.match(lines[0])
    if head is None:
        raise InvalidKernel(f"not the first line of a kernel: {lines[0]!r}")
    buffers = {name: Memory(dtype, int(size)) for _, name, dtype, size in
               (line.split() for line in lines if line.startswith("buffer "))}
    stores = [_parsed_store(line) for line in lines if line.startswith(STORES)]
    body = [_parsed_statement(line) for line in lines[1:] if not line.startswith(("buffer ", *STORES))]
    rows, reduced = _axes(head[2]), _axes(head[4] or "")
    return Kernel(head[1], rows, reduced, tuple(body), tuple(stores), buffers, int(head[3] or 0))


def _axes(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, int(size)) for name, size in (axis.split(":") for axis in text.split()))


def _parsed_store(line: str) -> Store:
    how, rest = line.split(" ", 1)
    access, value = rest.rsplit(" ", 1)
    found = ACCESS.match(access)
    if found is None:
        raise InvalidKernel(f"not a store: {line!r}")
    return Store(found[1], ix.parse(found[2]), value, how)


def _parsed_statement(line: str) -> Stmt:
    found = STATEMENT.match(line)
    if found is None or found[2] not in DTYPES:
        raise InvalidKernel(f"not a statement: {line!r}")
    name, dtype, op, rest = found.groups()
    match op:
        case "load":
            access = ACCESS.match(rest)
            if access is None:
                raise InvalidKernel(f"not a load: {line!r}")
            args = (access[3],) if access[3] else ()
            other = _constant(access[4], dtype) if args else None
            return Stmt(name, dtype, op, args, access[1], ix.parse(access[2]), other)
        case "index":
            return Stmt(name, dtype, op, index=ix.parse(rest))
        case "const":
            return Stmt(name, dtype, op, value=_constant(rest, dtype))
        case "inside":
            value, size = rest.split(" of ")
            return Stmt(name, dtype, op, (value,), value=int(size))
    return Stmt(name, dtype, op, tuple(rest.split()))


def _constant(text: str, dtype: str) -> Any:
    return text == "True" if dtype == "b1" else float(text) if DTYPES[dtype].is_floating_point else int(text)
