"""The sizes of a kernel's blocks. A large block costs registers, and keeps more loads in flight."""
from __future__ import annotations

from sot.backends.triton.source.kernel_source import Blocks
from sot.graph.kernels.ir import Kernel, points
from sot.graph.kernels.parallel.splitting import along_rows
from sot.graph.kernels.sizes import Number, Size, typical

LINE = 1024             # elements of a block without reduction
WHOLE = 16384           # the widest row that is kept in registers; twice that: see ``only_reads_one``
TILE = 4096             # elements of a block with a reduction, if its rows are narrower
LOOP = 2048             # columns at a time, of wider ones
VARYING = (128, 1024, WHOLE)    # columns for widths that vary: few variants of a kernel, some of them with idle lanes
SIDE = 64               # of a tile
LANES = 32              # neighbouring rows that must be loaded together where memory runs along the rows
INTERPRETED = 1 << 16   # the interpreter needs the same time for a large block as for a small one


def chosen(kernel: Kernel, interpreted: bool = False, whole: int = WHOLE) -> Blocks:
    """The sizes for a kernel. Rows wider than ``whole`` are read in pieces."""
    line, tile = (INTERPRETED, INTERPRETED) if interpreted else (LINE, TILE)
    count = line if isinstance(kernel.row_count, Size) else power_of_two(kernel.row_count)   # for any number of rows
    if not kernel.reduced:
        return Blocks(min(line, count), 0, False, 4)
    if kernel.is_tiled:
        side = 4 * SIDE if interpreted else SIDE
        columns = side if isinstance(kernel.width, Size) else min(side, power_of_two(kernel.width))
        return Blocks(min(side, count), columns, False, warps(side * columns))
    columns = columns_for(kernel.width)
    if kernel.loop:
        rows = min(kernel.loop, max(tile // columns, 1))
        return Blocks(rows, columns, True, warps(rows * columns))
    lanes = LANES if along_rows(kernel) else 1
    whole *= 2 if only_reads_one(kernel) else 1
    is_whole = kernel.is_ordered or columns <= (whole if lanes == 1 else max(tile // lanes, 1))
    columns = columns if is_whole else min(columns, max(LOOP // lanes, 32))
    rows = min(count, max(tile // columns, 1 if kernel.is_ordered else lanes))
    return Blocks(rows, columns, is_whole, warps(rows * columns))


def only_reads_one(kernel: Kernel) -> bool:
    """Whether each row is read from one place in one buffer, and no row is stored. Then registers keep one of twice the
    width: on an H200, the loss of 32768 classes takes 46 us so, and 64 us in pieces. Its gradient, which stores a row,
    takes 100 us, and 75 us in pieces.
    """
    at_points = points(kernel)
    loads = {(load.buffer, load.index) for load in kernel.loads() if load.name in at_points}
    return len(loads) == 1 and not any({s.value, *s.index.names} & at_points for s in kernel.stores)


def columns_for(width: Number) -> int:
    """A power of two that is not less than the width. For a width that varies this becomes an assumption."""
    if not isinstance(width, Size):
        return power_of_two(width)
    for columns in VARYING:
        if typical(width) <= columns and width <= columns:
            return columns
    return power_of_two(typical(width))


def power_of_two(n: int) -> int:
    """The smallest power of two that is not less than ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def warps(elements: int) -> int:
    """The number of warps with about 16 elements per thread."""
    return min(max(power_of_two(elements // 512), 1), 16)
