"""Rules for products of matrices."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_rules.rules import rule


@rule(F.scaled_dot_product_attention, scale=())
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
                                 enable_gqa: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(query * scale, key, value, attn_mask, dropout_p, is_causal, scale=1.0,
                                          enable_gqa=enable_gqa)


@rule(torch.addmm, "addmm", torch.addmv, "addmv", torch.baddbmm, "baddbmm", beta=(0.0,), alpha=())
def sum_and_product(input: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return input * beta + torch.matmul(left, right) * alpha


@rule(torch.addr, "addr", beta=(0.0,), alpha=())
def sum_and_outer_product(input: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return input * beta + torch.outer(left, right) * alpha
