"""Rules for operations that have no subject in common."""
from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.graph.number_rules.rules import also_in_place, only_if, rule, wide
from sot.torch_compat import functions

aten = torch.ops.aten


@rule(F.pad, value=())
def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    only_if(mode == "constant")
    outside = F.pad(torch.zeros_like(input), pad, value=1) != 0
    return torch.where(outside, value, F.pad(input, pad))


@rule(torch.constant_pad_nd, value=())
def constant_pad(input: Tensor, padding: Any, value: Any = 0) -> Tensor:
    return pad(input, padding, value=value)


@rule(torch.index_add, "index_add", alpha=())
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return input.index_add(dim, index, source * alpha)


@rule(torch.scatter, "scatter", value=())
def scatter(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return input.scatter(dim, index, value.to(input.dtype).expand(index.shape))


@rule(torch.quantile, "quantile", q=(0.0, 1.0))
def quantile(input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear",
             out: Any = None) -> Tensor:
    only_if(out is None and (dim is not None or not keepdim))
    x, dim = (input.flatten(), 0) if dim is None else (input, dim)
    place = PLACES[interpolation](q * (x.shape[dim] - 1))
    low, high = (x.sort(dim).values.index_select(dim, at.to(x.device, torch.int64).view(1))
                 for at in (place.floor(), place.ceil()))
    found = low.lerp(high, place - place.floor()).masked_fill(x.isnan().any(dim, keepdim=True), nan)
    return found if keepdim else found.squeeze(dim)


PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda place: place, "lower": torch.floor, "higher": torch.ceil, "nearest": torch.round,
    "midpoint": lambda place: (place.floor() + place.ceil()) / 2}


@rule(torch.nanquantile, "nanquantile", in_double=True, q=(0.0, 1.0))
def nanquantile(input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear",
                out: Any = None) -> Tensor:
    only_if(out is None)
    return with_tensors(aten.nanquantile.scalar)(input, q, dim, keepdim, interpolation=interpolation)


