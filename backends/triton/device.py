"""The functions that generated kernels call: libdevice's, and reductions with torch's rules for NaN.

Triton's interpreter has no libdevice; NumPy takes its place (``interpreted.py``).
"""
from __future__ import annotations

import importlib
from typing import Any

import triton
import triton.language as tl
from triton import knobs

from sot.backends.triton.source.expressions import DEVICE_FUNCTIONS, FURTHER_FUNCTIONS

INTERPRETED = knobs.runtime.interpret
SOURCE = "sot.backends.triton.interpreted" if INTERPRETED else "triton.language.extra.libdevice"
_source: Any = importlib.import_module(SOURCE)
# Names of this module: exp, log, ...; Triton looks up libdevice's functions by their module.
globals().update({name: getattr(_source, name) for name in (*DEVICE_FUNCTIONS, *FURTHER_FUNCTIONS)})


@triton.jit
def _product(a, b):
    return a * b


if INTERPRETED:
    prod_columns = _source.prod_columns     # the interpreter would multiply one by one
else:
    @triton.jit
    def prod_columns(block):
        return tl.reduce(block, 1, _product)[:, None]


if INTERPRETED:
    to_bf16 = _source.to_bf16               # the interpreter rounds wrongly
else:
    @triton.jit
    def to_bf16(block):
        return block.to(tl.float32).to(tl.bfloat16)


if INTERPRETED:
    factor = _source.factor                 # the interpreter multiplies the bits of bf16
else:
    @triton.jit
    def factor(block):
        """A factor of a product of blocks, of type bf16."""
        return block


if INTERPRETED:
    require = _source.require
else:
    @triton.jit
    def require(condition):
        """In a debug build, stop if a position is out of range."""
        tl.device_assert(condition, "index out of range")


@triton.jit
def cumsum_columns(block):
    return tl.cumsum(block, 1)


@triton.jit
def cumprod_columns(block):
    return tl.cumprod(block, 1)


@triton.jit
def sum_columns(block):
    return tl.sum(block, 1)[:, None]


@triton.jit
def sum_rows(block):
    return tl.sum(block, 0)[None, :]


@triton.jit
def max_columns(block):
    """The largest of each row; a NaN is larger than any number."""
    if block.dtype.is_floating():
        found = tl.max(tl.where(block != block, float("-inf"), block), 1)
        return tl.where(tl.max((block != block).to(tl.int32), 1) > 0, float("nan"), found)[:, None]
    else:
        return tl.max(block, 1)[:, None]


@triton.jit
def min_columns(block):
    if block.dtype.is_floating():
        found = tl.min(tl.where(block != block, float("inf"), block), 1)
        return tl.where(tl.max((block != block).to(tl.int32), 1) > 0, float("nan"), found)[:, None]
    else:
        return tl.min(block, 1)[:, None]

