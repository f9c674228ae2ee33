"""torch's rule for norms, without the error of torch 2.11, which keeps an axis of size 1 that is counted from the end.

The rule gives fake tensors their shapes, and is what compilers make of a norm. Several tables of torch hold the
function, so the function itself gets new code.
"""
from __future__ import annotations

import inspect
from types import FunctionType

from torch._refs.linalg import vector_norm

COUNTS_FROM_THE_START = "canonicalize_dims"    # what torch's rule calls where it has no error
ORIGINAL = "_vector_norm_with_axes_from_the_start"


def counting_from_the_start(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    axes = dim if dim is None else utils.canonicalize_dims(x.ndim, dim)     # type: ignore[name-defined] # noqa: F821
    return _vector_norm_with_axes_from_the_start(x, ord, axes, keepdim, dtype=dtype)  # type: ignore[name-defined] # noqa: F821


def has_error() -> bool:
    """Read from the rule's code: to run it would import Dynamo, which takes over a second."""
    return COUNTS_FROM_THE_START not in inspect.unwrap(vector_norm).__code__.co_names


def fix() -> None:
    """Give the rule new code, which calls the old one. Does nothing if the rule has no error."""
    if not has_error():
        return
    rule = inspect.unwrap(vector_norm)
    original = FunctionType(rule.__code__, rule.__globals__, rule.__name__, rule.__defaults__)
    original.__kwdefaults__ = rule.__kwdefaults__
    rule.__globals__[ORIGINAL] = original
    rule.__code__ = counting_from_the_start.__code__
