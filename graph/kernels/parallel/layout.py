"""Fits the order of a kernel's axes to memory, because a GPU reads neighbouring elements together.

The last axis of the rows becomes the one along which most bytes are neighbours, and so does the last reduced axis.
Where memory runs along one axis for some accesses of a pointwise kernel and along another axis for others
(``x.t() + y``), the kernel is cut into ``tiles``: two-dimensional blocks in which both are neighbours.
"""
from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator

from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.ops import BYTES
from sot.graph.kernels.program import Program
from sot.graph.kernels.sizes import Number, typical

SECTOR = 32             # bytes that are read together at least
TILED = 1 << 14         # least number of points of a kernel that is cut into tiles
NEIGHBOURS = 16         # least size of both dimensions of a tile, and
WIDTH = 64              # of the second one where axes follow each other in memory
SHARE = 1 / 8           # least share of the bytes that run along the other axis
Axes = tuple[tuple[str, Number], ...]


@dataclasses.dataclass(frozen=True)
class Access:
    """A load or store: its distance in elements between neighbours on each axis, and the bytes that it moves."""

    strides: dict[str, int]
    nbytes: int
    itemsize: int

    @property
    def along(self) -> str | None:
        """The axis of neighbours in memory."""
        return next((axis for axis, stride in self.strides.items() if stride == 1), None)


def accesses(kernel: Kernel) -> Iterator[Access]:
    """The accesses of a kernel, each place once. Axes in quotients and remainders are left out."""
    ranges = {axis: typical(n) for axis, n in kernel.ranges.items()}
    places: dict[tuple[str, Index], None] = {}
    for load in kernel.loads():
        assert load.index is not None
        places[load.buffer, load.index] = None
    places |= {(store.buffer, store.index): None for store in kernel.stores}
    for buffer, at in places:
        memory = kernel.buffers[buffer]
        count = math.prod(ranges.get(name, 1) for name in at.names)
        strides = {atom: abs(typical(c)) for atom, c in at.terms if isinstance(atom, str) and ranges.get(atom, 1) > 1}
        size = BYTES[memory.dtype]
        yield Access(strides, min(count, typical(memory.size)) * size, size)


def fitted(program: Program) -> Program:
    """The program with the axes of each kernel in the order of its memory."""
    return dataclasses.replace(program, steps=[
        ordered(step) if isinstance(step, Kernel) else step for step in program.steps])


def ordered(kernel: Kernel) -> Kernel:
    """The kernel with its axes in the order of most of its memory. The order of a scan stays."""
    found = list(accesses(kernel))
    reduced = kernel.reduced if kernel.is_ordered else _sorted(kernel.reduced, found)
    return dataclasses.replace(kernel, rows=_sorted(kernel.rows, found), reduced=reduced)


def _sorted(axes: Axes, found: list[Access]) -> Axes:
    """The axes as they are, unless more bytes are neighbours along another one than along the last."""
    votes = _votes(found)
    best = max((axis for axis, _ in axes), key=lambda axis: votes[axis], default=None)
    if best is None or votes[best] <= votes[axes[-1][0]]:
        return axes
    lead = max((a for a in found if a.along == best), key=lambda a: a.nbytes)
    return tuple(sorted(axes, key=lambda axis: -lead.strides.get(axis[0], math.inf)))


def _votes(found: list[Access]) -> Counter[str]:
    votes: Counter[str] = Counter()
    for access in found:
        if access.along is not None:
            votes[access.along] += access.nbytes
    return votes


# ---- tiles -----------------------------------------------------------------------------------------------
def tiles(program: Program) -> Program:
    """The program with two-dimensional blocks for kernels whose memory runs along two axes."""
    return dataclasses.replace(program, steps=[
        tiled(step) if isinstance(step, Kernel) else step for step in program.steps])


def tiled(kernel: Kernel) -> Kernel:
    """The pointwise kernel with its last axes after the bar (see ``Kernel.is_tiled``), if that reads less memory."""
    if kernel.reduced or kernel.changed() or len(kernel.rows) < 2 or typical(kernel.row_count) < TILED:
        return kernel
    last, found = kernel.rows[-1][0], list(accesses(kernel))
    if any(last not in store.index.names for store in kernel.stores):
        return kernel
    across = [a for a in found if a.along not in (None, last) and a.strides.get(last, 0) * a.itemsize >= SECTOR]
    if not across or sum(a.nbytes for a in across) < SHARE * sum(a.nbytes for a in found):
        return kernel
    lead = max(across, key=lambda a: a.nbytes)
    cut = len(kernel.rows) - 1      # axes that follow each other in memory count as one
    while _points(kernel.rows[cut:]) < WIDTH and kernel.rows[cut - 1][0] != lead.along:
        cut -= 1
    rows = tuple(sorted(kernel.rows[:cut], key=lambda axis: -lead.strides.get(axis[0], math.inf)))
    if min(_points(kernel.rows[cut:]), _points(rows)) < NEIGHBOURS:
        return kernel
    return dataclasses.replace(kernel, rows=rows, reduced=kernel.rows[cut:])


def _points(axes: Axes) -> int:
    return math.prod(typical(n) for _, n in axes)
