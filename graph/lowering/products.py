"""Matrix products that are no work for a library: of a column and a row, and small ones of a single row.

The first has one product an element, so it is fused with what is before and after, for instance in the gradient of a
weight for a batch of one. A small product of a single row costs its launch; as a sum it shares that of other kernels.
All other products are called.
"""
from __future__ import annotations

from typing import Any

from torch import fx

from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder
from sot.graph.kernels.ops import NAMES, compute_type
from sot.graph.kernels.program import View
from sot.graph.lowering.driver import Lowering, lowers
from sot.graph.lowering.pointwise import like
from sot.graph.lowering.reductions import reduced

SMALL = 16      # greatest size of a matrix that a single row is multiplied by, along both axes


@lowers("mm.default", "bmm.default")
def mm(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return multiplied(low, node, given["self"], given["mat2"], None, 0, 1)


@lowers("addmm.default")
def addmm(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    return multiplied(low, node, given["mat1"], given["mat2"], given["self"], given["beta"], given["alpha"])


def multiplied(low: Lowering, node: fx.Node, left: View, right: View, start: View | None, beta: Any, alpha: Any) -> Any:
    """A kernel, in which all is computed before the result is rounded; None if the operator is to be called."""
    count = left.shape[-1]
    if not is_kernel(left.shape[-2], count, right.shape[-1]) or isinstance(alpha, complex) or isinstance(beta, complex):
        return None
    value = node.meta["val"]
    kind = compute_type(NAMES[value.dtype])
    if kind == "b1":
        return None

    def body(b: Builder, axes: list[Index], inner: list[Index]) -> str:
        *outer, row, column = axes
        found = b.emit("mul", b.cast(low.read(b, left, [*outer, row, *inner]), kind),
                       b.cast(low.read(b, right, [*outer, *inner, column]), kind))
        found = reduced(b, "sum", found, [count])
        if alpha != 1:
            found = b.emit("mul", found, like(b, alpha, found))
        if start is None or beta == 0:
            return found
        before = b.cast(low.read(b, start, axes), kind)
        return b.emit("add", found, before if beta == 1 else b.emit("mul", before, like(b, beta, before)))
    return low.kernel(node, value, [count], body, strides=[right.strides[-2]])


def is_kernel(rows: Any, count: Any, columns: Any) -> bool:
    """Whether a product of matrices of ``rows`` by ``count`` and ``count`` by ``columns`` is no work for a library."""
    if count == 1:
        return True
    return rows == 1 and all(isinstance(n, int) and n <= SMALL for n in (count, columns))
