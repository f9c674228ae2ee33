"""Operators that compute each element from the elements at the same position: one function per row.

A rule gets the values of its operands, in the type in which torch computes (``kind`` is torch's promotion rule). It
returns the value of the result, which is then rounded to the result's type.
"""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from sot.graph.kernels.ir import Builder
from sot.graph.kernels.ops import FLOATS, NAMES, compute_type
from sot.graph.kernels.program import View
from sot.graph.kernels.sizes import Real, Size
from sot.graph.lowering.driver import Lowering, lowers
from sot.torch_compat.graphs import PROMOTION, elementwise_dtypes

Emit = Callable[..., str]
FLOAT, PLAIN, BOOL = PROMOTION.INT_TO_FLOAT, PROMOTION.DEFAULT, PROMOTION.ALWAYS_BOOL
BOTH = (0, 1)       # operands
HALF = ("f16", "bf16")
# Integer arithmetic on bools is done in this type.
OF_BOOL = "i32"


def pointwise(*names: str, kind: Any = PLAIN, bits: bool = False, rounded: Sequence[int] = (),
              ) -> Callable[[Emit], Emit]:
    """Register ``rule(b, *operands, **attributes)``. ``bits``: the operation is defined on bools without
    conversion. ``rounded``: see ``elementwise``.
    """
    def register(rule: Emit) -> Emit:
        signature = inspect.signature(rule).parameters.values()
        operands = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in signature) - 1
        attributes = [p.name for p in signature if p.kind is p.KEYWORD_ONLY]

        def lowering(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
            values = list(given.values())[:operands]
            named = {name: given[name] for name in attributes if given.get(name) is not None}
            return elementwise(low, node, rule, values, named, kind, bits, rounded)
        lowers(*names)(lowering)
        return rule
    return register


def elementwise(low: Lowering, node: fx.Node, rule: Emit, operands: list, named: dict, kind: Any, bits: bool,
                rounded: Sequence[int] = ()) -> Any:
    """The kernel of a rule, or None if the operator must be called.

    Arguments:
        rounded: the operands, by index, that PyTorch rounds to the type of the operation before it computes. That
            matters to a number, and to a tensor of another type, in half precision.
    """
    if any(isinstance(v, complex) for v in (*operands, *named.values())):
        return None
    dtype = computed_in(operands, kind)
    if dtype not in NAMES:
        return None
    typed = NAMES[dtype] if dtype is not torch.bool or bits or kind is BOOL else OF_BOOL
    kept = NAMES.get(computed_in(operands, PROMOTION.NO_OPMATH), "")
    half = [kept if kept in HALF and i in rounded else "" for i in range(len(operands))]
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: rule(
        b, *(low.value(b, v, axes, typed, to) for v, to in zip(operands, half, strict=True)), **named))


def computed_in(operands: list, kind: Any) -> torch.dtype:
    bare = [torch.empty([1] * len(v.shape), dtype=v.dtype, device="meta") if isinstance(v, View) else
            1 if isinstance(v, Size) else 1.0 if isinstance(v, Real) else v for v in operands]
    return elementwise_dtypes(*bare, type_promotion_kind=kind)[0]


def type_of(b: Builder, value: str) -> str:
    return b.by_name[value].dtype


def like(b: Builder, number: Any, value: str) -> str:
    """A constant in the type of a value."""
    return b.const(number, type_of(b, value))


def is_float(b: Builder, value: str) -> bool:
    return type_of(b, value) in FLOATS


# ---- one operation of the IR ----------------------------------------------------------------------------
def _unary(op: str) -> Emit:
    return lambda b, x: b.emit(op, x)


def _binary(op: str) -> Emit:
    return lambda b, x, y: b.emit(op, x, y)


for _name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin",
              "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma"):
    pointwise(_name, kind=FLOAT)(_unary(_name))
