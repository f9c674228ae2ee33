"""Operators that write to looked-up places: a copy of the old contents, then a kernel that changes some of them. There
is no copy if nothing else reads the old contents.

If each line has one place (``scatter`` of a label), every element tests whether it is that place: a single kernel.
Otherwise there are two: the first fills the buffer; the second adds to it, or puts elements into it. The order in
which floating-point numbers are added to one place is not defined, as in torch's own kernels. If torch is set to
deterministic algorithms, the operator is called.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder, Store
from sot.graph.kernels.memory import is_own
from sot.graph.kernels.ops import NAMES
from sot.graph.kernels.program import View, views
from sot.graph.kernels.sizes import Number
from sot.graph.lowering.driver import Lowering, lowers
from sot.graph.lowering.movement import position

ADDED = frozenset(("f32", "f64", "i32", "i64"))     # types that a GPU can add in memory
Body = Callable[[Builder, list[Index]], tuple[str, list[Index]]]


def changed(low: Lowering, node: fx.Node, base: View, shape: Sequence[int], how: str, body: Body) -> View | None:
    """``base`` with some elements changed. ``body`` returns, at each point of ``shape``, a value and its place."""
    value = node.meta["val"]
    if torch.are_deterministic_algorithms_enabled() or (how == "add" and NAMES[value.dtype] not in ADDED):
        return None
    result = base
    if not may_take(low, node, base):
        copy = low.kernel(node, value, (), lambda b, axes, _: low.read(b, base, axes))
        if copy is None:
            return None
        low.materialize((copy,))
        result = copy
    rows = tuple((f"p{i}", n) for i, n in enumerate(shape) if n > 1)
    builder = Builder(dict(rows))
    builder.note = low.note
    axes = [ix.index(f"p{i}" if n > 1 else 0) for i, n in enumerate(shape)]
    element, place = body(builder, axes)
    store = Store(result.buffer, ix.dot(place, result.strides, result.offset), element, how)
    low.step(f"{node.name}_{how}", rows, (), builder, store)
    return result


def may_take(low: Lowering, node: fx.Node, tensor: View) -> bool:
    """Whether the node may change its first argument in place: memory that the program has made for it, which only the
    node reads, and only there. Then the memory belongs to the node from now on.
    """
    made, name, value = node.args[0], tensor.buffer, node.meta["val"]
    read = [view.buffer for view in views(low.resolve((node.args, node.kwargs)))]
    if not isinstance(made, fx.Node) or len(made.users) != 1 or read.count(name) != 1:
        return False
    if low.taken.get(name, name) != made.name or name in low.free or not is_own(name, low.program):
        return False
    if tensor != low.program.buffers[name].view() or tuple(value.stride()) != tensor.strides:
        return False
    low.taken[name] = node.name
    return True


# ---- where every line has one place ----------------------------------------------------------------------------
def _one_a_line(low: Lowering, node: fx.Node, given: dict[str, Any], source: Any, adds: bool) -> Any:
    base, where, kind = given["self"], given["index"], NAMES[given["self"].dtype]
    dim = given["dim"] % len(base.shape)

    def body(b: Builder, axes: list[Index], _: Any) -> str:
        line = [Index() if d == dim else axis for d, axis in enumerate(axes)]
        place = b.index(position(low, b, where, line, base.shape[dim], False))
        chosen = b.emit("eq", place, b.index(axes[dim]))
        old = low.value(b, base, axes, kind)
        new = low.value(b, source, line, kind)
        return b.emit("where", chosen, b.emit("add", old, new) if adds else new, old)
    return low.kernel(node, node.meta["val"], (), body)


def _scattered(low: Lowering, node: fx.Node, given: dict[str, Any], adds: bool) -> Any:
    base, where = given["self"], given["index"]
    source = given["src"] if "src" in given else given["value"]
    if not base.shape or len(where.shape) != len(base.shape) or (adds and base.dtype is torch.bool):
        return None
    if isinstance(source, View) and source.dtype != base.dtype:
        return None
    dim = given["dim"] % len(base.shape)
    is_line = where.shape == tuple(1 if d == dim else n for d, n in enumerate(base.shape))
    if is_line and (not isinstance(source, View) or source.shape == where.shape):
        return _one_a_line(low, node, given, source, adds)

    def body(b: Builder, axes: list[Index]) -> tuple[str, list[Index]]:
        found = position(low, b, where, axes, base.shape[dim], False)
        element = low.read(b, source, axes) if isinstance(source, View) else b.const(source, NAMES[base.dtype])
        return element, [found if d == dim else axis for d, axis in enumerate(axes)]
    return changed(low, node, base, where.shape, "add" if adds else "put", body)


@lowers("scatter.value", "scatter.src")
def scatter(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return _scattered(low, node, given, adds=False)


@lowers("scatter_add")
def scatter_add(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return _scattered(low, node, given, adds=True)


def broadcast(shapes: Sequence[Sequence[Number]]) -> tuple[Number, ...]:
    """The shape of tensors together, if these can be broadcast."""
    rank = max(map(len, shapes))
    columns = zip(*([1] * (rank - len(shape)) + list(shape) for shape in shapes), strict=True)
    return tuple(next((n for n in column if n != 1), 1) for column in columns)


# ---- ``base[i, :, j] = values`` and ``+=`` -----------------------------------------------------------------------
@lowers("index_put", "_unsafe_index_put")
def index_put(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """The axes of the indices are together, in place of the first one or in front."""
    base, indices, values = given["self"], given["indices"], given["values"]
    used = [d for d, i in enumerate(indices) if i is not None]
    found = [indices[d] for d in used]
    if not used or any(i.dtype not in (torch.int64, torch.int32) for i in found) or values.dtype != base.dtype:
        return None
    common = broadcast([i.shape for i in found])
    at = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
    rest = [n for d, n in enumerate(base.shape) if d not in used]
    shape = (*rest[:at], *common, *rest[at:])

    def body(b: Builder, axes: list[Index]) -> tuple[str, list[Index]]:
        own, others = axes[at:at + len(common)], iter(axes[:at] + axes[at + len(common):])
        place = [position(low, b, indices[d], own, n, True) if d in used else next(others)
                 for d, n in enumerate(base.shape)]
        return low.read(b, values, axes), place
    return changed(low, node, base, shape, "add" if given["accumulate"] else "put", body)
