"""Keeps detached results of a compiled graph apart from those with a history.

Inductor returns ``c.detach()`` as the tensor ``c`` itself. If other results are views of ``c``, AOTAutograd returns it,
too, with its history. Autograd takes the one tensor for a result without gradients. The gradients of the views are then
lost in silence, also with torch.compile. So a graph returns such a result with one axis more.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Node

from sot.backends.results.distinct import memory, memory_of_results
from sot.torch_compat.autograd_nodes import node_above


@contextmanager
def detached_results_apart(gm: GraphModule) -> Iterator[list[int]]:
    """A context in which a graph returns its detached results with one axis more, and their indices."""
    (output,) = gm.graph.find_nodes(op="output")
    indices = [*detached(gm)]
    if not indices:
        yield indices
        return
    before, results = output.args, [*output.args[0]]
    with gm.graph.inserting_before(output):
        for i in indices:
            node = results[i]
            results[i] = gm.graph.call_method("unsqueeze", (node, 0))
            results[i].meta["example_value"] = node.meta["example_value"].unsqueeze(0)
    output.args = (tuple(results),)
    gm.recompile()
    try:
        yield indices
    finally:
        output.args = before
        for i in indices:
            gm.graph.erase_node(results[i])
        gm.recompile()


def detached(gm: GraphModule) -> Iterator[int]:
    """The indices of results without gradients that share memory with results that have a history."""
    (output,) = gm.graph.find_nodes(op="output")
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else ()
    examples = [node.meta.get("example_value") if isinstance(node, Node) else None for node in results]
    recorded = {memory(value) for value in examples
                if isinstance(value, torch.Tensor) and node_above(value) is not None}
    for i, of_program in enumerate(memory_of_results(gm)):
        if of_program in recorded and of_program is not None and not examples[i].requires_grad:     # type: ignore[union-attr]
            yield i


def without_axis(compiled: Callable[..., Any], indices: Sequence[int]) -> Callable[..., Any]:
    """A compiled graph whose results of these indices have an axis too many."""
    def run(*inputs: Any) -> Any:
        results = [*compiled(*inputs)]
        for i in indices:
            results[i] = results[i].squeeze(0).detach()     # no view, as it was
        return tuple(results)
    return run if indices else compiled
