"""The maximum of a window around each place, with its position, the mean of a window, and the gradients of these.

The elements of a window are written out, so that what is before and after is fused. Larger windows are called. A
position that only the gradient needs is kept as the number of a cell of the window, in one byte.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder
from sot.graph.kernels.ops import FLOATS, NAMES, compute_type, lowest
from sot.graph.kernels.program import View
from sot.graph.lowering.driver import Lowering, lowers
from sot.graph.lowering.movement import within
from sot.graph.lowering.pointwise import is_float, like
from sot.graph.lowering.reductions import row_major
from sot.graph.nodes import operator_of
from sot.graph.rewrite.decompositions import WRITTEN_OUT, may_miss
from sot.torch_compat.graphs import POOL_WITH_CELLS, POSITIONS_OF_CELLS

Numbers = Sequence[int]


class Windows:
    """The windows of an operator along its last axes."""

    def __init__(self, given: dict[str, Any], rank: int) -> None:
        def each(name: str) -> Numbers:
            numbers = given.get(name, [1]) or given["kernel_size"]
            return [*numbers] * rank if len(numbers) == 1 else numbers
        self.rank, self.padding, self.dilation = rank, each("padding"), each("dilation")
        self.size, self.step = each("kernel_size"), each("stride")

    def cells(self) -> Iterator[tuple[int, ...]]:
        """The elements of a window, by their distance from its first one."""
        return itertools.product(*(range(0, n * d, d) for n, d in zip(self.size, self.dilation, strict=True)))

    def starts(self, axes: Sequence[Index]) -> list[Index]:
        """The first place of a window, which may be in the padding."""
        return [axis * s - p for axis, s, p in zip(axes, self.step, self.padding, strict=True)]

    def inside(self, b: Builder, place: Sequence[Index], shape: Numbers, beyond: bool = False) -> str:
        """Whether a place is in a space of this shape, or with ``beyond`` in the space or its padding."""
        inside = b.const(True, "b1")
        for axis, size, padding in zip(place, shape, self.padding, strict=True):
            more = padding if beyond else 0
            inside = b.emit("and", inside, within(b, axis, -more, size + more))
        return inside

    def around(self, b: Builder, axes: Sequence[Index]) -> Iterator[tuple[list[Index], list[Index]]]:
        """The windows that may have an element, in order, and how far the element is from the first one of each."""
        padded = [(axis + padding, step) for axis, padding, step in zip(axes, self.padding, self.step, strict=True)]
        last = [ix.floordiv(axis, step, b.ranges) for axis, step in padded]
        away = [ix.mod(axis, step, b.ranges) for axis, step in padded]
        for back in itertools.product(*(range(n - 1, -1, -1) for n in self.covering())):
            yield ([axis - n for axis, n in zip(last, back, strict=True)],
                   [axis + n * step for axis, n, step in zip(away, back, self.step, strict=True)])

    def covering(self) -> list[int]:
        """How many windows at most have one element, along each axis."""
        return [-(-((n - 1) * d + 1) // s) for n, d, s in zip(self.size, self.dilation, self.step, strict=True)]


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices", POOL_WITH_CELLS)
def max_pool(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """As in ATen, the first of equal elements counts, and the last NaN. The second result is its position in the
    tensor, or its cell in the window.
    """
    source, windows = given["self"], Windows(given, len(given["kernel_size"]))
    if math.prod(windows.size) > WRITTEN_OUT:
        return None
    kind = compute_type(NAMES[source.dtype])
    shape, of_cells = source.shape[-windows.rank:], operator_of(node) == POOL_WITH_CELLS

    def body(b: Builder, axes: list[Index], which: int) -> str:
        outer, starts = axes[:-windows.rank], windows.starts(axes[-windows.rank:])
        at = first_inside(b, starts, windows, row_major(windows.size if of_cells else shape), of_cells)
        best = b.const(lowest(kind), kind)
        for number, cell in enumerate(windows.cells()):
            place = [start + away for start, away in zip(starts, cell, strict=True)]
            inside = windows.inside(b, place, shape)
            value = b.cast(low.read(b, source, [*outer, *place], inside, lowest(NAMES[source.dtype])), kind)
            taken = b.emit("gt", value, best)
            if is_float(b, value):
                taken = b.emit("or", taken, b.emit("isnan", value))
            best = b.emit("where", taken, value, best)
            here = b.const(number, "i64") if of_cells else b.index(ix.dot(place, row_major(shape)))
            at = b.emit("where", taken, here, at)
        return (best, at)[which]
    return [low.kernel(node, value, (), lambda b, axes, _, i=i: body(b, axes, i), i)     # type: ignore[misc]
            for i, value in enumerate(node.meta["val"])]


def first_inside(b: Builder, starts: Sequence[Index], windows: Windows, strides: Numbers, of_cells: bool) -> str:
    """The position of the first element of a window that is not padding, or its cell."""
    total = b.const(0, "i64")
    for start, dilation, padding, stride in zip(starts, windows.dilation, windows.padding, strides, strict=True):
        own = b.const(0, "i64") if of_cells else b.index(start)
        if padding:
            skipped = ix.floordiv(start * -1 + dilation - 1, dilation, b.ranges)
            before = ix.mod(start + -(-padding // dilation) * dilation, dilation, b.ranges)
            own = b.emit("where", b.emit("lt", b.index(start), b.const(0, "i64")),
                         b.index(skipped if of_cells else before), own)
        total = b.emit("add", total, b.emit("mul", own, b.const(stride, "i64")))
    return total


@lowers(POSITIONS_OF_CELLS)
def positions_of_cells(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    cells, windows = given["self"], Windows(given, len(given["kernel_size"]))

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        left, total = b.cast(low.read(b, cells, axes), "i64"), b.const(0, "i64")
        starts = windows.starts(axes[-windows.rank:])
        for start, size, dilation, within_window, stride in zip(
                starts, windows.size, windows.dilation, row_major(windows.size), row_major(given["input_size"]),
                strict=True):
            cell = b.emit("rem", b.emit("idiv", left, b.const(within_window, "i64")), b.const(size, "i64"))
            place = b.emit("add", b.index(start), b.emit("mul", cell, b.const(dilation, "i64")))
            total = b.emit("add", total, b.emit("mul", place, b.const(stride, "i64")))
        return total
    return low.kernel(node, node.meta["val"], (), body)


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Each element sums the gradients of the windows that it is the maximum of."""
    windows = Windows(given, len(given["kernel_size"]))
    gradient, value = given["grad_output"], node.meta["val"]
    kind = compute_type(NAMES[value.dtype])
    shape, outputs = tuple(value.shape)[-windows.rank:], gradient.shape[-windows.rank:]
    if math.prod(windows.covering()) > WRITTEN_OUT or kind not in FLOATS or may_miss(
            windows.padding, windows.dilation, shape):
        return None
    cells = cells_of(low, node, windows)

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        outer, own = axes[:-windows.rank], axes[-windows.rank:]
        total = b.const(0, kind)
        for place, away in windows.around(b, own):
            inside = windows.inside(b, place, outputs)
            if cells is None:
                here = b.index(ix.dot(own, row_major(shape)))
                found = low.read(b, given["indices"], [*outer, *place], inside, -1)
            else:
                covers, here = cell_at(b, windows, away)
                inside = b.emit("and", inside, covers)
                found = b.cast(low.read(b, cells, [*outer, *place], inside, -1), "i64")
            part = b.cast(low.read(b, gradient, [*outer, *place], inside, 0.0), kind)
            part = b.emit("where", b.emit("eq", found, here), part, like(b, 0, part))
            total = b.emit("add", total, part)
        return total
    return low.kernel(node, value, (), body)


