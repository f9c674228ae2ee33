"""Interpolation by a scale factor so close to 1 that a dimension keeps its size.

PyTorch's kernels then copy along it in some modes, and in the backward pass of all. AOTAutograd's decompositions
interpolate in each case, so their values differ. A backend gets an operator that calls the kernels in their place.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from sot.torch_compat.graphs import lets_go_of_source

FUNCTIONS = F.interpolate, F.upsample
# The kernels by mode and dimensions. The decompositions of the other modes agree with them.
KERNELS = {
    ("nearest", 1): "upsample_nearest1d", ("nearest", 2): "upsample_nearest2d", ("nearest", 3): "upsample_nearest3d",
    ("linear", 1): "upsample_linear1d", ("bilinear", 2): "upsample_bilinear2d",
    ("trilinear", 3): "upsample_trilinear3d", ("bicubic", 2): "upsample_bicubic2d",
}


def call_kernels(module: fx.GraphModule) -> None:
    """Let a graph call the kernels wherever an interpolation keeps the size, or may keep it."""
    changed = False
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target not in FUNCTIONS:
            continue
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
        x, factor, mode = given["input"], given.get("scale_factor"), given.get("mode", "nearest")
        x, now = (n.meta.get("example_value") if isinstance(n, fx.Node) else None for n in (x, node))
        if not isinstance(x, Tensor) or not isinstance(now, Tensor) or factor is None:
            continue
        factors = [*factor] if isinstance(factor, (list, tuple)) else [factor] * (x.dim() - 2)
        kernel = KERNELS.get((mode, x.dim() - 2))
        if kernel and all(isinstance(f, (int, float)) for f in factors) and may_keep(x, now, factors) and not (
                given.get("align_corners") or given.get("antialias") or given.get("recompute_scale_factor")):
            node.target, node.kwargs = interpolated, {}
            node.args = given["input"], kernel, [int(n) if type(n) is int else None for n in now.shape[2:]], [
                *map(float, factors)], now.dtype
            changed = True
    if changed:
        module.recompile()
        lets_go_of_source(module)


def may_keep(x: Tensor, now: Tensor, factors: list[float]) -> bool:
    """Whether a dimension may keep its size. Sizes that are symbols are not compared, because that would be an
    assumption about them.
    """
    return any(
        before == after and f != 1 if type(before) is type(after) is int else 1 < f < 2
        for before, after, f in zip(x.shape[2:], now.shape[2:], factors, strict=True))


def interpolated(x: Tensor, kernel: str, size: list[int | None], factors: list[float], dtype: torch.dtype) -> Tensor:
    """The result of ``kernel``. Autocast has chosen the dtype."""
    sizes = [torch.sym_int(n * f) if known is None else known
             for known, n, f in zip(size, x.shape[2:], factors, strict=True)]
    return operators()(x.to(dtype), kernel, sizes, factors)


@functools.cache
def operators() -> Callable[..., Tensor]:
    """The operator that calls a kernel, and goes backward by its gradient."""
    def corners(kernel: str) -> tuple[bool, ...]:
        return () if "nearest" in kernel else (False,)

    def forward(x: Tensor, kernel: str, size: list[int], factors: list[float]) -> Tensor:
        return getattr(torch.ops.aten, kernel).default(x, size, *corners(kernel), *factors)

    def backward(grad: Tensor, kernel: str, before: list[int], factors: list[float]) -> Tensor:
        return getattr(torch.ops.aten, f"{kernel}_backward").default(
            grad, grad.shape[2:], before, *corners(kernel), *factors)

    def keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.kernel, ctx.before, ctx.factors = inputs[1], inputs[0].shape, inputs[3]

    gradient = torch.library.custom_op("sot::interpolate_backward", backward, mutates_args=(), schema=(
        "(Tensor grad, str kernel, SymInt[] before, float[] factors) -> Tensor"))
    gradient.register_fake(backward)
    made = torch.library.custom_op("sot::interpolate", forward, mutates_args=(), schema=(
        "(Tensor x, str kernel, SymInt[] size, float[] factors) -> Tensor"))
    made.register_fake(forward)
    made.register_autograd(lambda ctx, grad: (gradient(grad, ctx.kernel, ctx.before, ctx.factors), None, None, None),
                           setup_context=keep)
    return made._opoverload
