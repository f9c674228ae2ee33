"""The meaning of a kernel, in NumPy: the oracle for fusion and generated code."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sot.graph.kernels import index as ix
from sot.graph.kernels.ir import LINE, Kernel, Stmt, points
from sot.graph.kernels.ops import NUMPY, REDUCTIONS, SCANS, apply, rounded


def run(kernel: Kernel, memory: Mapping[str, np.ndarray]) -> None:
    """Evaluate a kernel over flat arrays, one for each of its buffers. The arrays that it stores to are changed.

    A bf16 buffer is a float32 array whose values are rounded.
    """
    shape = tuple(size for _, size in kernel.rows + kernel.reduced)
    axes: Any = np.indices(shape, np.int64) if shape else []
    values: dict[str, Any] = {name: axis for (name, _), axis in zip(kernel.rows + kernel.reduced, axes, strict=True)}
    over = tuple(range(len(kernel.rows), len(shape)))
    if kernel.loop:
        flat = np.arange(kernel.row_count).reshape([n for _, n in kernel.rows] + [1] * len(over))
        values[LINE] = np.broadcast_to(flat // kernel.loop, shape)
    for stmt in kernel.body:
        values[stmt.name] = _evaluate(stmt, values, memory, over)
    varying = points(kernel)
    rows = np.empty(tuple(size for _, size in kernel.rows) + (1,) * len(kernel.reduced))    # each stores, or adds
    for store in kernel.stores:
        at, value, _ = np.broadcast_arrays(ix.evaluate(store.index, values), values[store.value], rows)
        if not varying & {store.value, *store.index.names}:
            first = tuple(slice(None) if d < len(kernel.rows) else slice(1) for d in range(len(shape)))
            at, value = at[first], value[first]     # once for each row
        if store.how == "sum":
            memory[store.buffer][at.reshape(-1)] = 0
        if store.how in ("sum", "add"):
            np.add.at(memory[store.buffer], at.reshape(-1), value.reshape(-1))
        else:
            memory[store.buffer][at.reshape(-1)] = value.reshape(-1)


def _element(memory: np.ndarray, at: Any) -> Any:
    if np.any(at < 0):      # NumPy would count from the end
        raise IndexError("a place is before the beginning of a buffer")
    return memory[at]


def _evaluate(stmt: Stmt, values: Mapping[str, Any], memory: Mapping[str, np.ndarray], over: tuple[int, ...]) -> Any:
    args = [values[a] for a in stmt.args]
    match stmt.op:
        case "const":
            return np.asarray(stmt.value, NUMPY[stmt.dtype])
        case "index":
            assert stmt.index is not None
            return np.asarray(ix.evaluate(stmt.index, values), np.int64)
        case "cast":
            return rounded(args[0], stmt.dtype)
        case "inside":
            if not np.all((args[0] >= 0) & (args[0] < stmt.value)):
                raise IndexError(f"a position is out of range for an axis of {stmt.value}")
            return args[0]
        case "load":
            assert stmt.index is not None
            at = np.asarray(ix.evaluate(stmt.index, values))
            if not args:
                return _element(memory[stmt.buffer], at)
            at, mask = np.broadcast_arrays(at, args[0])
            return np.where(mask, _element(memory[stmt.buffer], np.where(mask, at, 0)), NUMPY[stmt.dtype](stmt.value))
    if stmt.op in REDUCTIONS:
        size = tuple(values[name].shape for name in values if not name.startswith("v"))[0]
        full = np.broadcast_to(args[0], size)
        with np.errstate(all="ignore"):
            return REDUCTIONS[stmt.op](full, axis=over, keepdims=True).astype(NUMPY[stmt.dtype])
    if stmt.op in SCANS:
        size = tuple(values[name].shape for name in values if not name.startswith("v"))[0]
        with np.errstate(all="ignore"):
            return SCANS[stmt.op](np.broadcast_to(args[0], size), axis=over[0], dtype=NUMPY[stmt.dtype])
    return rounded(apply(stmt.op, *args), stmt.dtype)
