"""The maximum of a window around each place, with its position, the mean of a window, and the gradients of these.

The elements of a window are written out, so that what is before and after is fused. Larger windows are called.
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
from sot.graph.lowering.driver import Lowering, lowers
from sot.graph.lowering.movement import within
from sot.graph.lowering.pointwise import is_float, like
from sot.graph.lowering.reductions import row_major

LARGEST = 25        # elements that are written out
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

    def around(self, b: Builder, axes: Sequence[Index]) -> Iterator[list[Index]]:
        """The windows that may have an element, in order."""
        last = [ix.floordiv(axis + padding, step, b.ranges)
                for axis, padding, step in zip(axes, self.padding, self.step, strict=True)]
        for back in itertools.product(*(range(n - 1, -1, -1) for n in self.covering())):
            yield [axis - n for axis, n in zip(last, back, strict=True)]

    def covering(self) -> list[int]:
        """How many windows at most have one element, along each axis."""
        return [-(-((n - 1) * d + 1) // s) for n, d, s in zip(self.size, self.dilation, self.step, strict=True)]


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """As in ATen, the first of equal elements counts, and the last NaN."""
    source, windows = given["self"], Windows(given, len(given["kernel_size"]))
    if math.prod(windows.size) > LARGEST:
        return None
    kind = compute_type(NAMES[source.dtype])
    shape = source.shape[-windows.rank:]

    def body(b: Builder, axes: list[Index], which: int) -> str:
        outer, starts = axes[:-windows.rank], windows.starts(axes[-windows.rank:])
        at = first_inside(b, starts, windows, shape)
        best = b.const(lowest(kind), kind)
        for cell in windows.cells():
            place = [start + away for start, away in zip(starts, cell, strict=True)]
            inside = windows.inside(b, place, shape)
            value = b.cast(low.read(b, source, [*outer, *place], inside, lowest(NAMES[source.dtype])), kind)
            taken = b.emit("gt", value, best)
            if is_float(b, value):
                taken = b.emit("or", taken, b.emit("isnan", value))
            best = b.emit("where", taken, value, best)
            at = b.emit("where", taken, b.index(ix.dot(place, row_major(shape))), at)
        return (best, at)[which]
    return [low.kernel(node, value, (), lambda b, axes, _, i=i: body(b, axes, i), i)     # type: ignore[misc]
            for i, value in enumerate(node.meta["val"])]


def first_inside(b: Builder, starts: Sequence[Index], windows: Windows, shape: Numbers) -> str:
    """The position of the first element of a window that is not padding."""
    total = b.const(0, "i64")
    for start, dilation, padding, stride in zip(starts, windows.dilation, windows.padding, row_major(shape),
                                                strict=True):
        before = ix.mod(start + -(-padding // dilation) * dilation, dilation, b.ranges)
        own = b.index(start)
        if padding:
            own = b.emit("where", b.emit("lt", own, b.const(0, "i64")), b.index(before), own)
        total = b.emit("add", total, b.emit("mul", own, b.const(stride, "i64")))
    return total


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Each element sums the gradients of the windows that it is the maximum of."""
    windows = Windows(given, len(given["kernel_size"]))
    gradient, where, value = given["grad_output"], given["indices"], node.meta["val"]
    kind = compute_type(NAMES[value.dtype])
    if math.prod(windows.covering()) > LARGEST or kind not in FLOATS:
        return None
    shape, outputs = tuple(value.shape)[-windows.rank:], gradient.shape[-windows.rank:]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        outer, own = axes[:-windows.rank], axes[-windows.rank:]
        here, total = b.index(ix.dot(own, row_major(shape))), b.const(0, kind)
        for place in windows.around(b, own):
            inside = windows.inside(b, place, outputs)
            found = low.read(b, where, [*outer, *place], inside, -1)
            part = b.cast(low.read(b, gradient, [*outer, *place], inside, 0.0), kind)
            part = b.emit("where", b.emit("eq", found, here), part, like(b, 0, part))
            total = b.emit("add", total, part)
        return total
    return low.kernel(node, value, (), body)


# ---- means -------------------------------------------------------------------------------------------------------
@lowers("avg_pool2d", "avg_pool3d")
def avg_pool(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, windows, kind = given["self"], Windows(given, len(given["kernel_size"])), NAMES[given["self"].dtype]
    kind = compute_type(kind)
    if math.prod(windows.size) > LARGEST or kind not in FLOATS:
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
    if math.prod(windows.size) > LARGEST or math.prod(windows.covering()) > LARGEST or kind not in FLOATS:
        return None
    outputs = gradient.shape[-windows.rank:]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        outer, own = axes[:-windows.rank], axes[-windows.rank:]
        total = b.const(0, kind)
        for place in windows.around(b, own):
            starts = windows.starts(place)
            inside = windows.inside(b, place, outputs)
            for axis, start, size in zip(own, starts, windows.size, strict=True):
                inside = b.emit("and", inside, within(b, axis - start, 0, size))
            part = b.cast(low.read(b, gradient, [*outer, *place], inside, 0.0), kind)
            share = b.emit("div", part, divisor(b, given, windows, starts, shape, kind))
            total = b.emit("add", total, b.emit("where", inside, share, like(b, 0, share)))
        return total
    return low.kernel(node, value, (), body)
