"""Operators that move elements, look them up, or compute them from their position."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder
from sot.graph.kernels.ops import NAMES, nothing
from sot.graph.kernels.program import View
from sot.graph.kernels.sizes import Number, Size, surely_less
from sot.graph.lowering.driver import Lowering, lowers
from sot.graph.lowering.places import assembled
from sot.graph.lowering.pointwise import converted, like
from sot.graph.nodes import operator_of


# ---- from the position alone -----------------------------------------------------------------------------
@lowers("full", "full_like", "scalar_tensor", "new_full")
def full(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    value = given["s"] if "s" in given else given["fill_value"]
    return None if isinstance(value, complex | View) else constant(low, node, value)


@lowers("zeros", "zeros_like", "new_zeros", "_efficientzerotensor")
def zeros(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return constant(low, node, 0)


@lowers("ones", "ones_like", "new_ones")
def ones(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return constant(low, node, 1)


def constant(low: Lowering, node: fx.Node, value: Any) -> Any:
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: b.const(value, NAMES[node.meta["val"].dtype]))


@lowers("fill.Scalar")
def fill(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return constant(low, node, given["value"])


@lowers("iota", "arange")
def arange(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Integers only: ATen rounds steps of other types in its own way."""
    start, step = given.get("start", 0), given.get("step", 1)
    if not all(isinstance(v, int | Size) for v in (start, step)) or node.meta["val"].is_floating_point():
        return None
    kind = NAMES[node.meta["val"].dtype]
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: b.cast(b.index(axes[0] * step + start), kind))


# ---- rearranging ---------------------------------------------------------------------------------------------
def moved(low: Lowering, node: fx.Node, source: View, place: Callable[[list[Index], Builder], Sequence[Index]]) -> Any:
    """Each element is the element of ``source`` at another place."""
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: low.read(b, source, place(axes, b)))