def cells_of(low: Lowering, node: fx.Node, windows: Windows) -> View | None:
    """The cells that the positions of the maxima are computed from, if they are in windows like these."""
    positions: Any = node.kwargs.get("indices", node.args[-1])
    if not isinstance(positions, fx.Node) or operator_of(positions) != POSITIONS_OF_CELLS:
        return None
    known = low.arguments(positions)
    shape = tuple(node.meta["val"].shape)[-windows.rank:]
    same = vars(Windows(known, windows.rank)) == vars(windows) and tuple(known["input_size"]) == shape
    return known["self"] if same else None


def cell_at(b: Builder, windows: Windows, away: Sequence[Index]) -> tuple[str, str]:
    """Whether an element so far from the first one of a window is in the window, and in which cell."""
    covers, number = b.const(True, "b1"), Index()
    for axis, size, dilation, stride in zip(away, windows.size, windows.dilation, row_major(windows.size), strict=True):
        covers = b.emit("and", covers, within(b, axis, 0, (size - 1) * dilation + 1))
        rest = b.index(ix.mod(axis, dilation, b.ranges))
        covers = b.emit("and", covers, b.emit("eq", rest, b.const(0, "i64")))
        number = number + ix.floordiv(axis, dilation, b.ranges) * stride
    return covers, b.index(number)


