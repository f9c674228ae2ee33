"""Indices, and assertions about sizes that depend on data, that are checked at the start of the graph.

An operation that may raise because of an index must not come after a change of an input, if the program could see that
(``failures.py``). The same holds for a size that may be negative. Where the index or the size follows from what exists
before the graph, the graph computes it once more at its start, before it changes anything, and checks it. The operation
cannot raise for it any more. So a cache of keys and values is updated within one graph: each layer changes it, and the
index of the next may be out of range.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph import NumberRef, TensorRef
from sot.guards.origin import Origin
from sot.guards.terms import computed_before
from sot.torch_compat.tensors import storage_id
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber, number_ref

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

MOST = 16       # operations that are computed once more
SHAPED_LIKE = ("expand_as", "view_as", "reshape_as")    # values of the first argument in the shape of the second


def in_range(index: torch.Tensor, size: int, from_the_end: bool, ignored: int | None) -> None:
    """The target of a check's node."""
    least = -size if from_the_end else 0
    if ignored is not None and not least <= ignored < size:
        index = index[index != ignored]
    if index.numel():
        first, last = torch.aminmax(index)
        if first.item() < least or last.item() >= size:
            raise IndexError(f"an index is not in range({least}, {size})")


def checked(m: Machine, call: Call, indices: Sequence[tuple] | None) -> bool:
    """Whether the graph checks, before it changes anything, whatever may make this operation raise: ``indices``, as
    ``bounds_of_indices`` has them.
    """
    builder = m.builder
    if not indices or builder.region is not None:
        return False
    refs: dict[int, TensorRef] = {}
    fx.node.map_aggregate(call[1:], lambda v: refs.setdefault(id(v.fake), v) if isinstance(v, TensorRef) else None)
    found: list[tuple] = []
    for fake, size, *others in indices:
        ref = refs.get(id(fake))
        if ref is None:
            return False
        node, (limit, of_limit) = values_of(builder.node_of(ref)), size_before(m, size)
        nodes = origin_of(m, builder.node_of(ref), node)
        if nodes is None or of_limit is None:
            return False
        found.append((set(nodes).union(of_limit), (node, limit, *others)))
    for origin, args in found:
        builder.check_early(in_order(m, origin), in_range, args, m.stack_trace())
    return True


def asserted(m: Machine, truth: NumberRef, target: Callable, text: str) -> bool:
    """Whether the graph checks, before it changes anything, that this holds. ``target`` is given the truth and the
    text.
    """
    if m.builder.region is not None:
        return False
    node = m.builder.node_of(truth)
    nodes = origin_of(m, node, node)
    if nodes is None:
        return False
    m.builder.check_early(in_order(m, nodes), target, (node, text), m.stack_trace())
    return True


def size_before(m: Machine, size: Any) -> tuple[int | fx.Node | None, Collection[fx.Node] | None]:
    """A size that is known before the graph changes anything, and the nodes that compute it; None for these if it is
    not known.
    """
    if type(size) is int:
        return size, ()
    value = m.symbolic(size)
    if isinstance(value, DynamicNumber):
        term = value.term if isinstance(value.term, Origin) else computed_before(value.term, m.varying_numbers)
        return m.builder.node_of(number_ref(m, term)), ()
    if isinstance(value, DeferredScalar):
        node = m.builder.node_of(value.graph_number(m))
        return node, origin_of(m, node, node)
    return value.constant(), ()


def values_of(node: fx.Node) -> fx.Node:
    """The node whose result has the same values. A tensor that only gives the shape need not be computed early."""
    while node.op == "call_method" and node.target in SHAPED_LIKE and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def in_order(m: Machine, nodes: Collection[fx.Node]) -> list[fx.Node]:
    return [node for node in m.builder.nodes if node in nodes]


def origin_of(m: Machine, last: fx.Node, node: fx.Node) -> list[fx.Node] | None:
    """The nodes that compute the values of ``last``, which are those of ``node``. None if they cannot be run at the
    start of the graph.
    """
    needed, waiting = {node}, [node]
    while waiting:
        for operand in waiting.pop().all_input_nodes:
            if operand not in needed:
                needed.add(operand)
                waiting.append(operand)
    nodes = [node for node in needed if node.op != "placeholder"]
    if len(nodes) > MOST or not all(may_be_repeated(node) for node in nodes):
        return None
    memory = {storage_id(node.meta["example_value"]) for node in needed
              if isinstance(node.meta.get("example_value"), torch.Tensor)}
    result = last.meta["example_value"]
    own, is_before = {storage_id(result)} if isinstance(result, torch.Tensor) else set(), last.op != "placeholder"
    for done in m.builder.nodes:        # they must find their operands as they were, and the operation their result
        if (memory if is_before else own) & done.meta.get("changes", set()):
            return None
        is_before = is_before and done is not last
    return nodes


def may_be_repeated(node: fx.Node) -> bool:
    """Whether an operation only computes a tensor or a number."""
    kinds = torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool
    return (node.op in ("call_function", "call_method") and isinstance(node.meta.get("example_value"), kinds)
            and not node.meta.get("draws") and "changes" not in node.meta and "warns" not in node.meta)
