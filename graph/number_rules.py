"""Operations with a float that may differ from call to call.

The metadata of a result does not depend on such a float. Where the graph runs as it is, the operation gets the float.
A backend that compiles would make it a constant of the compiled graph, so its graph gets a 0-d tensor. Some
operations take that in place of the number (``TAKE_TENSORS``). Others have a rule: the same computation, written so
that the number may be a tensor.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.torch_compat.inductor.own_functions import traced_by_its_arguments
from sot.torch_compat.operators.with_numbers import floats_of, names_of, operator_of_program

TAKE_TENSORS = frozenset(name for n in (
    "add", "sub", "mul", "truediv", "div", "rsub", "pow", "remainder", "mod", "floordiv", "floor_divide", "lt", "le",
    "gt", "ge", "eq", "ne", "clamp", "clamp_min", "clamp_max", "fill", "masked_fill", "lerp", "getitem", "setitem",
    "select", "batch_norm", "tensor", "as_tensor", "full", "full_like", "new_full", "clip", "where", "addcmul",
    "addcdiv", "true_divide", "divide", "multiply", "subtract", "fmod", "xlogy", "special_xlogy", "special_xlog1py",
    "copysign", "index_fill", "special_zeta")
    for name in (n, "i" + n, "r" + n))
# These make a tensor of a number themselves: a number of any size is an operand. ``alpha`` of add and sub is none.
OF_ANY_SIZE = frozenset(name for n in (
    "add", "sub", "mul", "truediv", "div", "rsub", "remainder", "mod", "floordiv", "floor_divide", "lt", "le", "gt",
    "ge", "eq", "ne", "true_divide", "divide", "multiply", "subtract", "fmod", "xlogy", "special_xlogy",
    "special_xlog1py", "copysign", "special_zeta", "getitem", "select", "tensor", "as_tensor")
    for name in (n, "i" + n, "r" + n))
HALF = torch.float16, torch.bfloat16


class NotWritten(Exception):
    """The rule does not cover this form of the operation."""


@dataclass(frozen=True)
class Rule:
    """``function`` computes the operation with tensors in place of ``numbers``. These are names of its parameters, each
    with the values around which the operation itself does something else. They are in ascending order.
    """

    function: Callable[..., Any]
    numbers: Mapping[str, tuple[float, ...]]
    of_program: torch._ops.OpOverload | None = None     # its numbers stay in double precision

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)

    def places(self, args: tuple | list, kwargs: Mapping[str, Any]) -> Iterator[tuple[int | str, tuple[float, ...]]]:
        """The arguments that may be numbers that vary, by position or name, each with its special values."""
        given: list[tuple[str, int | str]] = [*zip(self.names, range(len(args)), strict=False)]
        given += ((name, name) for name in kwargs)
        return ((place, self.numbers[name]) for name, place in given if name in self.numbers)


RULES: dict[Any, Rule] = {}     # by function, or by the name of a method


def rule(*targets: Any, **numbers: tuple[float, ...]) -> Callable[[Callable], Callable]:
    """A decorator for the rule of these operations."""
    def add(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(targets, Rule(traced_by_its_arguments(function), numbers)))
        return function
    return add


def takes_tensors(target: Any) -> bool:
    return name_of(target) in TAKE_TENSORS or hasattr(target, "layout")


def name_of(target: Any) -> str:
    return (target if isinstance(target, str) else getattr(target, "__name__", "")).strip("_")


def is_operand(target: Any, place: int | str) -> bool:
    """Whether a number there may be of any size."""
    return name_of(target) in OF_ANY_SIZE and place != "alpha"


def knows_nan(target: Any) -> bool:
    """Whether a number that is NaN may mean something else than a tensor does: until torch 2.12 no bound at all."""
    return name_of(target) in ("clamp", "clip")


def is_of_lists(target: Any) -> bool:
    """Whether it is an operation on lists of tensors. For a backend that compiles it becomes one on each tensor."""
    return str(getattr(target, "__name__", "")).startswith(("_foreach_", "_fused_"))


def rule_of(target: Any) -> Rule | None:
    if isinstance(target, str) or getattr(target, "__hash__", None):
        return RULES.get(target) or rule_of_program(operator_of_program(target))
    return None


@functools.cache
def rule_of_program(operator: torch._ops.OpOverload | None) -> Rule | None:
    """The rule of an operator that a program or a library has registered."""
    if operator is None or not (floats := floats_of(operator)):
        return None
    names = names_of(operator)
    return Rule(with_tensors(operator), {names[i]: () for i in floats}, operator)


def only_if(holds: bool) -> None:
    if not holds:
        raise NotWritten


def wide(x: Tensor) -> Tensor:
    """The operand of an operation that computes in single precision and rounds once."""
    return x.float() if x.dtype in HALF else x


# ---- normalization
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


@rule(F.normalize, eps=())
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: Any = 1e-12, out: Any = None) -> Tensor:
    only_if(out is None)
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


@rule(F.cosine_similarity, torch.cosine_similarity, eps=())
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: Any = 1e-8) -> Tensor:
    return (unit(x1, dim, eps) * unit(x2, dim, eps)).sum(dim)


def unit(x: Tensor, dim: int, eps: Any) -> Tensor:
    """A vector of length one. The gradient is that of the norm, also where eps is larger."""
    norm = torch.linalg.vector_norm(x, 2, dim, keepdim=True)
    return x / (norm + (norm.clamp_min(eps) - norm).detach())


@rule(F.pairwise_distance, torch.pairwise_distance, eps=())
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: Any = 1e-6, keepdim: bool = False) -> Tensor:
    return torch.norm(x1 - x2 + eps, p, -1, keepdim)


# ---- activations
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


# ---- losses
def reduced(loss: Tensor, reduction: str, *old: Any) -> Tensor:
    """The loss by a ``reduction``; ``old`` are the arguments that it has replaced."""
    only_if(all(given is None for given in old))
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


@rule(F.huber_loss, delta=(0.0,))
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: Any = 1.0, weight: Any = None) -> Tensor:
    only_if(weight is None)
    error = (input - target).abs()
    return reduced(torch.where(error < delta, 0.5 * error * error, delta * (error - 0.5 * delta)), reduction)


@rule(F.smooth_l1_loss, beta=(0.0,))
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
                   reduction: str = "mean", beta: Any = 1.0) -> Tensor:
    error = (input - target).abs()
    return reduced(torch.where(error < beta, 0.5 * error * error / beta, error - 0.5 * beta), reduction, size_average,
                   reduce)


@rule(F.margin_ranking_loss, margin=())
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: Any = 0, size_average: Any = None,
                        reduce: Any = None, reduction: str = "mean") -> Tensor:
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction, size_average, reduce)


@rule(F.hinge_embedding_loss, margin=())
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: Any = 1.0, size_average: Any = None,
                         reduce: Any = None, reduction: str = "mean") -> Tensor:
    loss = torch.where(target != 1, (margin - input).clamp_min(0), 0) + torch.where(target != -1, input, 0)
    return reduced(loss, reduction, size_average, reduce)


@rule(F.triplet_margin_loss, margin=(0.0,), eps=())
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: Any = 1.0, p: float = 2,
                        eps: Any = 1e-6, swap: bool = False, size_average: Any = None, reduce: Any = None,
                        reduction: str = "mean") -> Tensor:
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced((margin + near - far).clamp_min(0), reduction, size_average, reduce)


@rule(F.cosine_embedding_loss, margin=())
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: Any = 0, size_average: Any = None,
                          reduce: Any = None, reduction: str = "mean") -> Tensor:
    size = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / size.sqrt()
    loss = torch.where(target == 1, 1 - cosine, 0) + torch.where(target == -1, (cosine - margin).clamp_min(0), 0)
    return reduced(loss, reduction, size_average, reduce)


@rule(F.poisson_nll_loss, eps=())
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: Any = None, eps: Any = 1e-8, reduce: Any = None, reduction: str = "mean") -> Tensor:
    only_if(not full)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    return reduced(loss, reduction, size_average, reduce)


@rule(F.cross_entropy, label_smoothing=(0.0, 1.0))
def cross_entropy(input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
                  reduce: Any = None, reduction: str = "mean", label_smoothing: Any = 0.0) -> Tensor:
    only_if(size_average is None and reduce is None)
    dim = 1 if input.dim() > 1 else 0
    classes = input.shape[dim]
    if target.is_floating_point():
        smooth_target = target * (1 - label_smoothing) + label_smoothing / classes
        return F.cross_entropy(input, smooth_target, weight, reduction=reduction)
    logs, ignored = F.log_softmax(input, dim), target == ignore_index
    hard = F.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    weighted = logs if weight is None else logs * weight.view(-1, *[1] * (input.dim() - dim - 1))
    smooth = -weighted.sum(dim).masked_fill(ignored, 0)
    if reduction == "mean":
        kept = ~ignored if weight is None else weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0)
        smooth = smooth.sum() / kept.sum()
    elif reduction == "sum":
        smooth = smooth.sum()
    return hard * (1 - label_smoothing) + smooth * (label_smoothing / classes)


# ---- products
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


# ---- other operations
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


# ---- random numbers
@rule(F.dropout, torch.dropout, p=(0.0, 1.0))
def dropout(input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    only_if(not inplace)
    return input if not training else input * kept(input, p, True) * (1 / (1 - p))


@rule(F.dropout2d, p=(0.0, 1.0))
def channel_dropout(input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    only_if(not inplace)
    channels = input.new_empty([*input.shape[:2], *[1] * (input.dim() - 2)])
    return input if not training else input * (kept(channels, p) / (1 - p))


@rule(F.dropout1d, F.dropout3d, p=(0.0, 1.0))
def channel_dropout_of_batch(input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    only_if(input.dim() in (3, 5))
    return channel_dropout(input, p, training, inplace)


@rule(F.alpha_dropout, p=(0.0, 1.0))
def alpha_dropout(input: Tensor, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    only_if(not inplace)
    if not training:
        return input
    scale = ((SELU * SELU * p + 1) * (1 - p)).rsqrt()
    mask = kept(input, p)
    return input * (mask * scale) + ((mask - 1) * (SELU * scale) + SELU * scale * p)


@rule(F.gumbel_softmax, tau=())
def gumbel_softmax(logits: Tensor, tau: Any = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    noise = -torch.empty_like(logits, memory_format=torch.legacy_contiguous_format).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    one = torch.zeros_like(logits).scatter_(dim, soft.max(dim, keepdim=True)[1], 1.0)
    return one - soft.detach() + soft


@rule("normal_", mean=(), std=(0.0,))
def normal_(input: Tensor, mean: Any = 0, std: Any = 1) -> Tensor:
    return input.normal_().mul_(std).add_(mean)


@rule("exponential_", lambd=(0.0,))
def exponential_(input: Tensor, lambd: Any = 1) -> Tensor:
    return input.exponential_().div_(lambd)


SELU = 1.7580993408473766     # of alpha dropout: scale * alpha of SELU


def kept(x: Tensor, p: Tensor, fused: bool = False) -> Tensor:
    """A mask as dropout of these elements would draw it. An empty tensor of its own makes each draw a different node,
    so that no pass takes two of them for one. ``fused``: whether GPUs draw and multiply in one kernel.
    """
    return drawing()(x.detach(), p, torch.empty(0), fused).to(x.dtype)


@functools.cache
def drawing() -> Callable[..., Tensor]:
    """The operator that draws masks. A compiler calls it as it is."""
    def draw(x: Tensor, p: Tensor, own: Tensor, fused: bool) -> Tensor:
        if fused and x.is_cuda:
            return torch.native_dropout(x, p.item(), True)[1]
        return torch.empty_like(x).bernoulli_(1 - p.item()).bool()

    made = torch.library.custom_op("sot::draw_kept", draw, mutates_args=(),
                                   schema="(Tensor x, Tensor p, Tensor own, bool fused) -> Tensor",
                                   tags=(torch.Tag.nondeterministic_seeded,))
    made.register_fake(lambda x, p, own, fused: torch.empty_like(x, dtype=torch.bool))
    return made._opoverload
