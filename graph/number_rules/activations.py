"""Rules for activations."""
from __future__ import annotations

from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_rules.drawing import slopes
from sot.graph.number_rules.rules import also_in_place, only_if, rule, wide


@rule(F.leaky_relu, negative_slope=())
def leaky_relu(input: Tensor, negative_slope: Any = 0.01, inplace: bool = False) -> Tensor:
    return torch.where(input > 0, input, input * negative_slope)


@rule(F.elu, alpha=())
def elu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Tensor:
    x = wide(input)
    return torch.where(x > 0, x, x.clamp(max=0).expm1() * alpha).to(input.dtype)


@rule(F.celu, torch.celu, alpha=(0.0,))
def celu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Tensor:
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


@rule(F.threshold, torch.threshold, threshold=(), value=())
def threshold(input: Tensor, threshold: Any, value: Any, inplace: bool = False) -> Tensor:
    return torch.where(input <= threshold, value, input)


@rule(F.hardtanh, min_val=(), max_val=(), ordered=("min_val", "max_val"))
def hardtanh(input: Tensor, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Tensor:
    """At a bound, the gradient is zero: that of ``clamp`` is not."""
    return torch.where(input <= min_val, min_val, torch.where(input >= max_val, max_val, input))


@rule(F.rrelu, torch.rrelu, lower=(), upper=(), ordered=("lower", "upper"))
def rrelu(input: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, inplace: bool = False,
          generator: Any = None) -> Tensor:
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    return input * slopes(input, lower, upper, generator)


@rule(torch.nan_to_num, "nan_to_num", nan=(), posinf=(), neginf=())
def nan_to_num(input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None, *, out: Any = None) -> Tensor:
    only_if(out is None and input.dtype.is_floating_point)
    limits = torch.finfo(input.dtype)
    found = torch.where(input == -inf, limits.min if neginf is None else neginf, input)
    found = torch.where(input == inf, limits.max if posinf is None else posinf, found)
    return torch.where(input.isnan(), 0.0 if nan is None else nan, found)


# The same in place.
also_in_place(F.leaky_relu, F.leaky_relu_)
also_in_place(F.elu, F.elu_)
also_in_place(F.celu, F.celu_, torch.celu_)
also_in_place(F.threshold, torch.threshold_)
also_in_place(F.hardtanh, F.hardtanh_)
also_in_place(torch.rrelu, F.rrelu_, torch.rrelu_)
also_in_place(torch.nan_to_num, torch.nan_to_num_, "nan_to_num_")