@rule(torch.linspace, in_double=True, start=(), end=())
def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: Any = None, layout: Any = torch.strided,
             device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    only_if(out is None and layout is torch.strided and not pin_memory and not requires_grad
            and dtype in (torch.float32, torch.float64))
    start, end = (n.to(dtype) if isinstance(n, Tensor) else n for n in (start, end))
    step, i = (end - start) / max(1, steps - 1), torch.arange(steps, device=device)
    return torch.where(i < max(1, steps // 2), start + step * i, end - step * (steps - 1 - i)).to(dtype)


@rule(torch.logspace, in_double=True, start=(), end=(), base=())
def logspace(start: Any, end: Any, steps: int, base: Any = 10.0, *, out: Any = None, dtype: Any = None,
             layout: Any = torch.strided, device: Any = None, pin_memory: bool = False,
             requires_grad: bool = False) -> Tensor:
    only_if(out is None and not requires_grad)
    return with_tensors(aten.logspace.default)(start, end, steps, base, dtype=dtype, layout=layout, device=device,
                                               pin_memory=pin_memory)


@rule(torch.kaiser_window, in_double=True, beta=())
def kaiser_window(window_length: int, periodic: bool = True, beta: Any = 12.0, *, dtype: Any = None,
                  layout: Any = torch.strided, device: Any = None, pin_memory: bool = False,
                  requires_grad: bool = False) -> Tensor:
    only_if(not requires_grad)
    return with_tensors(aten.kaiser_window.beta)(window_length, periodic, beta, dtype=dtype, layout=layout,
                                                 device=device, pin_memory=pin_memory)


@rule(torch.hamming_window, in_double=True, alpha=(), beta=())
def hamming_window(window_length: int, periodic: bool = True, alpha: Any = 0.54, beta: Any = 0.46, *, dtype: Any = None,
                   layout: Any = torch.strided, device: Any = None, pin_memory: bool = False,
                   requires_grad: bool = False) -> Tensor:
    only_if(not requires_grad)
    operator = aten.hamming_window.periodic_alpha_beta
    return with_tensors(operator)(window_length, periodic, alpha, beta, dtype=dtype, layout=layout, device=device,
                                  pin_memory=pin_memory)


@rule(torch.fft.fftfreq, in_double=True, d=(0.0,))
def fftfreq(n: int, d: Any = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = torch.strided,
            device: Any = None, requires_grad: bool = False) -> Tensor:
    only_if(out is None and not requires_grad)
    return with_tensors(aten.fft_fftfreq.default)(n, d, dtype=dtype, layout=layout, device=device)


@rule(torch.fft.rfftfreq, in_double=True, d=(0.0,))
def rfftfreq(n: int, d: Any = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = torch.strided,
             device: Any = None, requires_grad: bool = False) -> Tensor:
    only_if(out is None and not requires_grad)
    return with_tensors(aten.fft_rfftfreq.default)(n, d, dtype=dtype, layout=layout, device=device)


@rule(torch.fake_quantize_per_tensor_affine, in_double=True, scale=())
def fake_quantize(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    only_if(isinstance(zero_point, int))
    operator = aten.fake_quantize_per_tensor_affine.default
    return with_tensors(operator)(input, scale, zero_point, quant_min, quant_max)


@rule(torch.pinverse, "pinverse", rcond=())
def pinverse(input: Tensor, rcond: Any = 1e-15) -> Tensor:
    return torch.linalg.pinv(input, rtol=rcond)


@rule(torch.histc, "histc", in_double=True, min=(), max=(), ordered=("min", "max"))
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any = None) -> Tensor:
    only_if(out is None)
    return with_tensors(aten.histc.default)(input.detach(), bins, min, max)


@rule(torch.isclose, "isclose", in_double=True, rtol=(0.0,), atol=(0.0,))
def isclose(input: Tensor, other: Tensor, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Tensor:
    return with_tensors(aten.isclose.default)(input.detach(), other.detach(), rtol, atol, equal_nan)


@rule(torch.allclose, "allclose", in_double=True, rtol=(0.0,), atol=(0.0,))
def allclose(input: Tensor, other: Tensor, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Tensor:
    """Python gets its result, and calls it itself."""
    return isclose(input, other, rtol, atol, equal_nan).all()


@rule(torch.bucketize, in_double=True, input=())
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False,
              out: Any = None) -> Tensor:
    only_if(out is None)
    return with_tensors(aten.bucketize.Scalar)(input, boundaries.detach(), out_int32=out_int32, right=right)


@rule(torch.searchsorted, in_double=True, input=())
def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
                 out: Any = None, sorter: Any = None) -> Tensor:
    only_if(out is None)
    return with_tensors(aten.searchsorted.Scalar)(sorted_sequence.detach(), input, out_int32=out_int32, right=right,
                                                  side=side, sorter=sorter)


@rule(torch.float_power, "float_power", in_double=True, input=(), exponent=())
def float_power(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
    only_if(out is None)
    return torch.float_power(input, exponent)


@rule(torch.gradient, spacing=())
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    only_if(isinstance(spacing, Tensor))
    return [part / spacing for part in torch.gradient(input, dim=dim, edge_order=edge_order)]


@rule(torch.trapezoid, torch.trapz, dx=())
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    only_if(x is None)
    return torch.trapezoid(y, dim=dim) * dx


@rule(torch.cumulative_trapezoid, dx=())
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    only_if(x is None)
    return torch.cumulative_trapezoid(y, dim=dim) * dx


@rule(functions.pad_sequence, padding_value=())
def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: Any = 0.0, padding_side: Any = "right",
                 ) -> Tensor:
    outside = functions.pad_sequence([torch.zeros_like(x) for x in sequences], batch_first, 1.0, padding_side) != 0
    return torch.where(outside, padding_value, functions.pad_sequence(sequences, batch_first, 0.0, padding_side))


@rule("fill_diagonal_", fill_value=())
def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    on = torch.zeros_like(input, dtype=torch.bool).fill_diagonal_(True, wrap)
    return input.copy_(torch.where(on, fill_value, input))


for pool in (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d):
    rule(pool, norm_type=(-inf, 0.0, inf))(pool)


@rule(torch.logit, torch.special.logit, "logit", eps=(0.0,))
def logit(input: Tensor, eps: Any = None) -> Tensor:
    x = wide(input)
    x = torch.where(x < eps, eps, torch.where(x > 1 - eps, 1 - eps, x))
    return (x / (1 - x)).log().to(input.dtype)


# The same in place.
also_in_place(torch.logit, torch.logit_, "logit_")
also_in_place(torch.index_add, "index_add_")
also_in_place(torch.scatter, "scatter_")
also_in_place(torch.float_power, "float_power_")
