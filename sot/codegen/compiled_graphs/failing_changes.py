"""Graphs that change their inputs and may raise, for a backend that compiles.

If a graph raises before it has changed anything, Python runs the frame and raises the program's exception. The kernels
of a compiled graph have an order of their own, so they may change an input before another of them raises.

An assertion of the graph does not raise. The graph returns its condition, and puts its inputs back where it does not
hold. Other operations raise before every change that depends on their results through a single number, such as a loss.
The inputs that are changed otherwise (counters, running statistics) are few and small, and are copied.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from sot.codegen.build_graph import Graph
from sot.support.settings import COPIED
from sot.torch_compat.tensors import set_versions, storage_id, versions

REFUSES = "refuses"     # in the metadata of a node: it may raise because of the values of its operands


def assertions(module: fx.GraphModule) -> list[fx.Node]:
    return module.graph.find_nodes(op="call_function", target=torch._assert_async)


def raising_without_changes(call: Callable[..., Any], texts: Sequence[str], changed: Sequence[int],
                            ) -> Callable[..., Any]:
    """A graph that raises if one of its last results does not hold. It has put back the inputs ``changed``."""
    def run(*inputs: Any) -> Any:
        tensors = [inputs[i] for i in changed]
        before = versions(*tensors)
        results = call(*inputs)
        for text, holds in zip(texts, results[-len(texts):], strict=True):
            if not holds:
                set_versions(tensors, before)
                raise RuntimeError(text)
        return results[:-len(texts)]
    return run


def changed_before_failure(graph: Graph, changed: Iterable[int]) -> list[int] | None:
    """The inputs that a compiled graph may have changed when one of its operations raises, apart from assertions. None
    if that is not known, or if they are large.
    """
    nodes, early = [*graph.module.graph.nodes], [*changed]
    refusing = refusing_nodes(graph.module)
    if graph.numpy or not (refusing or graph.has_data_sizes):
        return None
    if not graph.has_data_sizes:        # assertions about numbers come before nothing
        inputs = graph.module.graph.find_nodes(op="placeholder")
        unsettled = changed_out_of_order(refusing, nodes)
        early = [i for i in early if storage_id(inputs[i].meta["example_value"]) in unsettled]
    return early if sum(graph.real[i].numel() for i in early) <= COPIED else None


def refusing_nodes(module: fx.GraphModule) -> list[fx.Node]:
    """The nodes that may raise, also by an operation of a subgraph that they run."""
    inside = {node for node in module.graph.nodes if node.op == "get_attr"
              and isinstance(part := getattr(module, node.target, None), fx.GraphModule) and refusing_nodes(part)}
    return [node for node in module.graph.nodes
            if node.meta.get(REFUSES) or not inside.isdisjoint(node.all_input_nodes)]


def changed_out_of_order(refusing: Sequence[fx.Node], nodes: Sequence[fx.Node]) -> set[int]:
    """The memory that a node changes which may run before one of ``refusing``."""
    found = set[int]()
    for node in refusing:
        settled = settled_by(node, nodes)
        found.update(*(other.meta["changes"] for other in nodes if "changes" in other.meta and other not in settled))
    return found


def raises_after_data(graph: Graph) -> bool:
    """Whether an operation may raise after a change by way of ``.data``. Python cannot run the frame again then, so
    only PyTorch, which runs the operations in order, leaves what the program leaves.
    """
    inputs = graph.module.graph.find_nodes(op="placeholder")
    memory = {storage_id(node.meta["example_value"]) for node, origin in zip(inputs, graph.inputs, strict=True)
              if origin in graph.changes.unversioned}
    changed = False
    for node in graph.module.graph.nodes if memory else ():
        if changed and node.meta.get(REFUSES):
            return True
        changed = changed or not memory.isdisjoint(node.meta.get("changes", ()))
    return False


def changes_history_by_data(graph: Graph) -> bool:
    """Whether an input that is a result of autograd is changed by way of ``.data``. A compiled graph would change it
    with its version, and autograd would refuse that for a view, and to go backward through what has saved it.
    """
    return any(origin in graph.changes.unversioned and real.requires_grad and not real.is_leaf
               for origin, real in zip(graph.inputs, graph.real, strict=True))


def settled_by(refusing: fx.Node, nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that run after ``refusing`` in any order of kernels: they need a number that depends on it."""
    depends, settled = {refusing}, set[fx.Node]()
    for node in nodes:
        needs = node.all_input_nodes
        if any(n in settled or n in depends and is_number(n) for n in needs):
            settled.add(node)
        elif not depends.isdisjoint(needs):
            depends.add(node)
    return settled


def is_number(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.dim() == 0
