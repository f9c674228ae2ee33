"""Rules for activations."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_rules.rules import only_if, rule, wide


@rule(F.leaky_relu, negative_slope=())
def leaky_relu(input: Tensor, negative_slope: Any = 0.01, inplace: bool = False) -> Tensor:
    only_if(not inplace)
    return torch.where(input > 0, input, input * negative_slope)


@rule(F.elu, alpha=())
def elu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Tensor:
    only_if(not inplace)
    x = wide(input)
    return torch.where(x > 0, x, x.clamp(max=0).expm1() * alpha).to(input.dtype)


@rule(F.celu, alpha=(0.0,))
def celu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Tensor:
    only_if(not inplace)
    x = wide(input)
    return torch.where(x > 0, x, (x.clamp(max=0) / alpha).expm1() * alpha).to(input.dtype)


@rule(F.softplus, beta=(), threshold=())
def softplus(input: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    x = wide(input)
    scaled_x = x * beta
    is_linear = scaled_x > threshold
    return torch.where(is_linear, x, scaled_x.masked_fill(is_linear, 0).exp().log1p() / beta).to(input.dtype)


@rule(F.softshrink, lambd=(0.0,))
def softshrink(input: Tensor, lambd: Any = 0.5) -> Tensor:
    return torch.where(input > lambd, input - lambd, torch.where(input < -lambd, input + lambd, input * 0))


@rule(F.hardshrink, torch.hardshrink, "hardshrink", lambd=())
def hardshrink(input: Tensor, lambd: Any = 0.5) -> Tensor:
    return torch.where((input >= -lambd) & (input <= lambd), 0, input)


@rule(torch.threshold, threshold=(), value=())
def threshold(input: Tensor, threshold: Any, value: Any) -> Tensor:
    return torch.where(input <= threshold, value, input)
