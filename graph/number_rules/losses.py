"""Rules for losses."""
from __future__ import annotations

from math import inf, pi
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.graph.number_rules.normalization import pairwise_distance
from sot.graph.number_rules.rules import only_if, rule


def reduced(loss: Tensor, reduction: str, *old: Any) -> Tensor:
    """The loss by a ``reduction``; ``old`` are the arguments that it has replaced."""
    only_if(all(given is None for given in old))
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


@rule(F.huber_loss, delta=(0.0,))
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: Any = 1.0, weight: Any = None) -> Tensor:
    error = (input - target).abs()
    loss = torch.where(error < delta, 0.5 * error * error, delta * (error - 0.5 * delta))
    return reduced(loss if weight is None else loss * weight, reduction)


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


@rule(F.triplet_margin_loss, margin=(0.0,), p=(-inf, 0.0, inf), eps=())
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: Any = 1.0, p: Any = 2,
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
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
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


@rule(F.multi_margin_loss, in_double=True, margin=())
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: Any = 1.0, weight: Any = None,
                      size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Tensor:
    only_if(size_average is None and reduce is None and reduction in REDUCTIONS)
    operator = torch.ops.aten.multi_margin_loss.default
    return with_tensors(operator)(input, target, p, margin, weight, REDUCTIONS.index(reduction))


REDUCTIONS = "none", "mean", "sum"      # in the order of torch's numbers for them
