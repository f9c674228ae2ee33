"""Integers computed from sizes, for files of torch.export: ``math.ceil(n / 2)`` is ``-(-n // 2)``, and ``n ** 2`` is
``n * n``. torch does not write the first, and a file takes no powers.
"""
from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

LARGEST_POWER = 8
REWRITTEN = {math.ceil, math.floor, operator.pow}


def with_divisions(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with integer divisions and products in place of those. Changes the module."""
    graph = module.graph
    for node in [n for n in graph.nodes if n.op == "call_function" and n.target in REWRITTEN]:
        with graph.inserting_before(node):
            made = power(graph, node) if node.target is operator.pow else quotient(graph, node)
        if made is not None:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
    module.recompile()
    return module


def quotient(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """A quotient of integers that is rounded up or down."""
    divided: Any = node.args[0]
    if not isinstance(divided, fx.Node) or divided.target is not operator.truediv or not all(
            map(is_integer, divided.args)):
        return None
    number, divisor = divided.args
    if node.target is math.floor:
        return graph.call_function(operator.floordiv, (number, divisor))
    below = graph.call_function(operator.floordiv, (graph.call_function(operator.neg, (number,)), divisor))
    return graph.call_function(operator.neg, (below,))


def power(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    base: Any
    base, exponent = node.args
    if not is_integer(base) or type(exponent) is not int or not 0 < exponent <= LARGEST_POWER:
        return None
    made = base
    for _ in range(exponent - 1):
        made = graph.call_function(operator.mul, (made, base))
    return made


def is_integer(value: Any) -> bool:
    return type(value) is int or isinstance(value, fx.Node) and isinstance(
        value.meta.get("example_value"), (int, torch.SymInt))
