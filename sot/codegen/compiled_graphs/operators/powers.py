"""Powers of whole numbers. Inductor of torch 2.13 has no code for ``x ** n`` and ``n ** x`` where ``n`` is a symbol: it
raises. A backend that compiles gets a tensor in place of the symbol. Capture keeps negative exponents apart: PyTorch
refuses them as numbers, but not in tensors.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from sot.graph.nodes import name_of
from sot.torch_compat.graphs import lets_go_of_source


def power(input: Any, exponent: Any) -> Tensor:
    return torch.pow(beside(exponent, input), beside(input, exponent))


def power_from_the_right(exponent: Any, input: Any) -> Tensor:
    return power(input, exponent)


def power_in_place(input: Tensor, exponent: Any) -> Tensor:
    return input.pow_(beside(input, exponent))


FUNCTIONS: dict[str, Callable[[Any, Any], Tensor]] = {
    "pow": power, "__pow__": power, "__rpow__": power_from_the_right, "rpow": power_from_the_right,
    "pow_": power_in_place, "ipow": power_in_place, "__ipow__": power_in_place}


def beside(tensor: Any, number: Any) -> Any:
    """A number as a tensor that does not change the dtype of the tensor next to it."""
    if isinstance(number, Tensor):
        return number
    is_larger = tensor.dim() > 0 or tensor.dtype is torch.bool
    return torch.full((), number, dtype=torch.int64 if is_larger else tensor.dtype, device=tensor.device)


def with_tensors(module: fx.GraphModule) -> None:
    """Let a graph compute powers of whole numbers with tensors only."""
    found = [node for node in module.graph.nodes if name_of(node) in FUNCTIONS and is_of_symbol(node)]
    for node in found:
        node.op, node.target = "call_function", FUNCTIONS[name_of(node)]
    if found:
        module.recompile()
        lets_go_of_source(module)


def is_of_symbol(node: fx.Node) -> bool:
    given = (*node.args, *node.kwargs.values())
    operands = [operand.meta.get("example_value") for operand in given if isinstance(operand, fx.Node)]
    tensors = [value for value in operands if isinstance(value, Tensor)]
    return len(given) == 2 and any(isinstance(value, torch.SymInt) for value in operands) and len(tensors) == 1 and (
        not (tensors[0].is_floating_point() or tensors[0].is_complex()))
