"""Rules for operations that draw random numbers. They draw the same numbers as the operation itself."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.graph.number_rules.rules import HALF, also_in_place, only_if, rule

SELU = 1.7580993408473766     # of alpha dropout: scale * alpha of SELU


# ---- dropout
@rule(F.dropout, torch.dropout, in_double=True, p=(0.0, 1.0))
def dropout(input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training:
        return input
    mask = kept(input, p, True)
    return input * mask * beside(input, 1 / (1 - p)) if input.is_cuda else input * (mask / beside(input, 1 - p))


@rule(torch.native_dropout, in_double=True, p=(0.0, 1.0))
def dropout_and_mask(input: Tensor, p: Any, train: bool | None) -> tuple[Tensor, Tensor]:
    only_if(train is not False)
    mask = kept(input, p, True)
    return input * mask * beside(input, 1 / (1 - p)), mask.bool()


@rule(F.dropout2d, torch.feature_dropout, in_double=True, p=(0.0, 1.0))
def channel_dropout(input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training:
        return input
    return input * (kept(channels_of(input), p) / beside(input, 1 - p))


@rule(F.dropout1d, F.dropout3d, in_double=True, p=(0.0, 1.0))
def channel_dropout_of_batch(input: Tensor, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    only_if(input.dim() in (3, 5))
    return channel_dropout(input, p, training)


@rule(F.alpha_dropout, torch.alpha_dropout, in_double=True, p=(0.0, 1.0))
def alpha_dropout(input: Tensor, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    return to_negative(input, kept(input, p), p) if training else input


@rule(F.feature_alpha_dropout, torch.feature_alpha_dropout, in_double=True, p=(0.0, 1.0))
def channel_alpha_dropout(input: Tensor, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    return to_negative(input, kept(channels_of(input), p), p) if training else input


def to_negative(x: Tensor, mask: Tensor, p: Tensor) -> Tensor:
    """Elements that are dropped get a value that is negative; mean and variance stay."""
    scale = ((SELU * SELU * p + 1) * (1 - p)).rsqrt()
    shift, scale, value = (beside(x, number) for number in (SELU * scale * p, scale, SELU * scale))
    return x * (mask * scale) + ((mask - 1) * value + shift)


def channels_of(x: Tensor) -> Tensor:
    return x.new_empty([*x.shape[:2], *[1] * (x.dim() - 2)])


def beside(x: Tensor, number: Tensor) -> Tensor:
    """The number in a dtype that does not change that of a result."""
    return number.to(torch.float32 if x.dtype in HALF and x.dim() else x.dtype)


# ---- distributions
@rule(F.gumbel_softmax, tau=())
def gumbel_softmax(logits: Tensor, tau: Any = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    noise = -torch.empty_like(logits, memory_format=torch.legacy_contiguous_format).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    one = torch.zeros_like(logits).scatter_(dim, soft.max(dim, keepdim=True)[1], 1.0)
    return one - soft.detach() + soft


@rule("normal_", in_double=True, mean=(), std=(0.0,))
def normal_(input: Tensor, mean: Any = 0, std: Any = 1, *, generator: Any = None) -> Tensor:
    if input.dtype in HALF:     # rounded once
        return input.copy_(drawn(input, "normal_", mean, std, generator=generator))
    mean, std = (beside(input, n) if isinstance(n, Tensor) else n for n in (mean, std))
    return input.normal_(generator=generator).mul_(std).add_(mean)


@rule("exponential_", in_double=True, lambd=(0.0,))
def exponential_(input: Tensor, lambd: Any = 1, *, generator: Any = None) -> Tensor:
    if input.dtype in HALF:
        return input.copy_(drawn(input, "exponential_", lambd, generator=generator))
    return input.exponential_(generator=generator).div_(beside(input, lambd))


@rule("uniform_", in_double=True, low=(), to=(), ordered=("low", "to"))
def uniform_(input: Tensor, low: Any = 0, to: Any = 1, *, generator: Any = None) -> Tensor:
    return input.copy_(drawn(input, "uniform_", low, to, generator=generator))


@rule("cauchy_", in_double=True, median=(), sigma=(0.0,))
def cauchy_(input: Tensor, median: Any = 0, sigma: Any = 1, *, generator: Any = None) -> Tensor:
    return input.copy_(drawn(input, "cauchy_", median, sigma, generator=generator))


@rule("log_normal_", in_double=True, mean=(), std=(0.0,))
def log_normal_(input: Tensor, mean: Any = 1, std: Any = 2, *, generator: Any = None) -> Tensor:
    return input.copy_(drawn(input, "log_normal_", mean, std, generator=generator))


@rule("geometric_", in_double=True, p=(0.0, 1.0))
def geometric_(input: Tensor, p: Any, *, generator: Any = None) -> Tensor:
    return input.copy_(drawn(input, "geometric_", p, generator=generator))


@rule("bernoulli_", in_double=True, p=(0.0, 1.0))
def bernoulli_(input: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    return input.copy_(drawn(input, "bernoulli_", p, generator=generator))


@rule(torch.bernoulli, "bernoulli", in_double=True, p=(0.0, 1.0))
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Tensor:
    only_if(out is None)
    return drawn(torch.empty_like(input), "bernoulli_", p, generator=generator)


@rule(torch.normal, in_double=True, mean=(), std=(0.0,))
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, device: Any = None,
           out: Any = None) -> Tensor:
    """Next to another 0-d tensor, a number in a tensor is not recognised."""
    only_if(out is None)
    if size is not None:
        return drawn(torch.empty(size, dtype=dtype, device=device), "normal_", mean, std, generator=generator)
    if isinstance(mean, Tensor) and mean.dim() > 0:
        made = drawn(torch.empty_like(mean), "normal_", 0.0, std, generator=generator) + mean.detach()
        return with_zero_gradient(made, mean)
    only_if(isinstance(std, Tensor) and std.dim() > 0)
    return with_zero_gradient(with_tensors(torch.ops.aten.normal.float_Tensor)(mean, std.detach(), generator=generator),
                              std)


def with_zero_gradient(made: Tensor, parameter: Tensor) -> Tensor:
    """A random tensor whose gradient, for the parameter of its distribution, is zero."""
    return torch.where(torch.zeros_like(made, dtype=torch.bool), parameter, made)


def trunc_normal_(input: Tensor, mean: Any, std: Any, a: Any, b: Any, generator: Any = None) -> Tensor:
    """``torch.nn.init.trunc_normal_``: how many numbers it draws depends on them."""
    with torch.no_grad():
        return input.copy_(drawn(input, "trunc_normal_", mean, std, a, b, generator=generator))


rule(trunc_normal_, in_double=True, mean=(), std=(), a=(), b=())(trunc_normal_)


# ---- draws
def kept(x: Tensor, p: Tensor, fused: bool = False) -> Tensor:
    """A mask as dropout of these elements would draw it. An empty tensor of its own makes each draw a different node,
    so that no pass takes two of them for one. ``fused``: whether GPUs draw and multiply in one kernel.
    """
    return drawing()(x.detach(), p, torch.empty(0), fused).to(x.dtype)


def drawn(x: Tensor, method: str, *numbers: Any, generator: Any = None) -> Tensor:
    """A tensor like ``x`` in which a method of tensors has drawn, with these numbers."""
    given = torch.stack([torch.as_tensor(n, dtype=torch.float64) for n in numbers])
    return drawing_with_numbers()(x.detach(), method, given, torch.empty(0), generator)


def slopes(x: Tensor, lower: Any, upper: Any, generator: Any) -> Tensor:
    """What a randomized leaky ReLU multiplies by: 1, or what it has drawn for a negative element."""
    return drawn(x, "rrelu", lower, upper, generator=generator)


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


@functools.cache
def drawing_with_numbers() -> Callable[..., Tensor]:
    """The operator that draws by a method with numbers, into memory with the strides of ``x``: the order of the
    numbers depends on them.
    """
    def empty(x: Tensor) -> Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)

    def draw(x: Tensor, method: str, numbers: Tensor, own: Tensor, generator: torch.Generator | None) -> Tensor:
        if method == "rrelu":
            noise = empty(x)
            torch.ops.aten.rrelu_with_noise(x, noise, *numbers.tolist(), True, generator)
            return noise
        if method == "trunc_normal_":
            mean, std, a, b = numbers.tolist()
            return torch.nn.init.trunc_normal_(empty(x), mean, std, a, b, generator)
        return getattr(empty(x), method)(*numbers.tolist(), generator=generator)

    made = torch.library.custom_op(
        "sot::draw_with_numbers", draw, mutates_args=(),
        schema="(Tensor x, str method, Tensor numbers, Tensor own, Generator? generator) -> Tensor",
        tags=(torch.Tag.nondeterministic_seeded, torch.Tag.needs_exact_strides))
    made.register_fake(lambda x, *others: empty(x))
    return made._opoverload


def integers_drawn(x: Tensor, low: Any, high: Any, generator: Any = None) -> Tensor:
    """A tensor like ``x`` in which ``random_`` has drawn. The bounds may be symbols."""
    return drawing_integers()(x.detach(), low, high, torch.empty(0), generator)


@functools.cache
def drawing_integers() -> Callable[..., Tensor]:
    """The operator that draws integers."""
    def draw(x: Tensor, low: int, high: int, own: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).random_(
            low, high, generator=generator)

    made = torch.library.custom_op(
        "sot::draw_integers", draw, mutates_args=(),
        schema="(Tensor x, SymInt low, SymInt high, Tensor own, Generator? generator) -> Tensor",
        tags=(torch.Tag.nondeterministic_seeded, torch.Tag.needs_exact_strides))
    made.register_fake(lambda x, *others: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device))
    return made._opoverload


# The same in place.
also_in_place(torch.dropout, torch.dropout_)
also_in_place(torch.feature_dropout, torch.feature_dropout_)
also_in_place(torch.alpha_dropout, torch.alpha_dropout_)
also_in_place(torch.feature_alpha_dropout, torch.feature_alpha_dropout_)
