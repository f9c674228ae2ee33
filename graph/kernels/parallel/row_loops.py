"""Adds up columns in the kernel that reduces rows of the same memory, as in the gradients of a layer norm.

``over p0:8192 | r0:4096`` computes the gradient of the input row by row. ``over p0:4096 | r0:8192`` computes those of
weight and bias column by column. Both read the input and the gradient of the result. Together they read them once:
each program of the first has a loop over 32 rows, keeps their sums at each column in registers, and stores these as a
line. A small kernel adds up the 256 lines, and computes what followed from the sums.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from sot.graph.kernels import index as ix
from sot.graph.kernels.fusion import fused
from sot.graph.kernels.ir import LINE, REDUCTIONS, Kernel, Store, points, pruned, stages
from sot.graph.kernels.ops import DTYPES
from sot.graph.kernels.parallel.grouping import conflict
from sot.graph.kernels.parallel.layout import accesses
from sot.graph.kernels.parallel.splitting import Split, along_rows, row_major
from sot.graph.kernels.program import Buffer, Program
from sot.graph.kernels.sizes import typical

PROGRAMS = 250          # there are at least so many, and at most twice as many: ``split`` leaves so many lines whole
LEAST = 4               # rows of a program
WIDEST = 8192           # columns of a row in registers
KEPT = 5 * WIDEST       # elements of all that registers keep of a row: what is read, and the sums
WORTH = 0.1             # least share of the bytes that is saved


@dataclasses.dataclass(frozen=True)
class Pair:
    """A kernel that reduces rows and one that adds up columns; two that do the same: one with a loop, and the last."""

    rows: Kernel
    columns: Kernel
    looped: Kernel
    last: Kernel

    @property
    def before(self) -> int:
        """The bytes that are moved."""
        return moved(self.rows) + moved(self.columns)

    @property
    def saved(self) -> int:
        return self.before - moved(self.looped) - moved(self.last)


def with_row_loops(program: Program, programs: int = PROGRAMS) -> Program:
    """The program with sums of columns in kernels that reduce rows.

    Arguments:
        programs: the least number of programs with a loop.
    """
    for step in program.steps:
        if isinstance(step, Kernel) and adds_up_columns(step):
            best = max(pairs(program, step, programs), key=lambda pair: pair.saved, default=None)
            program = replaced(program, best) if best is not None else program
    return program


def pairs(program: Program, columns: Kernel, programs: int) -> Iterator[Pair]:
    """The columns with each kernel of rows that may add them up, if that saves enough."""
    for rows in program.steps:
        if not isinstance(rows, Kernel) or rows is columns or rows.width != columns.row_count:
            continue
        loop = rows_of_a_program(rows, programs)
        if loop and rows.buffers.keys() & columns.buffers.keys() and meeting(program, rows, columns) is not None:
            pair = together(rows, columns, loop, private(program, rows, columns))
            if pair is not None and pair.saved >= WORTH * pair.before and kept(pair.looped) <= KEPT:
                yield pair


def replaced(program: Program, pair: Pair) -> Program:
    """The program with the new kernels of a pair."""
    place, gone = meeting(program, pair.rows, pair.columns), (pair.rows, pair.columns)
    steps = [new for step in program.steps for new in (
        (pair.looped, pair.last) if step is place else () if any(step is one for one in gone) else (step,))]
    device = program.buffers[pair.columns.stores[0].buffer].device
    lines = {name: Buffer(name, DTYPES[memory.dtype], (memory.size,), (1,), device)
             for name, memory in pair.last.buffers.items() if name not in program.buffers}
    return dataclasses.replace(program, steps=steps, buffers=program.buffers | lines)


# ---- which kernels ---------------------------------------------------------------------------------------
def adds_up_columns(kernel: Kernel) -> bool:
    """Whether the kernel adds up columns, in one pass, and stores nothing but values of each."""
    if kernel.changed() or kernel.is_ordered or not kernel.rows or not along_rows(kernel):
        return False
    varying, passes = points(kernel), stages(kernel)
    return all(s.op == "sum" and passes[s.name] == 1 for s in kernel.body if s.op in REDUCTIONS) and not any(
        {s.value, *s.index.names} & varying for s in kernel.stores)


def rows_of_a_program(kernel: Kernel, programs: int) -> int:
    """How many rows one program computes in a loop; 0 if the kernel does not reduce rows, or not enough of them."""
    if not isinstance(kernel.width, int) or not 1 < kernel.width <= WIDEST:
        return 0
    if kernel.changed() or kernel.is_ordered or along_rows(kernel) or not any(s.op in REDUCTIONS for s in kernel.body):
        return 0
    rows = typical(kernel.row_count) // programs
    return 1 << (rows.bit_length() - 1) if rows >= LEAST else 0


def kept(kernel: Kernel) -> int:
    """The elements that registers keep of a row: what is read, and the sums."""
    varying = points(kernel)
    read = {(s.buffer, s.index) for s in kernel.loads() if s.name in varying}
    return kernel.width * (len(read) + len({s.value for s in kernel.stores if s.how == "sum"}))


def moved(kernel: Kernel) -> int:
    return sum(access.nbytes for access in accesses(kernel))


# ---- where they run --------------------------------------------------------------------------------------
def meeting(program: Program, rows: Kernel, columns: Kernel) -> Kernel | None:
    """The one of both in whose place both may run. The columns may be of what the rows store."""
    start, end = sorted(next(i for i, step in enumerate(program.steps) if step is one) for one in (rows, columns))
    first, *between, last = program.steps[start:end + 1]
    if last is rows and conflict(columns, rows, program) or share(program, rows, columns):
        return None
    at_first = not any(conflict(step, last, program) for step in between)
    at_last = not any(conflict(first, step, program) for step in between)
    place = first if at_first else last if at_last else None
    return rows if place is rows else columns if place is columns else None


def share(program: Program, rows: Kernel, columns: Kernel) -> bool:
    """Whether one changes memory that the other knows by another name."""
    return any(not written.isdisjoint(program.buffers[name].alias) for written, other in (
        (rows.written(), columns), (columns.written(), rows)) for name in other.buffers)


def private(program: Program, rows: Kernel, columns: Kernel) -> frozenset[str]:
    """The buffers that the rows store and only the columns read."""
    others = (step for step in program.steps if step is not rows and step is not columns)
    return rows.written() - program.kept() - frozenset().union(*(step.read() for step in others))


# ---- the kernels -----------------------------------------------------------------------------------------
def together(rows: Kernel, columns: Kernel, loop: int, dropped: frozenset[str]) -> Pair | None:
    """Both as a kernel with a loop over rows and one that adds up its lines.

    Arguments:
        dropped: buffers of the rows that need not be stored if the columns are computed with them.
    """
    split = Split(columns, (-(-rows.row_count // loop),))
    sums = [s for s in columns.body if s.op in REDUCTIONS]
    last, _ = split.final(sums, True)
    column = ix.dot((ix.index(v) for v, _ in columns.rows), row_major([n for _, n in columns.rows]))
    line = ix.index(LINE) * columns.row_count + column
    stores = tuple(Store(split.part(s), line, s.args[0], "sum") for s in sums)
    body = pruned((s for s in columns.body if not split.stage[s.name]), stores)
    added = dataclasses.replace(columns, rows=columns.reduced, reduced=columns.rows, body=body, stores=stores,
                                buffers={**last.buffers, **columns.buffers})
    whole = fused(rows, added, dropped - last.read())
    if whole is None or (whole.row_count, whole.width) != (rows.row_count, rows.width):
        return None
    return Pair(rows, columns, dataclasses.replace(whole, loop=loop), last)
