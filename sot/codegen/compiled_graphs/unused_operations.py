"""Operations that do more than compute what no result of the graph needs: AOTAutograd would remove them.

One draws random numbers: the program's generator advances, and later random numbers depend on it. Another looks at
values, and the program may call it for its exception alone. So a backend that compiles gets a graph that also returns
their results, and ``first_results`` drops them again.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from sot.codegen.compiled_graphs.failing_changes import REFUSES
from sot.codegen.compiled_graphs.pieces import tensors_of
from sot.torch_compat.data_symbols import symbols_of
from sot.torch_compat.tensors import storage_ids

NUMBERS = torch.SymInt, torch.SymFloat, torch.SymBool


def number_of_results(module: fx.GraphModule) -> int:
    return len(results_of(module))


def results_of(module: fx.GraphModule) -> tuple[fx.Node, ...]:
    (output,) = module.graph.find_nodes(op="output")
    return output.args[0]


def unused_operations(module: fx.GraphModule) -> list[fx.Node]:
    """The nodes that draw random numbers into a tensor on which no result of the graph depends, or may raise when they
    compute a tensor or a number, or change a tensor that nothing reads later. A compiled graph returns no tensor of
    which the program never learns the size (``x[mask]``).
    """
    needed: set[fx.Node] = set()
    waiting = [*results_of(module)]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    read = {*memory_of(*module.graph.find_nodes(op="placeholder"), *results_of(module))}
    found = []
    for node in reversed(module.graph.nodes):
        if node in needed:
            read.update(memory_of(node, *node.all_input_nodes))
        elif does_more(node, read):
            found.append(node)
    return found[::-1]


def memory_of(*nodes: fx.Node) -> Iterator[int]:
    return (memory for node in nodes for tensor in tensors_of(node) for memory in storage_ids(tensor))


def does_more(node: fx.Node, read_later: set[int]) -> bool:
    made = node.meta.get("example_value")
    if tensors := [*tensors_of(node)]:
        refuses = node.meta.get(REFUSES) and not any(map(symbols_of, tensors))
        return bool(node.meta.get("draws") or refuses and read_later.isdisjoint(node.meta.get("changes", ())))
    return isinstance(made, NUMBERS) and bool(node.meta.get(REFUSES))


def first_results(call: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A graph that returns only its first ``count`` results."""
    def run(*inputs: Any) -> Any:
        return call(*inputs)[:count]
    return run
