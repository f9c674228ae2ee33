"""Splits large reductions to few results into two stages. In one stage they would use only a few processors of a GPU.

``sum over | r0:1048576`` becomes ``over p0:256 | r0:4096``, which leaves 256 partial sums, and ``over | r0:256``,
which adds them and computes what followed. Reductions that build on each other (the mean, then the squares around it)
have two stages each. Values that are computed at every point from the results get a final kernel of their own.

Where neighbours in memory belong to different results (the sums of columns, or of channels that are last), one
processor computes as many results as are read together, and the parts are the outer rows.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import REDUCTIONS, Builder, Kernel, Memory, Stmt, Store, points, pruned, renumbered, stages
from sot.graph.kernels.ops import DTYPES, neutral
from sot.graph.kernels.program import Buffer, Program, Step, product
from sot.graph.kernels.sizes import Number, divided, typical

WIDE = 1 << 15          # least number of points that are reduced to one
FEW = 256               # greatest number of rows, or of sets of rows that are read together, of a kernel that is split
PROGRAMS = 1024         # approximate number of partial results of all rows, or sets of rows, together
PART = 2048             # least number of points of a part, if there are enough of them
TOGETHER = 64           # rows that are computed together where memory runs along the rows


def split(program: Program, wide: int = WIDE) -> Program:
    """The program with large reductions to few results in stages.

    Arguments:
        wide: the least number of points per result for a split.
    """
    buffers, steps = dict(program.buffers), list[Step]()
    for step in program.steps:
        parts = parts_of(step, wide) if isinstance(step, Kernel) else ()
        if not isinstance(step, Kernel) or not parts:
            steps.append(step)
            continue
        device = buffers[step.stores[0].buffer].device
        for kernel, made in Split(step, parts).kernels():
            for name, memory in made.items():
                buffers[name] = Buffer(name, DTYPES[memory.dtype], (memory.size,), (1,), device)
            steps.append(kernel)
    return dataclasses.replace(program, buffers=buffers, steps=steps)


def parts_of(kernel: Kernel, wide: int) -> tuple[int, ...]:
    """The number of parts of each of the first reduced axes; none if the kernel is not split."""
    rows = typical(kernel.row_count)
    together = min(rows, TOGETHER) if along_rows(kernel) else 1
    programs = -(-rows // together)
    if typical(kernel.width) * together < wide or programs > FEW:
        return ()
    if not any(s.op in REDUCTIONS for s in kernel.body):
        return ()
    if kernel.changed() or kernel.is_ordered or changes_what_a_later_stage_reads(kernel):
        return ()
    wanted, sizes = max(PROGRAMS // programs, 2), [n for _, n in kernel.reduced]
    wanted = max(min(wanted, typical(kernel.width) * together // min(PART, wide // 4)), 2)
    first = sizes[0]
    if isinstance(first, int):
        exact = divisor(first, wanted)
        if exact == first and len(sizes) > 1 and isinstance(sizes[1], int) and wanted >= 2 * exact:
            return exact, divisor(sizes[1], wanted // exact)
        if 2 * exact >= min(first, wanted):
            return (exact,) if exact > 1 else ()
    found = min(typical(first), wanted) if can_be_uneven(kernel) else 1
    return (found,) if found > 1 else ()


def changes_what_a_later_stage_reads(kernel: Kernel) -> bool:
    """Whether a buffer that the kernel changes in place would have its new values in a later kernel. Running statistics
    have not: the last kernel of rows reads and stores them, and only values at points are computed after it.
    """
    varying = points(kernel)
    changed = {load.buffer for load in kernel.loads()} & kernel.written()
    at_points = [s for s in kernel.stores if {s.value, *s.index.names} & varying]
    after = pruned([s for s in kernel.body if s.op not in REDUCTIONS], at_points)
    return not changed.isdisjoint([*(s.buffer for s in at_points), *(s.buffer for s in after)])


def divisor(size: int, most: int) -> int:
    """The greatest divisor that is not more than ``most``."""
    return max(n for n in range(1, min(size, most) + 1) if size % n == 0)


def along_rows(kernel: Kernel) -> bool:
    """Whether neighbours in memory are in neighbouring rows of a kernel that reduces, rather than columns."""
    last_row = kernel.rows[-1][0] if kernel.rows else ""
    last_column = kernel.reduced[-1][0] if kernel.reduced else ""
    votes = 0
    for load in kernel.loads():
        assert load.index is not None
        strides = {a: c for a, c in load.index.terms if isinstance(a, str)}
        if last_row in strides and last_column in strides:
            votes += 1 if typical(strides[last_row]) < typical(strides[last_column]) else -1
    return votes > 0


def can_be_uneven(kernel: Kernel) -> bool:
    """Whether parts may be shorter, or empty: no value at points is stored, or has to be a valid position."""
    varying = points(kernel)
    return not any({s.value, *s.index.names} & varying for s in kernel.stores) and not any(
        s.op == "inside" for s in kernel.body)


Made = tuple[Kernel, dict[str, Memory]]     # a kernel, and its new buffers


class Split:
    """A kernel that is split. ``known`` has the buffer of each reduction whose results exist."""

    def __init__(self, kernel: Kernel, parts: tuple[int, ...]) -> None:
        self.kernel, self.parts, self.along = kernel, parts, along_rows(kernel)
        sizes = [n for _, n in kernel.reduced]
        self.part_sizes = [-(-size // n) for size, n in zip(sizes, parts, strict=False)] + sizes[len(parts):]
        self.are_equal = divided(sizes[0], parts[0]) is not None
        self.stmts = {s.name: s for s in kernel.body}
        self.points = points(kernel)
        self.stage = stages(kernel)
        self.known: dict[str, str] = {}
        self.rows = tuple((f"p{i}", n) for i, (_, n) in enumerate(kernel.rows))
        self.row_axes = {old: ix.index(new) for (old, _), (new, _) in zip(kernel.rows, self.rows, strict=True)}
        self.flat = ix.dot((ix.index(v) for v, _ in self.rows), row_major([n for _, n in self.rows]))

    def kernels(self) -> Iterator[Made]:
        last = max(self.stage.values())
        for stage in range(1, last + 1):
            found = [s for s in self.kernel.body if s.op in REDUCTIONS and self.stage[s.name] == stage]
            yield self._partial(found, stage)
            yield self.final(found, stage == last)
        rest = [s for s in self.kernel.stores if self._is_late(s)]
        if rest:
            yield self._pointwise(rest)

    def _is_late(self, store: Store) -> bool:
        """Whether it stores at every point a value that depends on a reduction."""
        return self._is_at_points(store) and self._needs(store) > 0

    def _is_at_points(self, store: Store) -> bool:
        return store.value in self.points or bool(store.index.names & self.points)

    def _needs(self, store: Store) -> int:
        return max(self.stage.get(n, 0) for n in (store.value, *store.index.names))

    # ---- the kernels
    def _partial(self, found: list[Stmt], stage: int) -> Made:
        """Each part reduced separately. The first stage also stores the values at points that need no reduction."""
        parts = tuple((f"p{len(self.rows) + i}", n) for i, n in enumerate(self.parts))
        rows = (*parts, *self.rows) if self.along else (*self.rows, *parts)
        reduced = tuple((f"r{i}", n) for i, n in enumerate(self.part_sizes))
        axes = dict(self.row_axes)
        for i, (old, _) in enumerate(self.kernel.reduced):
            start = ix.index(parts[i][0]) * self.part_sizes[i] if i < len(parts) else Index()
            axes[old] = start + ix.index(f"r{i}")
        first, size = self.kernel.reduced[0]
        early = [s for s in self.kernel.stores if stage == 1 and self._is_at_points(s) and not self._needs(s)]
        builder = Builder(dict(rows + reduced))
        mask = None if self.are_equal else builder.emit("lt", builder.index(axes[first]), builder.const(size, "i64"))
        names = self._copied(builder, axes, {s.args[0] for s in found}, early, mask=mask)
        stores, made = self._moved(early, names, axes, builder), dict[str, Memory]()
        for stmt in found:
            name = self.part(stmt)
            made[name] = Memory(stmt.dtype, product(n for _, n in rows))
            place = self.place(ix.dot((ix.index(v) for v, _ in parts), row_major(self.parts)))
            value = names[stmt.args[0]]
            if mask is not None:
                value = builder.emit("where", mask, value, builder.const(neutral(stmt.op, stmt.dtype), stmt.dtype))
            stores.append(Store(name, place, builder.reduce(stmt.op, value)))
        return self._finished(f"parts{stage}", rows, reduced, builder, stores, made), made

    def final(self, found: list[Stmt], is_last: bool) -> Made:
        """The parts reduced to one. The last stage also computes the values of each row."""
        reduced = (("r0", math.prod(self.parts)),)
        builder = Builder(dict(self.rows + reduced))
        given = {s.name: builder.reduce(s.op, builder.load(
            self.part(s), self.place(ix.index("r0")), s.dtype)) for s in found}
        late = any(self._is_late(s) for s in self.kernel.stores)
        own = [s for s in self.kernel.stores if is_last and not self._is_at_points(s)]
        names = self._copied(builder, self.row_axes, set(), own, given)
        stores, made = self._moved(own, names, self.row_axes, builder), dict[str, Memory]()
        for stmt in found if not is_last or late else ():
            name = f"{self.kernel.name}_{stmt.name}_all"
            made[name] = Memory(stmt.dtype, product(n for _, n in self.rows))
            stores.append(Store(name, self.flat, given[stmt.name]))
            self.known[stmt.name] = name
        parts = {self.part(s): Memory(s.dtype, product(n for _, n in self.rows + reduced)) for s in found}
        return self._finished("final", self.rows, reduced, builder, stores, made | parts), made

    def part(self, stmt: Stmt) -> str:
        """The buffer of the parts of a reduction."""
        return f"{self.kernel.name}_{stmt.name}_parts"

    def place(self, part: Index) -> Index:
        """Where the result of a part is stored, beside what is computed together with it."""
        if self.along:
            return part * product(n for _, n in self.rows) + self.flat
        return self.flat * math.prod(self.parts) + part

    def _pointwise(self, rest: list[Store]) -> Made:
        axes = tuple((f"p{len(self.rows) + i}", n) for i, (_, n) in enumerate(self.kernel.reduced))
        rows = axes + self.rows if self.along else self.rows + axes
        builder = Builder(dict(rows))
        moves = {**self.row_axes, **{old: ix.index(new) for (old, _), (new, _) in zip(
            self.kernel.reduced, axes, strict=True)}}
        names = self._copied(builder, moves, set(), rest)
        stores = self._moved(rest, names, moves, builder)
        return self._finished("points", rows, (), builder, stores, {}), {}

    # ---- statements
    def _copied(self, builder: Builder, axes: dict[str, Index], wanted: set[str], stores: Iterable[Store],
                given: dict[str, str] | None = None, mask: str | None = None) -> dict[str, str]:
        """Append what these values and stores need; reductions are ``given``, or loaded where they are known. With a
        ``mask``, loads happen only where it holds.
        """
        wanted = wanted.union(*({s.value} | s.index.names for s in stores))
        needed: list[Stmt] = []
        for stmt in reversed(self.kernel.body):
            if stmt.name in wanted:
                needed.append(stmt)
                wanted |= stmt.uses() if stmt.op not in REDUCTIONS else set()
        names = dict(given or {})
        for stmt in reversed(needed):
            if stmt.op not in REDUCTIONS:
                names |= builder.copy_one(stmt, names, axes, mask)
            elif stmt.name not in names:
                names[stmt.name] = builder.load(self.known[stmt.name], self.flat, stmt.dtype)
        return names

    def _moved(self, stores: Iterable[Store], names: dict[str, str], axes: dict[str, Index], builder: Builder,
               ) -> list[Store]:
        values = {**axes, **{old: ix.index(new) for old, new in names.items()}}
        return [Store(s.buffer, ix.substitute(s.index, values, builder.ranges), names[s.value]) for s in stores]

    def _finished(self, suffix: str, rows: tuple[tuple[str, Number], ...], reduced: tuple[tuple[str, Number], ...],
                  builder: Builder, stores: list[Store], further: dict[str, Memory]) -> Kernel:
        sizes = {name: Memory(self.stmts[s].dtype, product(n for _, n in self.rows)) for s, name in self.known.items()}
        return renumbered(Kernel(f"{self.kernel.name}_{suffix}", rows, reduced, pruned(builder.body, stores),
                                 tuple(stores), {**self.kernel.buffers, **sizes, **further}))


def row_major(sizes: Sequence[Number]) -> list[Number]:
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return strides[::-1]
