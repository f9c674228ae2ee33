"""Graphs that raise whatever their inputs are: an operation refuses the values of tensors that the graph itself makes.

A backend computes with such values while it compiles, and so meets the program's exception. PyTorch then runs the
graph as it is, which raises the exception after the changes that the program makes before it. Any other failure is the
backend's own.
"""
from __future__ import annotations

import types
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from sot.codegen.compiled_graphs.failing_changes import REFUSES, refusing_nodes
from sot.graph.nodes import name_of
from sot.torch_compat.op_effects import LOSING_CHECKS
from sot.torch_compat.tensors import storage_id


def raises_on_constants(module: fx.GraphModule) -> bool:
    """Whether PyTorch refuses values that depend on no input. It computes them to find out."""
    needed = set(waiting := refusing_nodes(module))
    while waiting:
        more = {*waiting.pop().all_input_nodes} - needed
        needed |= more
        waiting += more
    values: dict[fx.Node, Any] = {}
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "get_attr" and isinstance(value := getattr(module, str(node.target), None), torch.Tensor):
                values[node] = value.clone() if is_at_hand(value) else None     # it may be changed
            elif (node in needed or "changes" in node.meta) and is_pure(node) and (
                    all(values.get(given) is not None for given in node.all_input_nodes)):
                try:
                    values[node] = value_of(node, values)
                except Exception:  # noqa: BLE001 - whatever the program would get
                    return True
            else:
                forget_changed(node, values)
    return False


def loses_check(node: fx.Node) -> bool:
    """Whether it may refuse values, and compilers of this version of torch would not: only PyTorch can run it."""
    return bool(node.meta.get(REFUSES)) and name_of(node) in LOSING_CHECKS


def is_pure(node: fx.Node) -> bool:
    """Whether it is an operation of PyTorch on the CPU that leaves nothing behind but tensors of the graph."""
    made = node.meta.get("example_value")
    made = made if isinstance(made, (tuple, list)) else (made,)
    name = getattr(node.target, "__name__", "")
    is_torchs = node.op == "call_method" or node.op == "call_function" and (
        isinstance(node.target, types.BuiltinFunctionType) or getattr(F, name, None) is node.target)
    return is_torchs and not node.meta.get("draws") and all(isinstance(m, torch.Tensor) and is_at_hand(m) for m in made)


def is_at_hand(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def value_of(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def forget_changed(node: fx.Node, values: dict[fx.Node, Any]) -> None:
    """Forget what a node changes that is not computed."""
    changed = node.meta.get("changes", ())
    for other in values if changed else ():
        example = other.meta.get("example_value")
        if not isinstance(example, torch.Tensor) or storage_id(example) in changed:
            values[other] = None
