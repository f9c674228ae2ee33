"""Operators that compute each element from the elements up to it."""
from __future__ import annotations

from typing import Any

from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.ir import Builder, Store
from sot.graph.kernels.ops import NAMES
from sot.graph.kernels.program import is_dense
from sot.graph.lowering.driver import Lowering, lowers

LONGEST = 8192      # of a line, which a kernel keeps in registers
# Each element is a sum of all before it, so errors would accumulate. A type one step wider avoids that.
WIDER = {"f16": "f32", "bf16": "f32", "f32": "f64"}


def scan(name: str) -> None:
    """An operator that is a scan along one axis, computed in a wider type than the result's."""
    @lowers(name)
    def rule(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
        source, value, kind = given["self"], node.meta["val"], NAMES[node.meta["val"].dtype]
        kind = WIDER.get(kind, kind)
        if not source.shape or not is_dense(tuple(value.shape), tuple(value.stride())):
            return None
        dim = given["dim"] % len(source.shape)
        if source.shape[dim] == 1:
            return low.kernel(node, value, (), lambda b, axes, _: low.value(b, source, axes, kind))
        if source.shape[dim] > LONGEST or kind == "b1":
            return None
        rows = tuple((f"p{d}", n) for d, n in enumerate(source.shape) if n > 1 and d != dim)
        over = (("r0", source.shape[dim]),)
        builder = Builder(dict(rows + over))
        builder.note = low.note
        axes = [ix.index("r0" if d == dim else f"p{d}" if n > 1 else 0) for d, n in enumerate(source.shape)]
        result = builder.cast(builder.reduce(name, low.value(builder, source, axes, kind)), NAMES[value.dtype])
        buffer = low.buffer(node.name, value)
        low.step(node.name, rows, over, builder, Store(node.name, ix.dot(axes, buffer.strides), result))
        return buffer.view()


for _name in ("cumsum", "cumprod"):
    scan(_name)
