"""Indices that are checked at the start of the graph.

An operation that may raise because of an index must not come after a change of an input, if the program could see that
(``failures.py``). Where the index follows from what exists before the graph, the graph computes it once more at its
start, before it changes anything, and compares it with the size. The operation cannot raise for it any more. So a cache
of keys and values is updated within one graph: each layer changes it, and the index of the next may be out of range.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from sot.graph import TensorRef
from sot.torch_compat.tensors import storage_id

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

MOST = 16       # operations that are computed once more


def in_range(index: torch.Tensor, low: int, high: int, ignored: int | None = None) -> None:
    """The target of a check's node."""
    if ignored is not None and not low <= ignored < high:
        index = index[index != ignored]
    if index.numel():
        first, last = torch.aminmax(index)
        if first.item() < low or last.item() >= high:
            raise IndexError(f"an index is not in range({low}, {high})")


def checked(m: Machine, call: Call) -> bool:
    """Whether the graph checks, before it changes anything, whatever may make this operation raise."""
    builder, indices = m.builder, m.builder.fake_mode.indices
    if not indices or not builder.nodes or builder.region is not None:
        return False
    refs: dict[int, TensorRef] = {}
    fx.node.map_aggregate(call[1:], lambda v: refs.setdefault(id(v.fake), v) if isinstance(v, TensorRef) else None)
    found = []
    for fake, *bounds in indices:
        ref = refs.get(id(fake))
        nodes = None if ref is None else origin_of(m, ref)
        if ref is None or nodes is None or type(bounds[1]) is not int:
            return False
        found.append((ref, nodes, tuple(bounds)))
    for ref, nodes, limits in found:
        builder.check_early(builder.node_of(ref), nodes, in_range, limits, m.stack_trace())
    return True


def origin_of(m: Machine, ref: TensorRef) -> list[fx.Node] | None:
    """The nodes that compute a tensor from inputs, in order; None if they cannot be run at the start of the graph."""
    last = m.builder.node_of(ref)
    needed, waiting = {last}, [last]
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node not in needed:
                needed.add(node)
                waiting.append(node)
    nodes = [node for node in needed if node.op != "placeholder"]
    if len(nodes) > MOST or not all(may_be_repeated(node) for node in nodes):
        return None
    memory = {storage_id(node.meta["example_value"]) for node in needed
              if isinstance(node.meta.get("example_value"), torch.Tensor)}
    own, is_before = {storage_id(ref.fake)}, last.op != "placeholder"
    for node in m.builder.nodes:        # they must find their operands as they were, and the operation their result
        if (memory if is_before else own) & node.meta.get("changes", set()):
            return None
        is_before = is_before and node is not last
    return [node for node in m.builder.nodes if node in needed]


def may_be_repeated(node: fx.Node) -> bool:
    """Whether an operation only computes a tensor."""
    return (node.op in ("call_function", "call_method") and isinstance(node.meta.get("example_value"), torch.Tensor)
            and not node.meta.get("draws") and "changes" not in node.meta and "warns" not in node.meta)
