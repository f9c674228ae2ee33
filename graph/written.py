"""Graphs as values: two graphs whose nodes, constants and inputs are equal compute the same.

A graph with parts for which this does not show (subgraphs, symbols, arrays, generators) raises Incomparable. Within a
process functions are compared by identity. For other processes, a caller gives them names.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import fx

from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.tensors import storage_id

CONSTANTS = (bool, int, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
             torch.memory_format)


class Incomparable(Exception):
    """The graph has a part that is not compared."""


def nodes_of(gm: fx.GraphModule, name: Callable[[Any], Hashable] = lambda target: target) -> tuple[Hashable, ...]:
    """The nodes of a graph. ``name`` is what stands for a function."""
    nodes = [*gm.graph.nodes]
    places = {node: i for i, node in enumerate(nodes)}
    return tuple(written(node, places, name) for node in nodes)


def written(node: fx.Node, places: dict[fx.Node, int], name: Callable[[Any], Hashable]) -> Hashable:
    if node.op == "placeholder":
        if isinstance(node.meta.get("example_value"), torch.Tensor) and is_symbolic(node.meta["example_value"]):
            raise Incomparable
        return node.op
    if node.op not in ("call_function", "call_method", "output"):
        raise Incomparable
    target = name(node.target) if node.op == "call_function" else node.target
    return node.op, target, constant(node.args, places), constant(node.kwargs, places)


def constant(value: Any, places: dict[fx.Node, int]) -> Hashable:
    """An argument of a node, so that equal means the same to an operation: 1 and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(value, fx.Node):
        return fx.Node, places[value]
    if isinstance(value, (tuple, list)):
        return type(value), tuple(constant(part, places) for part in value)
    if isinstance(value, dict):
        return dict, tuple((constant(key, places), constant(part, places)) for key, part in value.items())
    if isinstance(value, slice):
        return slice, *(constant(part, places) for part in (value.start, value.stop, value.step))
    if type(value) is float:
        return float, value.hex()
    if type(value) in CONSTANTS:
        return type(value), value
    raise Incomparable


def described(example: Any, real: Any) -> Hashable:
    """The metadata of an input."""
    if type(real) in (bool, int):
        return type(real), real
    if type(real) not in (torch.Tensor, torch.nn.Parameter) or example is not real or real.layout is not torch.strided:
        raise Incomparable
    return (type(real), real.dtype, real.device, tuple(real.shape), real.stride(), real.storage_offset(),
            real.requires_grad, real.is_leaf, real._is_view(), real.is_conj(), real.is_neg(), real.is_inference())


def sharing(inputs: Sequence[Any]) -> tuple[int, ...]:
    """For each input, the first one with the same memory."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(storage_id(v), i) if isinstance(v, torch.Tensor) else i for i, v in enumerate(inputs))
