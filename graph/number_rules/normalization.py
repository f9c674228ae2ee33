"""Rules for normalization, norms and distances."""
from __future__ import annotations

from math import inf, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.graph.number_rules.rules import also_in_place, only_if, rule, wide

aten = torch.ops.aten


@rule(F.layer_norm, eps=())
def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Tensor:
    x = wide(input)
    variance, mean = torch.var_mean(x, tuple(range(-len(normalized_shape), 0)), correction=0, keepdim=True)
    return scaled((x - mean) * (variance + eps).rsqrt(), weight, bias).to(input.dtype)


@rule(F.rms_norm, eps=())
def rms_norm(input: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
    x = wide(input)
    square = x.square().mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return scaled(x * (square + eps).rsqrt(), weight, None).to(input.dtype)


@rule(F.group_norm, eps=())
def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Tensor:
    only_if(input.is_contiguous())
    x = wide(input).flatten(2) if input.dim() > 2 else wide(input).unsqueeze(2)
    x = x.unflatten(1, (num_groups, -1))
    variance, mean = torch.var_mean(x, (2, 3), correction=0, keepdim=True)
    y = ((x - mean) * (variance + eps).rsqrt()).reshape(input.shape)
    return scaled(y, along_channels(weight, y), along_channels(bias, y)).to(input.dtype)


@rule(F.instance_norm, eps=())
def instance_norm(input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None,
                  bias: Any = None, use_input_stats: bool = True, momentum: Any = 0.1, eps: Any = 1e-5) -> Tensor:
    only_if(running_mean is None and running_var is None and use_input_stats and input.is_contiguous())
    x = wide(input)
    variance, mean = torch.var_mean(x, tuple(range(2, x.dim())), correction=0, keepdim=True)
    y = (x - mean) * (variance + eps).rsqrt()
    return scaled(y, along_channels(weight, y), along_channels(bias, y)).to(input.dtype)


@rule(F.batch_norm, eps=())
def batch_norm(input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: Any = 0.1, eps: Any = 1e-5) -> Tensor:
    x = wide(input)
    if training:
        dims = (0, *range(2, x.dim()))
        variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        if running_mean is not None:
            count = x.numel() // x.shape[1]
            with torch.no_grad():
                for running, new in (running_mean, mean), (running_var, variance * (count / (count - 1))):
                    running.copy_(running * (1 - momentum) + new.flatten().to(running.dtype) * momentum)
    else:
        mean, variance = along_channels(wide(running_mean), x), along_channels(wide(running_var), x)
    y = (x - mean) * (variance + eps).rsqrt()
    return scaled(y, along_channels(weight, y), along_channels(bias, y)).to(input.dtype)


def scaled(x: Tensor, weight: Any, bias: Any) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def along_channels(values: Any, x: Tensor) -> Any:
    return values if values is None else values.view(-1, *[1] * (x.dim() - 2))


@rule(torch.linalg.vector_norm, ord=(-inf, 0.0, inf))
def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
                out: Any = None) -> Tensor:
    """As PyTorch's, the gradient is zero at elements that are zero, and where the norm is."""
    only_if(out is None and not x.is_complex() and dtype is None)
    size = wide(x).abs()
    rest, none = size == 0, torch.where(ord > 0, 0.0, inf).to(size.dtype)
    powers = torch.where(rest, none, torch.where(rest, 1.0, size).pow(ord))
    total = powers.sum(tuple(range(x.dim())) if dim is None else dim, keepdim)
    rest = (total == 0) | total.isinf()
    root = torch.where(rest, 1.0, total).pow(1 / ord)
    return torch.where(rest, total.detach().pow(1 / ord), root).to(x.dtype)


@rule(torch.norm, "norm", p=(-inf, 0.0, inf))
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None,
         dtype: Any = None) -> Tensor:
    return vector_norm(input, p, dim, keepdim, dtype=dtype, out=out)


@rule(torch.linalg.norm, ord=(-inf, 0.0, inf))
def norm_of_vector(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None,
                   dtype: Any = None) -> Tensor:
    only_if(A.dim() == 1 or isinstance(dim, int))
    return vector_norm(A, ord, dim, keepdim, dtype=dtype, out=out)


def along(x: Tensor, p: Any, dim: Any, keepdim: bool) -> Tensor:
    """A norm by torch's kernel, if the order is a number."""
    return vector_norm(x, p, dim, keepdim) if isinstance(p, Tensor) else x.norm(p, dim, keepdim)


@rule(F.normalize, p=(-inf, 0.0, inf), eps=())
def normalize(input: Tensor, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12, out: Any = None) -> Tensor:
    only_if(out is None)
    return input / along(input, p, dim, True).clamp_min(eps).expand_as(input)


