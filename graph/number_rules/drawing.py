"""Rules for operations that draw random numbers. They draw the same numbers as the operation itself."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_rules.rules import only_if, rule


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
