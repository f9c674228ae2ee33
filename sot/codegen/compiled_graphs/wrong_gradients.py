"""Graphs of which AOTAutograd computes wrong gradients, or none, or which it cannot trace. They run as they are."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from sot.codegen.build_graph import Graph
from sot.codegen.compiled_graphs.inputs.shared_arguments import is_plain
from sot.codegen.compiled_graphs.inputs.versions import NORMS
from sot.codegen.compiled_graphs.pieces import changes_first, tensors_of, tuple_of
from sot.codegen.compiled_graphs.unused_operations import results_of
from sot.graph.nodes import name_of
from sot.interpreter.torch_ops.autograd import is_function_of_program
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.tensors import storage_id

OVERWRITES = "copy_", "fill_", "zero_"
RESIZES = "resize_", "resize_as_", torch.resize_as_, "set_"

# Changes in place whose gradients do not depend on the value from before.
ADDING = frozenset(("add", "sub", "iadd", "isub", "copy", "setitem", "fill", "index_add", "index_put", "index_copy",
                    "scatter", "scatter_add", "masked_scatter", "masked_fill", "index_fill", "lerp"))


def returns_conjugated(module: fx.GraphModule) -> bool:
    """Whether a result with a gradient is conjugated where it is read. AOTAutograd assumes the same of the gradient."""
    values = [node.meta.get("example_value") for node in results_of(module)]
    return any(isinstance(v, torch.Tensor) and v.requires_grad and v.is_conj() for v in values)


def resizes_memory(graph: Graph) -> bool:
    """Whether a graph resizes tensors, or gives them other memory. Operations also resize an ``out`` without elements;
    AOTAutograd takes that for an input only as a copy of the result, which needs the shape.
    """
    nodes = graph.module.graph.nodes
    empty = {node for node, real in zip(nodes, graph.real, strict=False)
             if is_plain(real) and not real.numel()}
    return any(node.target in RESIZES or not empty.isdisjoint(tree_leaves(node.kwargs.get("out"))) for node in nodes)


def cuts_history(graph: Graph) -> bool:
    """Whether an input that the graph changes has a history by then, and another result has one.

    In the program that result may depend on what the input has become, so that a gradient for the input follows. The
    results of a compiled graph only depend on its inputs as they were before.
    """
    nodes = graph.module.graph.nodes
    changed = [fake for origin, node in zip(graph.inputs, nodes, strict=False)
               if graph.changes.versions.get(origin) and has_history(fake := node.meta.get("example_value"))]
    results = [node.meta.get("example_value") for node in results_of(graph.module)] if changed else []
    found = {id(fake) for fake in (*changed, *results) if has_history(fake)}
    return bool(changed) and len(found) > 1


def gives_history_to_detached(graph: Graph) -> bool:
    """Whether a result with a history shares memory with an input without one: ``z = y.detach(); z.add_(weight)``.
    AOTAutograd makes that result of the input, as a new leaf.
    """
    inputs = graph.module.graph.find_nodes(op="placeholder")
    places = {storage_id(fake) for node in inputs if is_plain(fake := node.meta.get("example_value"))
              and not refused(fake) and not fake.requires_grad}
    return any(is_plain(fake := node.meta.get("example_value")) and has_history(fake) and storage_id(fake) in places
               for node in results_of(graph.module))


def saves_what_it_changes(graph: Graph) -> bool:
    """Whether an input without a history is changed by an operation whose gradient may need the value from before
    (``x.mul_(weight)``). AOTAutograd keeps the input itself, and autograd finds it changed.
    """
    inputs = graph.module.graph.find_nodes(op="placeholder")
    places = {storage_id(fake) for origin, node, real in zip(graph.inputs, inputs, graph.real, strict=True)
              if origin in graph.changes.inputs and is_plain(fake := node.meta.get("example_value"))
              and not real.requires_grad}
    for node in graph.module.graph.nodes if places else ():
        changed = places & node.meta.get("changes", set())
        if changed and name_of(node).strip("_") not in ADDING and any(
                tensor.requires_grad and storage_id(tensor) in changed for tensor in tensors_of(node)):
            return True
        places -= changed       # by the next change it has a history
    return False


def needs_old_values(graph: Graph) -> bool:
    """Whether the gradient of a result may depend on an input without a history that the graph changes.

    AOTAutograd keeps such an input for the backward graph, which computes intermediate values again, from what the
    program has made of it by then. Norms only update their running statistics. A weight that is read before it changes
    is refused by AOTAutograd itself.
    """
    spent = {i for i, _ in graph.spent.leaves}
    if not any(has_history(node.meta.get("example_value")) for i, node in enumerate(results_of(graph.module))
               if i not in spent):
        return False
    nodes, changed = graph.module.graph.nodes, changed_places(graph)
    places = {place for place, is_weight in changed.items() if not is_weight}
    dependent: set[fx.Node] = set()
    for node in nodes if changed else ():
        places.update(changed.keys() & node.meta.get("changes", set()))
        made = node.meta.get("example_value")
        is_part = is_plain(made) and storage_id(made) in places
        if is_part or node.op in ("placeholder", "output") or node.target in NORMS:
            continue
        reads = [n for i, n in enumerate(node.all_input_nodes) if i or not changes_first(node)]
        if any(n in dependent or is_plain(fake := n.meta.get("example_value")) and storage_id(fake) in places
               for n in reads):
            dependent.add(node)
            if any(map(has_history, tree_leaves(made))):
                return True
    return False


def changed_places(graph: Graph) -> dict[int, bool]:
    """The memory of the inputs without a history that a graph changes, if it reads their values before, and whether
    they are weights.
    """
    inputs = zip(graph.inputs, graph.module.graph.nodes, strict=False)
    return {storage_id(fake): fake.requires_grad for origin, node in inputs
            if origin in graph.changes.inputs and is_plain(fake := node.meta.get("example_value"))
            and not has_history(fake) and not is_overwritten(node)}


def is_overwritten(node: fx.Node) -> bool:
    """Whether the graph gives a tensor other values before it reads it."""
    first = next(iter(node.users), node)
    return name_of(first) in OVERWRITES and first.args[0] is node and node not in first.args[1:]


def functions_of_views(module: fx.GraphModule) -> set[Callable[..., Any]]:
    """The autograd functions of the program that return views of their arguments of which results of the graph are
    parts.

    AOTAutograd makes such a result again after the compiled graph, as a view of the base, so its gradient goes around
    the program's backward. It keeps only what a function returns of an input itself, which is a result as it is.
    """
    inputs = {storage_id(t) for node in module.graph.find_nodes(op="placeholder") for t in tensors_of(node)}
    results = [(node, storage_id(t)) for node in results_of(module) if isinstance(node, fx.Node)
               for t in tensors_of(node) if t.requires_grad]
    found = set()
    for node in module.graph.nodes:
        if not is_function_of_program(node.target):
            continue
        given = {storage_id(t) for n in node.all_input_nodes for t in tensors_of(n)}
        views = given & {storage_id(t) for t in tensors_of(node) if t.requires_grad}
        kept = {n for n, place in results if place in inputs and (tuple_of(n) or n) is node}
        if any(place in views and n not in kept for n, place in results):
            found.add(node.target)
    return found


def has_history(value: Any) -> bool:
    """Whether autograd goes backward through the operation that has made it, or refuses to say."""
    return isinstance(value, torch.Tensor) and value.requires_grad and (refused(value) or value.grad_fn is not None)
