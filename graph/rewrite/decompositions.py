"""The operators that are decomposed into simpler ones before lowering.

The rules are torch's: ``torch._decomp`` has one for most composite operators, with eager's numerics. ``KEPT`` are the
operators that lowering, or the operator itself, does better. They are not decomposed. A registered rule precedes
torch's:

    @sot.graph.rewrite.decompositions.rule(torch.ops.mylib.op.default)
    def op(x): ...

SOT_DECOMPOSE switches rules off and on by name, for the process: ``SOT_DECOMPOSE=-aten.gelu,-aten.addcmul``, and
``+aten.var_mean`` for one that is kept.
"""
from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sot.graph.rewrite.switches import parsed
from sot.torch_compat.graphs import operators_of_pools, torch_decompositions

Table = dict[Any, Callable[..., Any]]

# Operators, by name, that torch would decompose, and why they are kept.
KEPT: dict[str, str] = {
    **dict.fromkeys(("aten.sum", "aten.all", "aten.var", "aten.var_mean"), "one kernel each"),
    **dict.fromkeys(("aten.floor_divide", "aten.sgn", "aten.frac", "aten.square", "aten.isfinite", "aten.isposinf",
                     "aten.isneginf", "aten.tril", "aten.triu", "aten.roll", "aten.select_scatter", "aten.arange"),
                    "one expression each"),
    **dict.fromkeys(("aten.baddbmm", "aten.mv", "aten.dot", "aten.vdot", "aten.upsample_bilinear2d",
                     "aten._scaled_dot_product_flash_attention_for_cpu"), "the library's kernel is better"),
    **dict.fromkeys(("aten.bernoulli", "aten.native_dropout"), "random numbers are eager's own"),
}
_own: Table = {}
MEAN = 1        # of the losses' reductions, as the operators number them


def rule(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a decomposition of an operator (an overload, or a packet for all its overloads). It replaces torch's
    rule.
    """
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads(operator):
            _own[overload] = fn
        return fn
    return register


def forget(operator: Any) -> None:
    """Remove a registered rule."""
    for overload in overloads(operator):
        _own.pop(overload, None)


def overloads(operator: Any) -> list[Any]:
    if isinstance(operator, torch._ops.OpOverload):
        return [operator]
    return [getattr(operator, name) for name in operator.overloads()]


def table(switches: str | None = None) -> Table:
    """The active rules, by overload.

    Arguments:
        switches: a value for SOT_DECOMPOSE; None means the current one.
    Raises:
        ValueError: a switch does not begin with a sign.
    """
    off, on = parsed("SOT_DECOMPOSE", os.environ.get("SOT_DECOMPOSE", "") if switches is None else switches)
    rules = {op: fn for op, fn in torchs_own().items() if name_of(op) not in KEPT or name_of(op) in on}
    rules |= _own
    return {op: fn for op, fn in rules.items() if name_of(op) not in off}


def name_of(operator: Any) -> str:
    """``aten.add`` for every overload of it."""
    return operator._schema.name.replace("::", ".")


@functools.cache
def torchs_own() -> Table:
    return torch_decompositions()


@rule(torch.ops.aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """As ATen's kernel computes it: the gradient of NaN is NaN. torch's rule takes its sign, which is 0."""
    kind = torch.result_type(self, target)
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    distance, scaled = self.to(wide) - target.to(wide), grad_output.to(wide)
    if reduction == MEAN:
        scaled = scaled * (1.0 / self.numel())
    outside = torch.where(distance > beta, scaled, scaled * distance / beta)
    return torch.where(distance < -beta, -scaled, outside).to(kind)


# ---- pools --------------------------------------------------------------------------------------------------------
WRITTEN_OUT = 25        # greatest number of elements of a window that kernels have, one after another


def max_pool(rank: int, self: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False) -> Any:
    """Which cell of its window each maximum is in fits one byte, so a backward graph keeps that and not a position of
    eight bytes. Larger windows are called.
    """
    size, moved, around, spread = ([*n] * (rank // len(n)) for n in map(
        listed, (kernel_size, stride or kernel_size, padding, dilation)))
    operators = operators_of_pools()
    if operators is None or math.prod(size) > WRITTEN_OUT or may_miss(around, spread, self.shape[-rank:]):
        return NotImplemented
    pooled, positions = operators
    values, cells = pooled(self, size, moved, around, spread, ceil_mode)
    return values, positions(cells, size, self.shape[-rank:], moved, around, spread)


def may_miss(padding: Sequence[int], dilation: Sequence[int], shape: Sequence[Any]) -> bool:
    """Whether a window that begins in the padding may have no cell in the tensor: it steps over it. torch gives its
    maximum a position outside of the window.
    """
    return any(before > 0 and step > 1 and not (isinstance(size, int) and size >= step)
               for before, step, size in zip(padding, dilation, shape, strict=True))


def listed(numbers: Any) -> Any:
    return numbers if isinstance(numbers, list | tuple) else [numbers]


rule(torch.ops.aten.max_pool2d_with_indices.default)(functools.partial(max_pool, 2))
rule(torch.ops.aten.max_pool3d_with_indices.default)(functools.partial(max_pool, 3))
