"""Rules for products of matrices."""
from __future__ import annotations

from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_rules.drawing import beside, kept
from sot.graph.number_rules.rules import also_in_place, only_if, rule, wide


@rule(F.scaled_dot_product_attention, in_double=True, within={"dropout_p": (0.0, 1.0)}, dropout_p=(0.0, 1.0), scale=())
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
                                 dropout_p: Any = 0.0, is_causal: bool = False, scale: Any = None,
                                 enable_gqa: bool = False) -> Tensor:
    """With dropout, as it is computed on a CPU: by matrices, whose weights are dropped."""
    if isinstance(scale, Tensor):
        query, scale = query * beside(query, scale), 1.0
    if not isinstance(dropout_p, Tensor):
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                              enable_gqa=enable_gqa)
    only_if(query.device.type == "cpu" and not enable_gqa)
    if attn_mask is not None:
        attn_mask = torch.zeros_like(attn_mask, dtype=wide(query).dtype).masked_fill(~attn_mask, -inf) if (
            attn_mask.dtype is torch.bool) else wide(attn_mask)
    with torch.autocast(query.device.type, enabled=False):
        weights = torch.ops.aten._scaled_dot_product_attention_math(wide(query), wide(key), wide(value), attn_mask, 0.0,
                                                                    is_causal, scale=scale)[1]
        dropped = weights * (kept(weights, dropout_p) / beside(weights, 1 - dropout_p))
        return torch.matmul(dropped, wide(value)).to(value.dtype)


@rule(torch.addmm, "addmm", torch.addmv, "addmv", torch.baddbmm, "baddbmm", beta=(0.0,), alpha=())
def sum_and_product(input: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return input * beta + torch.matmul(left, right) * alpha


@rule(torch.addbmm, "addbmm", beta=(0.0,), alpha=())
def sum_and_products(input: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return input * beta + torch.bmm(left, right).sum(0) * alpha


@rule(torch.addr, "addr", beta=(0.0,), alpha=())
def sum_and_outer_product(input: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return input * beta + torch.outer(left, right) * alpha


# The same in place.
also_in_place(torch.addmm, "addmm_", "addmv_", torch.addmv_, "baddbmm_")
also_in_place(torch.addbmm, "addbmm_")
also_in_place(torch.addr, "addr_")