for _name in ("maximum", "minimum"):
    pointwise(_name)(_binary(_name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    pointwise(_name, kind=BOOL, rounded=BOTH)(_binary(_name))
for _name in ("atan2", "copysign"):
    pointwise(_name, kind=FLOAT, rounded=BOTH)(_binary(_name))
for _name, _op in {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_left_shift": "shl",
                   "bitwise_right_shift": "shr", "__and__": "and", "__or__": "or", "__xor__": "xor"}.items():
    pointwise(_name, bits=True)(_binary(_op))
pointwise("hypot")(_binary("hypot"))
pointwise("neg", "_neg_view")(_unary("neg"))
pointwise("bitwise_not", bits=True)(_unary("not"))


@lowers("nextafter")
def nextafter(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """It is called in half precision: a neighbour in the type of the computation is another number."""
    if compute_type(name := NAMES[node.meta["val"].dtype]) != name:
        return None
    return elementwise(low, node, _binary("nextafter"), list(given.values()), {}, PLAIN, False)


# ---- compositions ---------------------------------------------------------------------------------------
@pointwise("add")
def add(b: Builder, x: str, y: str, *, alpha: Any = 1) -> str:
    return b.emit("add", x, b.emit("mul", y, like(b, alpha, y)))


@pointwise("sub")
def sub(b: Builder, x: str, y: str, *, alpha: Any = 1) -> str:
    return b.emit("sub", x, b.emit("mul", y, like(b, alpha, y)))


@pointwise("rsub")
def rsub(b: Builder, x: str, y: str, *, alpha: Any = 1) -> str:
    return b.emit("sub", y, b.emit("mul", x, like(b, alpha, x)))


@pointwise("mul")
def mul(b: Builder, x: str, y: str) -> str:
    return b.emit("mul", x, y)


@pointwise("reciprocal", kind=FLOAT)
def reciprocal(b: Builder, x: str) -> str:
    return b.emit("div", like(b, 1, x), x)


@pointwise("div.Tensor", "div.Scalar", "true_divide", kind=FLOAT)
def div(b: Builder, x: str, y: str) -> str:
    return b.emit("div", x, y)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    rounding = given.pop("rounding_mode")
    rule, kind = {None: (div, FLOAT), "trunc": (div_trunc, PLAIN), "floor": (floor_divide, PLAIN)}[rounding]
    return elementwise(low, node, rule, list(given.values()), {}, kind, False, (0,) if rounding == "floor" else ())


def div_trunc(b: Builder, x: str, y: str) -> str:
    return b.emit("trunc", b.emit("div", x, y)) if is_float(b, x) else b.emit("idiv", x, y)


@pointwise("floor_divide", rounded=(0,))
def floor_divide(b: Builder, x: str, y: str) -> str:
    """As Python computes it. The comments on ``div_floor_floating`` in ATen explain why it is not ``floor(x / y)``."""
    rest, zero = b.emit("rem", x, y), like(b, 0, x)
    opposed = b.emit("and", b.emit("ne", rest, zero), b.emit("ne", b.emit("lt", rest, zero), b.emit("lt", y, zero)))
    if not is_float(b, x):
        quotient = b.emit("idiv", x, y)
        return b.emit("where", opposed, b.emit("sub", quotient, like(b, 1, x)), quotient)
    exact = b.emit("div", b.emit("sub", x, rest), y)
    exact = b.emit("where", opposed, b.emit("sub", exact, like(b, 1, x)), exact)
    low = b.emit("floor", exact)
    over = b.emit("gt", b.emit("sub", exact, low), like(b, 0.5, x))
    low = b.emit("where", over, b.emit("add", low, like(b, 1, x)), low)
    plain = b.emit("div", x, y)
    low = b.emit("where", b.emit("eq", exact, zero), b.emit("copysign", zero, plain), low)
    return b.emit("where", b.emit("eq", y, zero), plain, low)


@pointwise("fmod", rounded=BOTH)
def fmod(b: Builder, x: str, y: str) -> str:
    return b.emit("rem", x, y)


@pointwise("remainder", rounded=BOTH)
def remainder(b: Builder, x: str, y: str) -> str:
    rest, zero = b.emit("rem", x, y), like(b, 0, x)
    opposed = b.emit("and", b.emit("ne", rest, zero), b.emit("ne", b.emit("lt", rest, zero), b.emit("lt", y, zero)))
    return b.emit("where", opposed, b.emit("add", rest, y), rest)


@lowers("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Powers of integers are called, except for a small constant exponent."""
    base, exponent = given.values()
    small = isinstance(exponent, int | float) and exponent in (0, 1, 2, 3)
    if not computed_in([base, exponent], PLAIN).is_floating_point and not small:
        return None

    def rule(b: Builder, x: str, y: str) -> str:
        known = b.by_name[y].value if b.by_name[y].op == "const" else None
        if known in (0.5, -0.5) and is_float(b, x):
            return b.emit("sqrt" if known > 0 else "rsqrt", x)
        if known in (1, 2, 3):
            return {1: x, 2: (two := b.emit("mul", x, x)), 3: b.emit("mul", two, x)}[int(known)]
        if known == 0:
            return like(b, 1, x)
        return b.emit("pow", x, y)
    return elementwise(low, node, rule, [base, exponent], {}, PLAIN, False, BOTH)


@pointwise("abs")
def absolute(b: Builder, x: str) -> str:
    return x if type_of(b, x) == "u8" else b.emit("abs", x)


@pointwise("sigmoid", "special_expit", kind=FLOAT)
def sigmoid(b: Builder, x: str) -> str:
    return b.emit("div", like(b, 1, x), b.emit("add", like(b, 1, x), b.emit("exp", b.emit("neg", x))))


@pointwise("relu")
def relu(b: Builder, x: str) -> str:
    return b.emit("maximum", x, like(b, 0, x))


@pointwise("square")
def square(b: Builder, x: str) -> str:
    return b.emit("mul", x, x)


def _round(op: str) -> Emit:
    return lambda b, x: b.emit(op, x) if is_float(b, x) else x


for _name in ("floor", "ceil", "trunc"):
    pointwise(_name)(_round(_name))
pointwise("round.default")(_round("round"))


@pointwise("frac")
def frac(b: Builder, x: str) -> str:
    return b.emit("sub", x, b.emit("trunc", x))


@pointwise("sign", "sgn")
def sign(b: Builder, x: str) -> str:
    kind, zero = type_of(b, x), like(b, 0, x)
    above = b.cast(b.emit("gt", x, zero), kind)
    return above if kind == "u8" else b.emit("sub", above, b.cast(b.emit("lt", x, zero), kind))


@pointwise("signbit", kind=BOOL)
def signbit(b: Builder, x: str) -> str:
    return b.emit("signbit", x) if is_float(b, x) else b.emit("lt", x, like(b, 0, x))


def _test(op: str) -> Emit:
    return lambda b, x: b.emit(op, x) if is_float(b, x) else b.const(False, "b1")


for _name in ("isnan", "isinf"):
    pointwise(_name, kind=BOOL)(_test(_name))


@pointwise("isfinite", kind=BOOL)
def isfinite(b: Builder, x: str) -> str:
    bad = b.emit("or", _test("isnan")(b, x), _test("isinf")(b, x))
    return b.emit("not", bad)


@pointwise("isposinf", kind=BOOL)
def isposinf(b: Builder, x: str) -> str:
    return b.emit("eq", x, like(b, math.inf, x)) if is_float(b, x) else b.const(False, "b1")


@pointwise("isneginf", kind=BOOL)
def isneginf(b: Builder, x: str) -> str:
    return b.emit("eq", x, like(b, -math.inf, x)) if is_float(b, x) else b.const(False, "b1")


def truth(b: Builder, x: str) -> str:
    return x if type_of(b, x) == "b1" else b.emit("ne", x, like(b, 0, x))


@pointwise("logical_not", kind=BOOL)
def logical_not(b: Builder, x: str) -> str:
    return b.emit("not", truth(b, x))


def _logical(op: str) -> Emit:
    return lambda b, x, y: b.emit(op, truth(b, x), truth(b, y))


for _name in ("and", "or", "xor"):
    pointwise(f"logical_{_name}", kind=BOOL)(_logical(_name))


@pointwise("fmax")
def fmax(b: Builder, x: str, y: str) -> str:
    return _ignoring_nan(b, x, y, "maximum")


@pointwise("fmin")
def fmin(b: Builder, x: str, y: str) -> str:
    return _ignoring_nan(b, x, y, "minimum")


def _ignoring_nan(b: Builder, x: str, y: str, op: str) -> str:
    if not is_float(b, x):
        return b.emit(op, x, y)
    either = b.emit("where", b.emit("isnan", y), x, b.emit(op, x, y))
    return b.emit("where", b.emit("isnan", x), y, either)


@lowers("clamp", "clamp.Tensor")
def clamp(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """The lower bound comes first: if the bounds cross, the upper one wins."""
    bounds = [given["min"], given["max"]]

    def rule(b: Builder, x: str, *ends: str) -> str:
        rest = list(ends)
        for bound, op in zip(bounds, ("maximum", "minimum"), strict=True):
            x = x if bound is None else b.emit(op, x, rest.pop(0))
        return x
    return elementwise(low, node, rule, [given["self"], *(e for e in bounds if e is not None)], {}, PLAIN, False)


@pointwise("clamp_min")
def clamp_min(b: Builder, x: str, y: str) -> str:
    return b.emit("maximum", x, y)


@pointwise("clamp_max")
def clamp_max(b: Builder, x: str, y: str) -> str:
    return b.emit("minimum", x, y)


@lowers("where")
def where(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    if "self" not in given or "other" not in given:
        return None
    kind = NAMES[node.meta["val"].dtype]
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: b.emit(
        "where", truth(b, low.read(b, given["condition"], axes)),
        low.value(b, given["self"], axes, kind), low.value(b, given["other"], axes, kind)))


@lowers("_to_copy", "clone", "convert_element_type", "contiguous", "_conj_physical", "lift_fresh_copy", "real")
def copy(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source = next(iter(given.values()))
    if node.meta["val"].device != source.device:
        return None
    return low.kernel(node, node.meta["val"], (), lambda b, axes, _: converted(b, low.read(b, source, axes), node))


def converted(b: Builder, value: str, node: fx.Node) -> str:
    to = NAMES[node.meta["val"].dtype]
    if to == "b1":
        return truth(b, b.cast(value, compute_type(type_of(b, value))))
    return b.cast(value, to)
