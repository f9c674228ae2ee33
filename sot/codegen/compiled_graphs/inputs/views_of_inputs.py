"""Results that are views of an input which the graph changes, where sizes or numbers vary.

AOTAutograd makes such a view after the graph, from the sizes, the strides and the offset of what the compiled graph
returns. Inductor returns a new tensor there, with strides of its own (torch 2.13), and both take the input for the
beginning of its memory. So the operations of the graph make these views again, of the input as it is after the graph.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from sot.codegen.build_graph import Graph
from sot.codegen.compiled_graphs.inputs.shared_arguments import is_plain
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.tensors import storage_id


def with_views_of_inputs(compiled: Callable[..., Any], graph: Graph) -> Callable[..., Any]:
    """The compiled graph, which returns the program's views of its inputs. If they cannot be made again, the graph runs
    as it is.
    """
    found = views_of_inputs(graph)
    if not found:
        return compiled
    if not all(is_of_views(above(node), storage_id(node.meta["example_value"])) for _, node in found):
        return graph.module.forward
    views = made_again(graph.module, [node for _, node in found])
    places = [(i, node.meta["example_value"].requires_grad) for i, node in found]

    def call(*args: Any) -> Any:
        results = list(compiled(*args))
        for (i, requires_grad), view in zip(places, views, strict=True):
            with torch.set_grad_enabled(requires_grad):
                results[i] = view(*args)
        return results
    return call


def views_of_inputs(graph: Graph) -> list[tuple[int, fx.Node]]:
    """The results that are views of a changed input, made by an operation with a symbol, with their places."""
    inputs = zip(graph.inputs, graph.module.graph.find_nodes(op="placeholder"), strict=True)
    changed = {storage_id(value) for origin, node in inputs if origin in graph.changes.inputs
               and is_plain(value := node.meta.get("example_value"))}
    results: Any = graph.module.graph.output_node().args[0] if changed else ()
    return [(i, node) for i, node in enumerate(results) if isinstance(node, fx.Node) and node.op != "placeholder"
            and is_plain(value := node.meta.get("example_value")) and storage_id(value) in changed
            and any(map(has_symbol, above(node)))]


def above(node: fx.Node) -> list[fx.Node]:
    """A node and all that it is computed from, in the order of the graph."""
    found, waiting = {node}, [node]
    while waiting:
        given = set(waiting.pop().all_input_nodes) - found
        found |= given
        waiting += given
    return [node for node in node.graph.nodes if node in found]


def has_symbol(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.SymInt) or isinstance(value, torch.Tensor) and is_symbolic(value)


def is_of_views(nodes: Iterable[fx.Node], memory: int) -> bool:
    """Whether these nodes make views of one memory, and compute nothing else but numbers."""
    values = [(node, node.meta.get("example_value")) for node in nodes if node.op != "placeholder"]
    return all(not node.meta.get("changes") and (not isinstance(value, torch.Tensor) or storage_id(value) == memory)
               for node, value in values)


def made_again(module: fx.GraphModule, results: list[fx.Node]) -> list[Callable[..., Any]]:
    """For each of these results a function of the graph's arguments."""
    functions = []
    for result in results:
        copy, made = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in module.graph.find_nodes(op="placeholder"):
            made[node] = copy.node_copy(node)
        for node in above(result):
            if node not in made:
                made[node] = copy.node_copy(node, made.__getitem__)
        copy.output(made[result])
        functions.append(fx.GraphModule(module, copy).forward)
    return functions
