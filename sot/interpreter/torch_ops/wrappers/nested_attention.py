"""Attention between jagged nested tensors, which torch computes by their lengths. Fakes do not have these. The result
is like the query, and the node checks that.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention

from sot.graph.fake_rules import nested_attention
from sot.interpreter.torch_ops.torch_calls import operation, torch_call
from sot.support.registry import handles
from sot.values.base import Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(scaled_dot_product_attention)
def attention(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.assumptions.interprets and not m.modes and len(args) == 3 and not kwargs and all(
            isinstance(v, TensorValue) and is_like(v.fake, args[0].fake) for v in args):    # type: ignore[attr-defined]
        return torch_call(m, "call_function", nested_attention, args, {})
    return operation(m, scaled_dot_product_attention, args, kwargs)


def is_like(fake: torch.Tensor, query: torch.Tensor) -> bool:
    """Whether it is a jagged tensor of this shape, without a history."""
    return fake.layout is query.layout is torch.jagged and not fake.requires_grad and (
        fake.dtype is query.dtype and fake.shape == query.shape)