# ---- means -------------------------------------------------------------------------------------------------------
@lowers("avg_pool2d", "avg_pool3d")
def avg_pool(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, windows, kind = given["self"], Windows(given, len(given["kernel_size"])), NAMES[given["self"].dtype]
    kind = compute_type(kind)
    if math.prod(windows.size) > WRITTEN_OUT or kind not in FLOATS:
        return None
    shape = source.shape[-windows.rank:]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        outer, starts = axes[:-windows.rank], windows.starts(axes[-windows.rank:])
        total = b.const(0, kind)
        for cell in windows.cells():
            place = [start + away for start, away in zip(starts, cell, strict=True)]
            value = low.read(b, source, [*outer, *place], windows.inside(b, place, shape), 0.0)
            total = b.emit("add", total, b.cast(value, kind))
        return b.emit("div", total, divisor(b, given, windows, starts, shape, kind))
    return low.kernel(node, node.meta["val"], (), body)


def divisor(b: Builder, given: dict[str, Any], windows: Windows, starts: Sequence[Index], shape: Numbers, kind: str,
            ) -> str:
    """By what the sum of a window is divided: how many of its places are in the tensor, or in its padding as well."""
    if given["divisor_override"]:
        return b.const(given["divisor_override"], kind)
    total = b.const(0, "i32")
    for cell in windows.cells():
        place = [start + away for start, away in zip(starts, cell, strict=True)]
        total = b.emit("add", total, b.cast(windows.inside(b, place, shape, given["count_include_pad"]), "i32"))
    return b.cast(total, kind)


@lowers("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Each element sums its shares of the windows that it is in."""
    gradient, windows, value = given["grad_output"], Windows(given, len(given["kernel_size"])), node.meta["val"]
    kind, shape = compute_type(NAMES[value.dtype]), tuple(value.shape)[-windows.rank:]
    if math.prod(windows.size) > WRITTEN_OUT or math.prod(windows.covering()) > WRITTEN_OUT or kind not in FLOATS:
        return None
    outputs = gradient.shape[-windows.rank:]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        outer, own = axes[:-windows.rank], axes[-windows.rank:]
        total = b.const(0, kind)
        for place, away in windows.around(b, own):
            starts = windows.starts(place)
            inside = windows.inside(b, place, outputs)
            for axis, size in zip(away, windows.size, strict=True):
                inside = b.emit("and", inside, within(b, axis, 0, size))
            part = b.cast(low.read(b, gradient, [*outer, *place], inside, 0.0), kind)
            share = b.emit("div", part, divisor(b, given, windows, starts, shape, kind))
            total = b.emit("add", total, b.emit("where", inside, share, like(b, 0, share)))
        return total
    return low.kernel(node, value, (), body)
