"""libdevice for Triton's interpreter: each function is evaluated in NumPy, by its meaning in the kernel IR.

This depends on the interpreter's representation of a block: ``tensor.handle.data`` is its array.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from sot.graph.kernels.ops import OPS


def _by_reference(op: str) -> Callable[..., Any]:
    reference = OPS[op].reference

    def function(*args: Any) -> Any:
        first = next(a for a in args if isinstance(a, tl.tensor))
        arrays = [a.handle.data if isinstance(a, tl.tensor) else np.asarray(a, first.handle.data.dtype) for a in args]
        with np.errstate(all="ignore"):
            return _block(reference(*arrays), first.dtype)
    return function


def _block(array: Any, dtype: Any) -> Any:
    array = np.asarray(array)
    kind = tl.block_type(dtype, list(array.shape)) if array.shape else dtype
    return tl.tensor(TensorHandle(array, dtype), kind)


def signbit(block: Any) -> Any:
    return _block(np.signbit(block.handle.data).astype(np.int32), tl.int32)


def prod_columns(block: Any) -> Any:
    return _block(np.prod(block.handle.data, axis=1, keepdims=True, dtype=block.handle.data.dtype), block.dtype)


def require(condition: Any) -> None:
    if not np.all(condition.handle.data):
        raise IndexError("index out of range")


def factor(block: Any) -> Any:
    return block.to(tl.float32)


def to_bf16(block: Any) -> Any:
    bits = torch.from_numpy(np.asarray(block.handle.data, np.float32)).bfloat16().view(torch.int16).numpy()
    return _block(bits.view(np.uint16), tl.bfloat16)


rint, fmod = _by_reference("round"), _by_reference("rem")
(acos, acosh, asin, asinh, atan, atan2, atanh, ceil, copysign, cos, cosh, erf, erfc, erfinv, exp, exp2, expm1, floor,
 hypot, lgamma, log, log10, log1p, log2, nextafter, pow, rsqrt, sin, sinh, tan, tanh, trunc) = map(_by_reference, (
     "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "erfc",
     "erfinv", "exp", "exp2", "expm1", "floor", "hypot", "lgamma", "log", "log10", "log1p", "log2", "nextafter", "pow",
     "rsqrt", "sin", "sinh", "tan", "tanh", "trunc"))