@lowers("flip", "rev")
def flip(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source = next(iter(given.values()))
    flipped = {d % max(len(source.shape), 1) for d in given["dims"]}
    return moved(low, node, source, lambda axes, b: [
        axis * -1 + (n - 1) if d in flipped else axis
        for d, (axis, n) in enumerate(zip(axes, source.shape, strict=True))])


@lowers("roll")
def roll(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, dims = given["self"], given["dims"]
    if not dims:
        return None
    shifts: dict[int, int] = {}
    for d, shift in zip(dims, given["shifts"], strict=True):
        shifts[d % len(source.shape)] = shifts.get(d % len(source.shape), 0) + shift
    return moved(low, node, source, lambda axes, b: [
        ix.mod(axis + (-shifts.get(d, 0)) % n, n, b.ranges)
        for d, (axis, n) in enumerate(zip(axes, source.shape, strict=True))])


@lowers("repeat")
def repeat(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source = given["self"]
    return moved(low, node, source, lambda axes, b: [
        ix.mod(axis, n, b.ranges)
        for axis, n in zip(axes[len(axes) - len(source.shape):], source.shape, strict=True)])


@lowers("cat")
def cat(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """The first part if the position is in it, else the second if it is in that, and so on."""
    value = node.meta["val"]
    parts = [p for p in given["tensors"] if p.shape != (0,)]
    dim, kind = given["dim"] % max(value.dim(), 1), NAMES[value.dtype]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        ends = [sum(p.shape[dim] for p in parts[:i + 1]) for i in range(len(parts))]
        result = None
        for part, end in reversed(list(zip(parts, ends, strict=True))):
            start = end - part.shape[dim]
            inside = within(b, axes[dim], start, end)
            place = [axis - start if d == dim else axis for d, axis in enumerate(axes)]
            found = b.cast(low.read(b, part, place, inside, zero(part)), kind)
            result = found if result is None else b.emit("where", inside, found, result)
        assert result is not None
        return result
    if (placed := assembled(low, node, parts, dim)) is not None:
        return placed
    return low.kernel(node, value, (), body) if len(parts) <= 16 else None


def within(b: Builder, axis: Index, start: Number, end: Number) -> str:
    """Whether the position is in ``[start, end)``; a constant if the axis cannot leave it."""
    known = ix.bounds(axis, b.ranges)
    above, below = b.const(True, "b1"), b.const(True, "b1")
    if known is None or not surely_less(start - 1, known[0]):
        above = b.emit("ge", b.index(axis), b.const(start, "i64"))
    if known is None or not surely_less(known[1], end):
        below = b.emit("lt", b.index(axis), b.const(end, "i64"))
    return b.emit("and", above, below)


def zero(tensor: View) -> Any:
    return nothing(NAMES[tensor.dtype])


@lowers("constant_pad_nd")
def constant_pad_nd(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, pad, value = given["self"], given["pad"], node.meta["val"]
    rank = value.dim()
    before = {rank - 1 - i // 2: pad[i] for i in range(0, len(pad), 2)}
    fill_value = type(zero(source))(given["value"])

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        place = [axis - before.get(d, 0) for d, axis in enumerate(axes)]
        inside = b.const(True, "b1")
        for axis, size in zip(place, source.shape, strict=True):
            inside = b.emit("and", inside, within(b, axis, 0, size))
        return low.read(b, source, place, inside, fill_value)
    return low.kernel(node, value, (), body)


@lowers("slice_scatter")
def slice_scatter(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    base, source, step = given["self"], given["src"], given["step"]
    dim = given["dim"] % max(len(base.shape), 1)
    size = base.shape[dim]
    start = bounded(0 if given["start"] is None else given["start"], size)
    if base.dtype != source.dtype:
        return None

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        away = axes[dim] - start
        end = start + (source.shape[dim] - 1) * step + 1
        inside = within(b, axes[dim], start, end)
        if step > 1:
            phase = b.index(ix.mod(axes[dim] + (-start) % step, step, b.ranges))
            inside = b.emit("and", inside, b.emit("eq", phase, b.const(0, "i64")))
        place = [ix.floordiv(away, step, b.ranges) if d == dim else axis for d, axis in enumerate(axes)]
        return b.emit("where", inside, low.read(b, source, place, inside, zero(source)), low.read(b, base, axes))
    return low.kernel(node, node.meta["val"], (), body)


def bounded(position: Number, size: Number) -> Number:
    return min(max(position + size if position < 0 else position, 0), size)


@lowers("select_scatter")
def select_scatter(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    base, source = given["self"], given["src"]
    dim = given["dim"] % len(base.shape)
    chosen = given["index"] % base.shape[dim]
    if base.dtype != source.dtype:
        return None

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        inside = within(b, axes[dim], chosen, chosen + 1)
        place = [axis for d, axis in enumerate(axes) if d != dim]
        return b.emit("where", inside, low.read(b, source, place, inside, zero(source)), low.read(b, base, axes))
    return low.kernel(node, node.meta["val"], (), body)


@lowers("as_strided_scatter")
def as_strided_scatter(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Each place of the memory looks for its element among the new ones, by their strides from large to small."""
    base, source, start = given["self"], given["src"], given["storage_offset"]
    order = sorted((d for d, n in enumerate(source.shape) if n > 1), key=lambda d: -given["stride"][d])
    ends = [given["stride"][d] * source.shape[d] for d in order]
    if base.dtype != source.dtype or min((given["stride"][d] for d in order), default=1) < 1 or any(
            end > given["stride"][d] for end, d in zip(ends[1:], order, strict=False)):
        return None     # new elements that share places
    start = 0 if start is None else start - node.args[0].meta["val"].storage_offset()   # type: ignore[union-attr]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        rest = ix.dot(axes, base.strides) - start
        inside = within(b, rest, 0, max(ends, default=1))
        place = [Index()] * len(source.shape)
        for d in order:
            place[d] = ix.floordiv(rest, given["stride"][d], b.ranges)
            rest = ix.mod(rest, given["stride"][d], b.ranges)
            inside = b.emit("and", inside, within(b, place[d], 0, source.shape[d]))
        inside = b.emit("and", inside, within(b, rest, 0, 1))
        return b.emit("where", inside, low.read(b, source, place, inside, zero(source)), low.read(b, base, axes))
    return low.kernel(node, node.meta["val"], (), body)


def _triangle(low: Lowering, node: fx.Node, given: dict[str, Any], upper: bool) -> Any:
    source = given["self"]

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        side = b.index(axes[-1] - axes[-2])
        kept = b.emit("ge" if upper else "le", side, b.const(given["diagonal"], "i64"))
        value = low.read(b, source, axes, kept, zero(source))
        return b.emit("where", kept, value, like(b, zero(source), value))
    return low.kernel(node, node.meta["val"], (), body)


@lowers("triu")
def triu(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return _triangle(low, node, given, True)


@lowers("tril")
def tril(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return _triangle(low, node, given, False)


# ---- looking up ----------------------------------------------------------------------------------------------
def position(low: Lowering, b: Builder, where: View, axes: Sequence[Index], size: Number, wraps: bool) -> Index:
    """The place for an element of an index tensor. ``wraps``: negative indices count from the end."""
    value = b.cast(low.read(b, where, axes), "i64")
    if wraps:
        value = b.emit("where", b.emit("lt", value, b.const(0, "i64")), b.emit("add", value, b.const(size, "i64")),
                       value)
    return b.inside(value, size)


@lowers("embedding")
def embedding(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    table, where = given["weight"], given["indices"]
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: low.read(
        b, table, [position(low, b, where, axes[:-1], table.shape[0], False), axes[-1]]))


@lowers("index_select")
def index_select(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, where = given["self"], given["index"]
    if not source.shape or not where.shape:
        return None
    dim = given["dim"] % len(source.shape)

    def place(axes: list[Index], b: Builder) -> list[Index]:
        found = position(low, b, where, [axes[dim]], source.shape[dim], False)
        return [found if d == dim else axis for d, axis in enumerate(axes)]
    return moved(low, node, source, place)


@lowers("gather")
def gather(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, where = given["self"], given["index"]
    if not source.shape or not where.shape:
        return None
    dim = given["dim"] % len(source.shape)

    def place(axes: list[Index], b: Builder) -> list[Index]:
        found = position(low, b, where, axes, source.shape[dim], False)
        return [found if d == dim else axis for d, axis in enumerate(axes)]
    return moved(low, node, source, place)


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """``source[i, :, j]``: the axes of the indices are together, in place of the first one or in front."""
    source, indices = given["self"], given["indices"]
    used = [d for d, i in enumerate(indices) if i is not None]
    found = [indices[d] for d in used]
    if not used or any(i.dtype is torch.bool or i.dtype is torch.uint8 for i in found):
        return None
    rank = max(len(i.shape) for i in found)
    together = used == list(range(used[0], used[-1] + 1))
    at = used[0] if together else 0

    def place(axes: list[Index], b: Builder) -> list[Index]:
        own, rest = axes[at:at + rank], iter(axes[:at] + axes[at + rank:])
        return [position(low, b, indices[d], own, n, True) if d in used else next(rest)
                for d, n in enumerate(source.shape)]
    return moved(low, node, source, place)


SCATTERS = frozenset(("select_scatter", "slice_scatter", "as_strided_scatter", "diagonal_scatter"))


@lowers("copy")
def copy(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """What is only put elsewhere needs no memory of its own."""
    source, value = given["src"], node.meta["val"]
    if source.device != value.device:
        return None
    if source.dtype is value.dtype and is_only_scattered(node):
        return expanded(source, tuple(value.shape))
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: converted(
        b, low.read(b, given["src"], axes), node))


def is_only_scattered(node: fx.Node) -> bool:
    return all(operator_of(user) in SCATTERS and user.args[0] is not node for user in node.users)


def expanded(source: View, shape: tuple[Number, ...]) -> View:
    """The tensor, broadcast to this shape."""
    strides = [0 if n == 1 else s for n, s in zip(source.shape, source.strides, strict=True)]
    return dataclasses.replace(source, shape=shape, strides=(0,) * (len(shape) - len(strides)) + tuple(strides))
