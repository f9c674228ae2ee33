"""The operations of the kernel IR: one record each, with its type rule and its evaluation in NumPy.

Values have one of the types in ``DTYPES``. Operands of arithmetic have equal types, and a change of type is a
``cast``. Half precision is only stored and cast: lowering computes in f32 and rounds after every operator, as PyTorch
does.
"""
from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sot.graph.kernels import philox

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b1": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = frozenset(("f64", "f32", "f16", "bf16"))
WHOLE = frozenset(DTYPES) - FLOATS
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.float32, "i64": np.int64,
         "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8, "b1": np.bool_}
BYTES = {name: dtype.itemsize for name, dtype in DTYPES.items()}


def compute_type(dtype: str) -> str:
    """The type in which values of this type are computed."""
    return "f32" if dtype in ("f16", "bf16") else dtype


@dataclasses.dataclass(frozen=True)
class Op:
    """``result`` is the type rule: ``same`` as the last argument, or a type."""

    name: str
    arity: int
    reference: Callable[..., Any]
    result: str = "same"
    takes: frozenset[str] = frozenset(DTYPES)


OPS: dict[str, Op] = {}


def define(name: str, arity: int, reference: Callable[..., Any], result: str = "same",
           takes: frozenset[str] = frozenset(DTYPES)) -> None:
    if name in OPS:
        raise ValueError(f"operation {name!r} is defined already")
    OPS[name] = Op(name, arity, reference, result, takes)


def by_torch(fn: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A special function that NumPy lacks."""
    return lambda *args: fn(*(torch.from_numpy(np.array(a)) for a in args)).numpy()


def truncated(a: Any, b: Any) -> Any:
    """Integer division towards zero, as in hardware. Division by zero gives an arbitrary value."""
    safe = np.where(b == 0, 1, b)
    quotient = a // safe
    up = (quotient * safe != a) & ((np.asarray(a) < 0) != (safe < 0))
    return (quotient + up).astype(np.asarray(a).dtype)


def remainder(a: Any, b: Any) -> Any:
    """With the sign of the first argument."""
    safe = b if np.asarray(b).dtype.kind == "f" else np.where(b == 0, 1, b)
    return np.fmod(a, safe).astype(np.asarray(a).dtype)


COMPUTED = FLOATS - {"f16", "bf16"}
UNARY: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "rsqrt": lambda a: (1 / np.sqrt(a)).astype(a.dtype), "erf": by_torch(torch.erf),
    "erfc": by_torch(torch.erfc), "erfinv": by_torch(torch.erfinv), "lgamma": by_torch(torch.lgamma),
}
for _name, _fn in UNARY.items():
    define(_name, 1, _fn, takes=COMPUTED)
define("neg", 1, np.negative)
define("abs", 1, np.abs)
define("not", 1, np.invert, takes=WHOLE)
define("isnan", 1, np.isnan, "b1", COMPUTED)
define("isinf", 1, np.isinf, "b1", COMPUTED)
define("signbit", 1, np.signbit, "b1", COMPUTED)

for _name, _fn in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
                   "minimum": np.minimum}.items():
    define(_name, 2, _fn)
for _name, _fn in {"div": np.divide, "pow": np.power, "atan2": np.arctan2, "copysign": np.copysign,
                   "nextafter": np.nextafter, "hypot": np.hypot}.items():
    define(_name, 2, _fn, takes=COMPUTED)
define("idiv", 2, truncated, takes=WHOLE)
define("rem", 2, remainder)
for _name, _fn in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift,
                   "shr": np.right_shift}.items():
    define(_name, 2, _fn, takes=WHOLE)
for _name, _fn in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                   "ge": np.greater_equal}.items():
    define(_name, 2, _fn, "b1")
define("where", 3, np.where)
define("uniform", 2, philox.uniform, "f32", frozenset(("i64",)))     # of a seed and a position

# Over the only reduced axis, in order: the value at each point is computed from the points up to it.
SCANS: dict[str, Callable[..., Any]] = {"cumsum": np.cumsum, "cumprod": np.cumprod}
REDUCTIONS: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


def lowest(dtype: str) -> float | int:
    """The initial value of a maximum."""
    return -float("inf") if dtype in FLOATS else 0 if dtype == "b1" else torch.iinfo(DTYPES[dtype]).min


def highest(dtype: str) -> float | int:
    return float("inf") if dtype in FLOATS else 1 if dtype == "b1" else torch.iinfo(DTYPES[dtype]).max


def neutral(op: str, dtype: str) -> float | int:
    """The value that does not change a reduction."""
    return {"sum": 0, "prod": 1}[op] if op in ("sum", "prod") else (lowest if op == "max" else highest)(dtype)


def wrapped(value: int, dtype: str) -> int:
    """The number in an integer type, as C converts it: -1 is the largest number of an unsigned type."""
    about = torch.iinfo(DTYPES[dtype])
    return (value - about.min) % (1 << about.bits) + about.min


def nothing(dtype: str) -> Any:
    """Zero, as a constant of that type."""
    return False if dtype == "b1" else 0.0 if dtype in FLOATS else 0


def widens(narrow: str, wide: str) -> bool:
    """Whether the second type contains every value of the first."""
    floats = ["f16", "f32", "f64"]
    if narrow == "bf16":
        return wide in ("f32", "f64")
    if narrow in floats:
        return wide in floats[floats.index(narrow):]
    signed = ["b1", "i8", "i16", "i32", "i64"]
    if narrow in signed and wide in signed:
        return signed.index(narrow) <= signed.index(wide)
    return narrow == "u8" and wide in ("i16", "i32", "i64")


# ---- evaluation ------------------------------------------------------------------------------------------
def rounded(array: Any, dtype: str) -> Any:
    """The array in that type. bf16 is kept in float32, rounded."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if dtype == "bf16":
            return torch.from_numpy(np.array(array, np.float32)).bfloat16().float().numpy()
        if dtype in WHOLE and dtype != "b1" and np.asarray(array).dtype.kind == "f":
            return torch.from_numpy(np.array(array)).to(DTYPES[dtype]).numpy()
        return np.asarray(array).astype(NUMPY[dtype])


def apply(name: str, *args: Any) -> Any:
    with np.errstate(all="ignore"):
        return OPS[name].reference(*args)
