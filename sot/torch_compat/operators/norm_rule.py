"""torch's rule for norms, without the error of torch 2.11, which keeps an axis of size 1 that is counted from the end.

The rule gives fake tensors their shapes, and is what compilers make of a norm. Several tables of torch hold the
function, so the function itself gets new code.
"""
from __future__ import annotations

import inspect
from types import FunctionType

import torch
from torch._refs.linalg import vector_norm

ORIGINAL = "_vector_norm_with_axes_from_the_start"


def counting_from_the_start(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    axes = dim if dim is None or isinstance(dim, int) else [d % max(x.ndim, 1) for d in dim]
    return _vector_norm_with_axes_from_the_start(x, ord, axes, keepdim, dtype=dtype)  # type: ignore[name-defined] # noqa: F821


def has_error() -> bool:
    return vector_norm(torch.empty(1, 1, device="meta"), 2, [-2]).dim() != 1


def fix() -> None:
    """Give the rule new code, which calls the old one. Does nothing if the rule has no error."""
    if not has_error():
        return
    rule = inspect.unwrap(vector_norm)
    original = FunctionType(rule.__code__, rule.__globals__, rule.__name__, rule.__defaults__)
    original.__kwdefaults__ = rule.__kwdefaults__
    rule.__globals__[ORIGINAL] = original
    rule.__code__ = counting_from_the_start.__code__
