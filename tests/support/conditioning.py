"""Comparing computations in float32 with the same one in float64, as exactly as the computation itself allows.

A result may differ from the exact one by what a change of the inputs in their last bits makes of it, and by what
rounding on the way makes of it: both are measured. Two float32 results of different kernels are each compared with the
exact one.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

ROUNDINGS = 16          # how many of them may add up
SAMPLES = 3
Outcome = Callable[[tuple], Any]


def in_float64(args: Any) -> Any:
    """The same tensors in float64; other dtypes than float32 as they are."""
    return in_dtype(args, torch.float64)


def in_dtype(args: Any, dtype: torch.dtype) -> Any:
    def convert(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float64):
            return value
        return value.detach().to(dtype).requires_grad_(value.requires_grad)
    return tree_map(convert, args)


def perturbed(args: Any, seed: int) -> Any:
    """Float64 arguments that differ from the given ones by what float32 cannot tell apart."""
    generator = torch.Generator().manual_seed(seed)

    def change(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        signs = torch.randint(2, value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        with torch.no_grad():
            changed = value * (1 + signs * torch.finfo(torch.float32).eps / 2)
        return changed.requires_grad_(value.requires_grad)
    return tree_map(change, args)


def check_against_float64(outcome: Outcome, args: tuple, results: list[Any]) -> None:
    """Each of some results of ``outcome(args)`` is as near to the exact one as rounding allows.

    Arguments:
        outcome: computes tensors from arguments, in whichever precision these are.
        results: what several implementations made of ``args`` in float32.
    """
    exact = in_float64(args)
    wanted = tensors(outcome(exact))
    spreads = [torch.zeros(right.shape, dtype=torch.float64) for right in wanted]
    for seed in range(SAMPLES):
        near = in_dtype(perturbed(exact, seed), torch.float32)
        rounded, right = tensors(outcome(near)), tensors(outcome(in_float64(near)))
        for n, (spread, is_, should, was) in enumerate(zip(spreads, rounded, right, wanted, strict=True)):
            for difference in (is_.double() - should.double(), should.double() - was.double()):
                spreads[n] = spread = torch.maximum(spread, difference.abs().nan_to_num(0.0, 0.0, 0.0))
    for result in map(tensors, results):
        for got, right, spread in zip(result, wanted, spreads, strict=True):
            check_tensor(got, right, spread)


def check_tensor(got: torch.Tensor, right: torch.Tensor, spread: torch.Tensor) -> None:
    assert got.shape == right.shape
    if not got.is_floating_point():
        assert torch.equal(got, right)
        return
    got, right = got.detach().double(), right.detach().double()
    # An element may meet rounding errors that another one showed: sums are ordered differently.
    spread = torch.maximum(spread, spread.mean()) if spread.numel() else spread
    rounding = torch.finfo(torch.float32).eps * right.abs().nan_to_num(0.0, 0.0, 0.0)
    allowed = ROUNDINGS * (spread + rounding) + torch.finfo(torch.float32).tiny
    error = (got - right).abs()
    same = (got == right) | (got.isnan() & right.isnan()) | (error <= allowed)
    assert same.all(), (f"{int((~same).sum())} of {same.numel()} elements are wrong, "
                        f"by {(error / allowed).nan_to_num(0.0).max():.1f} times what is allowed")


def tensors(value: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]
