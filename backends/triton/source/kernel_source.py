"""The Triton source of a kernel of the IR.

A kernel without reduction is computed in blocks of a line, or in tiles of rows and columns; one with a reduction in
blocks of rows and columns. If the columns fit into a block ("whole" rows), memory is read once. Otherwise there are as
many passes over the columns as reductions build on each other. A kernel with a ``loop`` computes several rows in each
program, one after the other.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from sot.backends.triton.source.expressions import (
    COMBINE,
    REDUCE,
    SCAN,
    SUM_ROWS,
    TYPES,
    converted,
    filled,
    literal,
    written,
)
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import LINE, Kernel, Stmt, Store, points, stages
from sot.graph.kernels.ops import BYTES, REDUCTIONS, SCANS, neutral
from sot.graph.kernels.sizes import Number

INT32_MAX = 2**31 - 1
AHEAD = 96 << 10        # bytes that a program may load ahead into shared memory: the smaller GPUs have 99 KB


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How a kernel is cut into programs. ``columns`` is 0 without a reduction; ``whole`` rows need no loop."""

    rows: int
    columns: int
    whole: bool
    warps: int

    def grid(self, kernel: Kernel) -> Number:
        """The number of programs."""
        across = -(-kernel.width // self.columns) if kernel.is_tiled else 1
        return -(-kernel.row_count // (kernel.loop or self.rows)) * across


def source(kernel: Kernel, blocks: Blocks, arguments: Iterable[str] = (), member: bool = False,
           wide: bool | None = None) -> str:
    """A function decorated with ``triton.jit`` that takes the buffers, in the kernel's order, and the block sizes.

    Arguments:
        arguments: the names of the numbers that it takes after the buffers, see ``sizes``.
        member: whether it belongs to a group, which passes the ``block`` to compute.
        wide: whether positions need 64 bits. It must be given if sizes are arguments.
    """
    wide = is_wide(kernel) if wide is None else wide
    writer = LoopWriter if kernel.loop else Writer
    return "\n".join(writer(kernel, blocks, arguments, member, wide).lines()) + "\n"


def group_source(name: str, calls: Iterable[tuple[str, list[str], Blocks, int]], parameters: Iterable[str]) -> str:
    """A kernel whose programs are divided among others.

    Arguments:
        calls: for each kernel its function, the parameters that it takes, its block sizes and its number of programs.
    """
    lines = ["@triton.jit", f"def {name}({', '.join(parameters)}):", "    block = tl.program_id(0)"]
    start = 0
    for function, given, blocks, count in calls:
        here = f"(block >= {start}) & (block < {start + count})" if start else f"block < {count}"
        own = f"block - {start}" if start else "block"
        lines += [f"    if {here}:", f"        {function}({', '.join(given)}, {own}, ROWS={blocks.rows})"]
        start += count
    return "\n".join(lines)


def without_comments(text: str) -> str:
    """The part of a source that the compiler sees. Kernels for several lines of the user may share it."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def is_wide(kernel: Kernel) -> bool:
    """Whether positions need 64 bits."""
    space = math.prod(n for _, n in kernel.rows + kernel.reduced)
    return any(n > INT32_MAX for n in (space, *(m.size for m in kernel.buffers.values())))


class Writer:
    def __init__(self, kernel: Kernel, blocks: Blocks, arguments: Iterable[str], member: bool, wide: bool) -> None:
        self.kernel, self.blocks = kernel, blocks
        self.arguments = [*arguments, *(["block"] if member else [])]
        self.block = "block" if member else "tl.program_id(0)"
        self.wide = ".to(tl.int64)" if wide else ""
        self.stmts = {s.name: s for s in kernel.body}
        self.points = points(kernel) if kernel.reduced else frozenset()
        self.stage = stages(kernel)
        self.varies = self._varying()
        self.masked_rows = not (blocks.rows and isinstance(kernel.row_count, int)
                                and kernel.row_count % (kernel.loop or blocks.rows) == 0)
        exact = blocks.whole and blocks.columns == kernel.width or (
            kernel.is_tiled and isinstance(kernel.width, int) and kernel.width % blocks.columns == 0)
        self.masked_columns = bool(kernel.reduced) and not exact
        self.note = ""

    # ---- the function
    def lines(self) -> Iterator[str]:
        parameters = ", ".join([*self.kernel.buffers, *self.arguments])
        sizes = "ROWS: tl.constexpr" + (", COLUMNS: tl.constexpr" if self.kernel.reduced else "")
        yield "@triton.jit"
        yield f"def {self.kernel.name}({parameters}, {sizes}):"
        yield from ("    " + line if line else "" for line in self._body())

    def _body(self) -> Iterator[str]:
        yield from self._position()
        yield from self._reducing() if self.kernel.reduced else self._straight(self.kernel.body, self.kernel.stores)

    def _position(self) -> Iterator[str]:
        """``p``, the row, and the axes that it determines."""
        shape, block = "[:, None]" if self.kernel.reduced else "", self.block
        if self.kernel.is_tiled:
            yield f"across = tl.cdiv({self.kernel.width}, COLUMNS)"
            yield f"r = ({block} % across{self.wide} * COLUMNS + tl.arange(0, COLUMNS))[None, :]"
            block = f"{block} // across"
        yield f"p = ({block}{self.wide} * ROWS + tl.arange(0, ROWS)){shape}"
        yield from self._rows()

    def _rows(self) -> Iterator[str]:
        if self.masked_rows:
            yield f"p_in = p < {self.kernel.row_count}"
        yield from axes("p", self.kernel.rows, self._used())

    def _columns(self) -> Iterator[str]:
        if self.masked_columns:
            yield f"r_in = r < {self.kernel.width}"
        yield from axes("r", self.kernel.reduced, self._used())

    def _used(self) -> frozenset[str]:
        loads = (s.index.names for s in self.kernel.body if s.index is not None)
        return frozenset().union(*loads, *(s.index.names for s in self.kernel.stores))

    # ---- the body
    def _straight(self, body: Iterable[Stmt], stores: Iterable[Store]) -> Iterator[str]:
        for stmt in body:
            yield from self._statement(stmt)
        for store in stores:
            yield self._store(store)

    def _reducing(self) -> Iterator[str]:
        if self.kernel.is_tiled:
            yield from self._columns()
            yield from self._straight(self.kernel.body, self.kernel.stores)
            return
        if self.blocks.whole:
            yield f"r = tl.arange(0, COLUMNS)[None, :]{self.wide}"
            yield from self._columns()
            yield from self._straight(self.kernel.body, self.kernel.stores)
            return
        for stage in range(max(self.stage.values(), default=0) + 1):
            yield from self._rows_of(stage)
            yield from self._pass(stage)
        yield from (self._store(s) for s in self.kernel.stores if not self._is_at_points(s))

    def _rows_of(self, stage: int) -> Iterator[str]:
        """The values that are computed once for each row, after ``stage`` passes."""
        for stmt in self.kernel.body:
            if stmt.name not in self.points and self.stage[stmt.name] == stage and stmt.op not in REDUCTIONS:
                yield from self._statement(stmt)

    def _pass(self, stage: int) -> Iterator[str]:
        """One loop over the columns: the reductions and the stores that are possible by now."""
        reductions = [s for s in self.kernel.body if s.op in REDUCTIONS and self.stage[s.name] == stage + 1]
        stores = [s for s in self.kernel.stores if self._is_at_points(s) and self._known_after(s) == stage]
        if not reductions and not stores:
            return
        for stmt in reductions:
            start = filled("[ROWS, COLUMNS]", literal(neutral(stmt.op, stmt.dtype)), stmt.dtype)
            yield f"{stmt.name}_all = {start}"
        yield f"for start in range(0, {self.kernel.width}, COLUMNS):"
        yield f"    r = start + tl.arange(0, COLUMNS)[None, :]{self.wide}"
        yield from ("    " + line for line in self._columns())
        self.note = ""
        needed = self._cone({s.args[0] for s in reductions}.union(*({s.value} | s.index.names for s in stores)))
        for stmt in needed:
            yield from ("    " + line for line in self._statement(stmt))
        for stmt in reductions:
            both = written(COMBINE[stmt.op], stmt.dtype, f"{stmt.name}_all", self._kept(stmt))
            yield f"    {stmt.name}_all = {both}"
        yield from ("    " + self._store(s) for s in stores)
        for stmt in reductions:
            yield f"{stmt.name} = {REDUCE[stmt.op]}({stmt.name}_all)"

    def _is_at_points(self, store: Store) -> bool:
        """Whether it is made for each column, instead of once for each row."""
        return store.value in self.points or bool(store.index.names & self.points)

    def _known_after(self, store: Store) -> int:
        """After how many passes its value and its place are known."""
        return max(self.stage.get(name, 0) for name in (store.value, *store.index.names))

    def _cone(self, wanted: set[str]) -> list[Stmt]:
        """The statements at points that these values need, in order."""
        found = []
        for stmt in reversed(self.kernel.body):
            if stmt.name in wanted and stmt.name in self.points:
                wanted |= stmt.uses()
                found.append(stmt)
        return found[::-1]

    # ---- statements
    def _statement(self, stmt: Stmt) -> Iterator[str]:
        if stmt.note and stmt.note != self.note:
            self.note = stmt.note
            yield f"# {stmt.note}"
        if stmt.op == "inside":
            value, mask = stmt.args[0], self._mask(self.varies[stmt.name])
            outside = f" | ({mask} == 0)" if mask != "None" else ""
            yield f"require((({value} >= 0) & ({value} < {stmt.value})){outside})"
        if stmt.op != "const" or not self._inline(stmt):
            yield f"{stmt.name} = {self._expression(stmt)}"

    def _expression(self, stmt: Stmt) -> str:
        match stmt.op:
            case "const":
                return filled(self._one(), literal(stmt.value), stmt.dtype)
            case "index":
                assert stmt.index is not None
                return self._position_of(stmt.index)
            case "inside":
                return stmt.args[0]
            case "cast":
                return converted(self._arg(stmt.args[0]), self.stmts[stmt.args[0]].dtype, stmt.dtype)
            case "load":
                return self._load(stmt)
        if stmt.op in REDUCTIONS:
            return f"{REDUCE[stmt.op]}({self._kept(stmt)})"
        if stmt.op in SCANS:
            return f"{SCAN[stmt.op]}(tl.broadcast_to({self._arg(stmt.args[0])}, [ROWS, COLUMNS]))"
        dtype = self.stmts[stmt.args[-1]].dtype
        return written(stmt.op, dtype, *map(self._arg, stmt.args))

    def _position_of(self, at: Index) -> str:
        """A position as a value. One that is the same everywhere is a block of one element."""
        return f"({at}).to(tl.int64)" if at.terms else f"tl.full({self._one()}, {at}, tl.int64)"

    def _arg(self, name: str) -> str:
        stmt = self.stmts[name]
        return f"({literal(stmt.value)})" if stmt.op == "const" and self._inline(stmt) else name

    def _inline(self, stmt: Stmt) -> bool:
        """Whether the constant may be inlined: all its users have its type already. A store needs its name, for the
        value and for a place that is computed.
        """
        users = [s for s in self.kernel.body if stmt.name in s.uses()]
        stored = {name for s in self.kernel.stores for name in (s.value, *s.index.names)}
        if stmt.dtype not in ("f32", "i64", "i32") or stmt.name in stored:
            return False
        return all(self._plain(user) for user in users)

    def _plain(self, user: Stmt) -> bool:
        binary = ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor")
        return user.op in binary and any(self.stmts[a].op != "const" for a in user.args)

    def _load(self, stmt: Stmt) -> str:
        assert stmt.index is not None
        mask = self._mask(stmt.index.names, *stmt.args)
        other = literal(stmt.value) if stmt.args else "0"
        guard = f", {mask}, other={other}" if mask != "None" else ""
        return f"tl.load({self._pointer(stmt.buffer, stmt.index, *self._reach(stmt.args))}{guard})"

    def _store(self, store: Store) -> str:
        mask = self._mask(store.index.names | {store.value} | {n for n, _ in self.kernel.rows})
        guard = f", {mask}" if mask != "None" else ""
        place = self._pointer(store.buffer, store.index, True, self._is_at_points(store))
        if store.how == "add":
            value = f"{store.value} + tl.zeros({self._shape(store)}, {TYPES[self.stmts[store.value].dtype]})"
            return f'tl.atomic_add({place}, {value}{guard}, sem="relaxed")'
        return f"tl.store({place}, {self._widened(store)}{guard})"

    def _widened(self, store: Store) -> str:
        """The value, broadcast to the shape of the places that it is stored to."""
        return f"tl.broadcast_to({store.value}, {self._shape(store)})" if self.kernel.reduced else store.value

    def _shape(self, store: Store) -> str:
        """The shape of the block of places."""
        columns = "COLUMNS" if self._is_at_points(store) else "1"
        return f"[ROWS, {columns}]" if self.kernel.reduced else "[ROWS]"

    def _pointer(self, buffer: str, at: Index, over_rows: bool = False, over_columns: bool = False) -> str:
        """A block of places of the requested height and width, even if the position is constant."""
        row, column = self._reach(at.names)
        spread = (" + p * 0" if over_rows and not row else "") + (" + r * 0" if over_columns and not column else "")
        if not at.terms and not spread:
            return f"{buffer} + tl.full({self._one()}, {at}, tl.int32)"
        return f"{buffer} + ({at}{spread})"

    def _one(self) -> str:
        """The shape of a block of one element, for a value that is the same everywhere."""
        return "[1, 1]" if self.kernel.reduced else "[1]"

    def _mask(self, names: Iterable[str], *conditions: str) -> str:
        """The condition that these names are positions in the space; ``None`` if it is always true."""
        row, column = self._reach(names)
        parts = ["p_in"] if row and self.masked_rows else []
        if column and self.masked_columns:
            parts.append("r_in")
        return " & ".join([*parts, *conditions]) or "None"

    def _reach(self, names: Iterable[str]) -> tuple[bool, bool]:
        """Whether they depend on the row, and on the column."""
        rows, columns = {n for n, _ in self.kernel.rows}, {n for n, _ in self.kernel.reduced}
        seen = {one for name in names for one in self.varies[name]}
        return bool(seen & rows), bool(seen & columns)

    def _varying(self) -> dict[str, frozenset[str]]:
        """The axes that each value depends on."""
        rows = frozenset(n for n, _ in self.kernel.rows)
        found: dict[str, frozenset[str]] = {n: frozenset((n,)) for n, _ in self.kernel.rows + self.kernel.reduced}
        found[LINE] = frozenset()
        for stmt in self.kernel.body:
            everywhere = rows | {n for n, _ in self.kernel.reduced}
            found[stmt.name] = rows if stmt.op in REDUCTIONS else everywhere if stmt.op in SCANS else frozenset().union(
                *(found[u] for u in stmt.uses()))
        return found

    def _kept(self, stmt: Stmt) -> str:
        """The argument of a reduction, as wide as the block. Places beyond the last column are neutral."""
        value = self._arg(stmt.args[0])
        if self.masked_columns:
            return f"tl.where(r_in, {value}, {literal(neutral(stmt.op, stmt.dtype))})"
        return value if stmt.args[0] in self.points else f"tl.broadcast_to({value}, [ROWS, COLUMNS])"


class LoopWriter(Writer):
    """Writes a kernel whose programs have a loop over rows, each of which is whole."""

    def _body(self) -> Iterator[str]:
        """What depends on no row comes before the loop, and the sums over rows are stored after it."""
        rows, loop = {name for name, _ in self.kernel.rows}, self.kernel.loop
        fixed = [s for s in self.kernel.body if not self.varies[s.name] & rows]
        each = [s for s in self.kernel.body if self.varies[s.name] & rows]
        sums = [s for s in self.kernel.stores if s.how == "sum"]
        totals = {s.value: TYPES[self.stmts[s.value].dtype] for s in sums}
        yield f"line = {self.block}{self.wide}"
        yield f"r = tl.arange(0, COLUMNS)[None, :]{self.wide}"
        yield from self._columns()
        yield from self._straight(fixed, ())
        yield from (f"{value}_all = tl.zeros([ROWS, COLUMNS], {dtype})" for value, dtype in totals.items())
        yield f"for start in tl.range(0, {loop}, ROWS, num_stages={2 if self._bytes_read(rows) <= AHEAD else 1}):"
        yield f"    p = (line * {loop} + start + tl.arange(0, ROWS))[:, None]"
        yield from ("    " + line for line in self._rows())
        yield from ("    " + line for line in self._straight(each, [s for s in self.kernel.stores if s not in sums]))
        for value in totals:
            yield f"    {value}_all += " + (f"tl.where(p_in, {value}, 0)" if self.masked_rows else value)
        for store in sums:
            guard = ", r_in" if self.masked_columns else ""
            yield f"tl.store({self._pointer(store.buffer, store.index)}, {SUM_ROWS}({store.value}_all){guard})"

    def _bytes_read(self, rows: set[str]) -> int:
        """The bytes of whole rows that one turn of the loop reads."""
        loads = [s for s in self.kernel.loads() if s.name in self.points and self.varies[s.name] & rows]
        return sum(BYTES[s.dtype] for s in loads) * self.blocks.rows * self.blocks.columns


def axes(flat: str, sizes: tuple[tuple[str, int], ...], used: frozenset[str]) -> Iterator[str]:
    """Each axis computed from the flat position, by the sizes of the axes behind it."""
    for position, (name, size) in enumerate(sizes):
        behind = math.prod(n for _, n in sizes[position + 1:])
        quotient = f"{flat} // {behind}" if behind != 1 else flat
        if name in used:
            yield f"{name} = {quotient}" if position == 0 else f"{name} = {quotient} % {size}" if behind == 1 else \
                f"{name} = ({quotient}) % {size}"


