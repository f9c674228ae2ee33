"""The Triton expression of each operation of the kernel IR: one row each.

``{0}`` is the first argument. Functions without a prefix are those of ``device.py``: libdevice's, because Triton's own
are less exact than eager's.
"""
from __future__ import annotations

from collections.abc import Callable

from sot.graph.kernels.ops import FLOATS

TYPES = {"f64": "tl.float64", "f32": "tl.float32", "f16": "tl.float16", "bf16": "tl.bfloat16", "i64": "tl.int64",
         "i32": "tl.int32", "i16": "tl.int16", "i8": "tl.int8", "u8": "tl.uint8", "b1": "tl.int1"}

# A float becomes a small integer by way of another, as in eager's kernels: a GPU would give the nearest integer that
# fits, 0 for -1.5 as a uint8, where eager gives 255.
THROUGH = {"u8": "i64", "i8": "i32", "i16": "i32"}

Row = str | Callable[[str], str]     # a template, or a function from the type of the arguments to a template

DEVICE_FUNCTIONS = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
                    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma",
                    "rsqrt", "trunc", "floor", "ceil")
FURTHER_FUNCTIONS = ("rint", "signbit", "pow", "atan2", "copysign", "nextafter", "hypot", "fmod")


def _extreme(name: str) -> Callable[[str], str]:
    nan = ", propagate_nan=tl.PropagateNan.ALL"
    return lambda dtype: f"tl.{name}({{0}}, {{1}}{nan if dtype in FLOATS else ''})"


ROWS: dict[str, Row] = {
    **{name: f"{name}({{0}})" for name in DEVICE_FUNCTIONS},
    "round": "rint({0})",
    "sqrt": lambda dtype: "tl.sqrt_rn({0})" if dtype == "f32" else "tl.sqrt({0})",
    "neg": "-{0}", "abs": "tl.abs({0})",
    "not": lambda dtype: {"b1": "{0} == 0", "u8": "({0} ^ 255).to(tl.uint8)"}.get(dtype, "~{0}"),
    "isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")', "signbit": "signbit({0}) != 0",
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}",
    "maximum": _extreme("maximum"), "minimum": _extreme("minimum"),
    "div": lambda dtype: "tl.div_rn({0}, {1})" if dtype == "f32" else "{0} / {1}",
    "pow": "pow({0}, {1})", "atan2": "atan2({0}, {1})", "copysign": "copysign({0}, {1})",
    "nextafter": "nextafter({0}, {1})", "hypot": "hypot({0}, {1})",
    "idiv": "{0} // {1}", "rem": lambda dtype: "fmod({0}, {1})" if dtype in FLOATS else "{0} % {1}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "shl": "{0} << {1}", "shr": "{0} >> {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
    "ge": "{0} >= {1}", "where": "tl.where({0}, {1}, {2})",
    "uniform": "tl.rand({0}, {1})",
}

# Over the columns of a block: the result has one column.
REDUCE = {"sum": "sum_columns", "prod": "prod_columns", "max": "max_columns", "min": "min_columns"}
# Over the rows of a block: the result has one row.
SUM_ROWS = "sum_rows"
# Along the columns of a block.
SCAN = {"cumsum": "cumsum_columns", "cumprod": "cumprod_columns"}
# Of two blocks, element by element.
COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


def written(op: str, dtype: str, *args: str) -> str:
    """The expression for an operation on arguments of a type."""
    row = ROWS[op]
    return (row if isinstance(row, str) else row(dtype)).format(*args)


def converted(value: str, source: str, dtype: str) -> str:
    """The expression for a value of one type in another."""
    if dtype == "b1":
        return f"{value} != 0"
    if dtype == "bf16":
        return f"to_bf16({value})"
    steps = [THROUGH[dtype], dtype] if source in FLOATS and dtype in THROUGH else [dtype]
    return value + "".join(f".to({TYPES[step]})" for step in steps)


def filled(shape: str, value: str, dtype: str) -> str:
    """The expression for a block of one value. The interpreter of Triton 3.7 makes no constant of bfloat16."""
    if dtype == "bf16":
        return converted(f"tl.full({shape}, {value}, tl.float32)", "f32", dtype)
    return f"tl.full({shape}, {value}, {TYPES[dtype]})"


def literal(value: float | int | bool) -> str:
    """A number in Triton's notation."""
    text = repr(value)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text
