"""Rules for operations that have no subject in common."""
from __future__ import annotations

from math import nan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_rules.rules import only_if, rule, wide


@rule(F.pad, value=())
def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    only_if(mode == "constant")
    outside = F.pad(torch.zeros_like(input), pad, value=1) != 0
    return torch.where(outside, value, F.pad(input, pad))


@rule(torch.index_add, "index_add", alpha=())
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return input.index_add(dim, index, source * alpha)


@rule(torch.scatter, "scatter", value=())
def scatter(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return input.scatter(dim, index, value.to(input.dtype).expand(index.shape))


@rule(torch.quantile, "quantile", q=(0.0, 1.0))
def quantile(input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear",
             out: Any = None) -> Tensor:
    only_if(out is None and interpolation == "linear" and (dim is not None or not keepdim))
    x, dim = (input.flatten(), 0) if dim is None else (input, dim)
    place = q * (x.shape[dim] - 1)
    low, high = (x.sort(dim).values.index_select(dim, at.to(x.device, torch.int64).view(1))
                 for at in (place.floor(), place.ceil()))
    found = low.lerp(high, place - place.floor()).masked_fill(x.isnan().any(dim, keepdim=True), nan)
    return found if keepdim else found.squeeze(dim)


@rule(torch.linspace, start=(), end=())
def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: Any = None, layout: Any = torch.strided,
             device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    only_if(out is None and dtype is None and layout is torch.strided and not pin_memory and not requires_grad)
    step, i = (end - start) / max(1, steps - 1), torch.arange(steps, device=device)
    return torch.where(i < steps / 2, start + step * i, end - step * (steps - 1 - i))


@rule(torch.logit, "logit", eps=(0.0,))
def logit(input: Tensor, eps: Any = None) -> Tensor:
    x = wide(input)
    x = torch.where(x < eps, eps, torch.where(x > 1 - eps, 1 - eps, x))
    return (x / (1 - x)).log().to(input.dtype)
