"""Integers computed from sizes, for files of torch.export: ``math.ceil(n / 2)`` is ``-(-n // 2)``, and ``n ** 2`` is
``n * n``. torch does not write the first, and a file takes no powers. torch.export also writes powers of its own.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
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
        return computed(graph, operator.floordiv, number, divisor)
    return computed(graph, operator.neg, computed(
        graph, operator.floordiv, computed(graph, operator.neg, number), divisor))


def power(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    base: Any
    base, exponent = node.args
    if not is_integer(base) or type(exponent) is not int or not 0 < exponent <= LARGEST_POWER:
        return None
    made = base
    for _ in range(exponent - 1):
        made = computed(graph, operator.mul, made, base)
    return made


def computed(graph: fx.Graph, function: Callable[..., Any], *args: Any) -> fx.Node:
    """A node, which has its value if it is one of a program of torch.export."""
    node = graph.call_function(function, args)
    values = [arg.meta.get("val") if isinstance(arg, fx.Node) else arg for arg in args]
    if all(value is not None for value in values):
        node.meta["val"] = function(*values)
    return node


def is_integer(value: Any) -> bool:
    return type(value) is int or isinstance(value, fx.Node) and isinstance(
        value.meta.get("example_value", value.meta.get("val")), (int, torch.SymInt))