@rule(F.cosine_similarity, torch.cosine_similarity, eps=())
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: Any = 1e-8) -> Tensor:
    return (unit(x1, dim, eps) * unit(x2, dim, eps)).sum(dim)


def unit(x: Tensor, dim: int, eps: Any) -> Tensor:
    """A vector of length one. The gradient is that of the norm, also where eps is larger."""
    norm = torch.linalg.vector_norm(x, 2, dim, keepdim=True)
    return x / (norm + (norm.clamp_min(eps) - norm).detach())


@rule(F.pairwise_distance, torch.pairwise_distance, p=(-inf, 0.0, inf), eps=())
def pairwise_distance(x1: Tensor, x2: Tensor, p: Any = 2.0, eps: Any = 1e-6, keepdim: bool = False) -> Tensor:
    return along(x1 - x2 + eps, p, -1, keepdim)


@rule(torch.dist, "dist", p=(-inf, 0.0, inf))
def dist(input: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    return vector_norm(input - other, p)


@rule(torch.cdist, in_double=True, p=(0.0,))
def cdist(x1: Tensor, x2: Tensor, p: Any = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    modes = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": 1,
             "donot_use_mm_for_euclid_dist": 2}
    only_if(compute_mode in modes)
    return with_tensors(aten.cdist.default)(x1, x2, p, modes[compute_mode])


@rule(F.pdist, torch.pdist, in_double=True, p=(0.0,))
def pdist(input: Tensor, p: Any = 2) -> Tensor:
    return with_tensors(aten.pdist.default)(input, p)


@rule(torch.renorm, "renorm", in_double=True, p=(0.0,), maxnorm=(0.0,))
def renorm(input: Tensor, p: Any, dim: int, maxnorm: Any, *, out: Any = None) -> Tensor:
    only_if(out is None)
    return with_tensors(aten.renorm.default)(input, p, dim, maxnorm)


also_in_place(torch.renorm, "renorm_")


@rule(F.embedding, in_double=True, max_norm=(), norm_type=(0.0,))
def embedding(input: Tensor, weight: Tensor, padding_idx: Any = None, max_norm: Any = None, norm_type: Any = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    if max_norm is not None:
        with torch.no_grad():
            weight.copy_(with_tensors(aten.embedding_renorm.default)(weight.detach(), input, max_norm, norm_type))
    return F.embedding(input, weight, padding_idx, None, 2.0, scale_grad_by_freq, sparse)


@rule(F.embedding_bag, in_double=True, max_norm=(), norm_type=(0.0,))
def embedding_bag(input: Tensor, weight: Tensor, offsets: Any = None, max_norm: Any = None, norm_type: Any = 2.0,
                  *others: Any, **more: Any) -> Tensor:
    if max_norm is not None:
        with torch.no_grad():
            weight.copy_(with_tensors(aten.embedding_renorm.default)(weight.detach(), input, max_norm, norm_type))
    return F.embedding_bag(input, weight, offsets, None, 2.0, *others, **more)


@rule(torch.std, "std", correction=())
def std(input: Tensor, dim: Any = None, keepdim: bool = False, *, correction: Any = 1) -> Tensor:
    """The gradient is that of a standard deviation, also where it is zero."""
    count = elements_along(input, dim)
    found = wide(input).std(dim, correction=0, keepdim=keepdim)
    return (found * (count / (count - correction).clamp_min(0)).sqrt()).to(input.dtype.to_real())


@rule(torch.var, "var", correction=())
def var(input: Tensor, dim: Any = None, keepdim: bool = False, *, correction: Any = 1) -> Tensor:
    count = elements_along(input, dim)
    found = wide(input).var(dim, correction=0, keepdim=keepdim)
    return (found * (count / (count - correction).clamp_min(0))).to(input.dtype.to_real())


@rule(torch.std_mean, correction=())
def std_mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, correction: Any = 1) -> tuple[Tensor, Tensor]:
    return std(input, dim, keepdim, correction=correction), mean_along(input, dim, keepdim)


@rule(torch.var_mean, correction=())
def var_mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, correction: Any = 1) -> tuple[Tensor, Tensor]:
    return var(input, dim, keepdim, correction=correction), mean_along(input, dim, keepdim)


def elements_along(x: Tensor, dim: Any) -> int:
    only_if(dim is None or isinstance(dim, (int, tuple, list)) and not isinstance(dim, bool))
    dims = range(x.dim()) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    return prod(x.shape[i] for i in dims) if x.dim() else 1


def mean_along(x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return x.mean(tuple(range(x.dim())) if dim is None else dim, keepdim)


rule(F.local_response_norm, alpha=(), beta=(), k=())(F.local_response_norm)
