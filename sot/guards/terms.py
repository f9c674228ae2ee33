"""Terms: how a number is computed from values that existed before the frame ran.

A term is an origin, a constant, or ``(symbol, operand, ...)``. It compiles to Python (``term_code``), prints itself in
the user's spelling (``term_text``) and can be evaluated (``term_value``). Each varying number has a term, and a guard
compares two terms.
"""
from __future__ import annotations

import cmath
import ctypes
import math
import operator
from collections.abc import Callable, Iterator
from math import copysign, prod
from typing import Any

import numpy as np

from sot.guards.origin import Emit, Inputs, Origin, immutable

Term = Any


def _both(a: Any, b: Any) -> bool:
    return bool(a and b)


def _either(a: Any, b: Any) -> bool:
    return bool(a or b)


def _float32(value: float) -> float:
    """The float32 number nearest to a float."""
    return ctypes.c_float(value).value


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without warnings and exceptions of arithmetic: its result is NaN then."""
    def computed(*values: Any) -> Any:
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise", under="ignore"):
                return function(*values)
        except (ArithmeticError, ValueError):
            return math.nan
    return computed


def kind_of(value: Any) -> type | None:
    """The class of a number; None if it is not finite."""
    return type(value) if cmath.isfinite(value) else None


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge}
# Infix symbols, with their precedence.
INFIX: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "or": (_either, 1), "and": (_both, 2), **{s: (f, 4) for s, f in COMPARISONS.items()},
    "|": (operator.or_, 5), "^": (operator.xor, 6), "&": (operator.and_, 7), "<<": (operator.lshift, 8),
    ">>": (operator.rshift, 8), "+": (operator.add, 9), "-": (operator.sub, 9), "*": (operator.mul, 10),
    "/": (operator.truediv, 10), "//": (operator.floordiv, 10), "%": (operator.mod, 10), "**": (operator.pow, 12)}
OF_BITS = frozenset(("|", "^", "&", "<<", ">>"))
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "not": operator.not_, "abs": abs, "min": min, "max": max, "int": int, "float": float,
    "round": round, "float32": _float32, **{f"math.{name}": getattr(math, name) for name in (
        "floor", "ceil", "trunc", "sqrt", "exp", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "atan",
        "fabs", "erf", "erfc", "degrees", "radians", "asinh", "expm1", "atan2", "copysign", "hypot")},
    "math.prod": lambda *values: prod(values), "sign": lambda value: copysign(1.0, value)}
# Arithmetic of NumPy and of complex numbers, with numbers of Python.
QUIET: dict[str, Callable[..., Any]] = {
    "quiet neg": _quiet(operator.neg), **{f"quiet {f.__name__}": _quiet(f) for f in (int, float, complex, abs)},
    **{f"quiet {symbol}": _quiet(INFIX[symbol][0]) for symbol in (
        "+", "-", "*", "/", "//", "%", "**")},
    **{f"numpy.{name}": _quiet(getattr(np, name)) for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
        "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative", "absolute", "square",
        "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arctan", "arctan2",
        "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "rint", "sign", "minimum", "maximum", "hypot", "deg2rad",
        "rad2deg", "degrees", "radians", "reciprocal", "fabs", "clip", "round")}}
FUNCTIONS |= {**QUIET, "kind_of": kind_of, "repr": repr}
INFINITE = float("inf")
# The last operand is compared with this, so that Python does not raise. Other functions never raise.
DOMAINS: dict[str, list[tuple[str, float]]] = {
    **dict.fromkeys(("/", "//", "%"), [("!=", 0)]), **dict.fromkeys(("<<", ">>"), [("<", 0), (">", 62)]),
    "math.sqrt": [("<", 0)], **dict.fromkeys(("math.exp", "math.expm1"), [(">", 700)]),
    **dict.fromkeys(("math.log", "math.log2", "math.log10"), [("<=", 0)]), "math.log1p": [("<=", -1)],
    **dict.fromkeys(("int", "round", "math.floor", "math.ceil", "math.trunc", "math.sin", "math.cos", "math.tan"),
                    [("<", INFINITE), (">", -INFINITE)])}
OF_SYMBOLS = frozenset({*INFIX, "neg", "not", "abs", "min", "max", "int", "float", "round", "math.floor", "math.ceil",
                        "math.trunc", "math.sqrt", "math.prod"}) - OF_BITS      # torch computes these for sizes, too
WHOLE = OF_SYMBOLS - {"/", "float", "math.sqrt"}        # their results are integers if their operands are
TO_INTEGERS = frozenset(("int", "round", "math.floor", "math.ceil", "math.trunc"))


@immutable
class Computed(Origin):
    """A number that is computed before the graph, because torch could only make a constant of it. ``key`` is that of
    ``exact``.
    """

    term: Term
    key: Any

    def expr(self, emit: Emit) -> str:
        return term_code(self.term, emit)

    def read(self, inputs: Inputs) -> object:
        return term_value(self.term, inputs)

    def __str__(self) -> str:
        return term_text(self.term)


def exact(term: Term) -> Any:
    """A key that tells 1 from 1.0 and True, and 0.0 from -0.0. The ``repr`` of a whole term may be long: its origins
    may hold tensors.
    """
    if isinstance(term, tuple):
        return tuple(map(exact, term))
    return term if isinstance(term, Origin) else (type(term), repr(term))


def is_of_symbols(term: Term) -> bool:
    """Whether torch can compute a term from symbols as well as from numbers."""
    if not isinstance(term, tuple):
        return True
    if term[0] not in OF_SYMBOLS or is_rounded(term) or term[0] == "**" and type(term[2]) is not int:
        return False
    return all(is_rounded(part) or is_of_symbols(part) for part in term[1:])


def is_rounded(term: Term) -> bool:
    """Whether it is an integer made of floats (``int(n * 0.3)``, ``round(math.sqrt(n))``). It gets a symbol of its own:
    torch would rearrange the arithmetic of floats, and what it rounds may be another integer then.
    """
    return isinstance(term, tuple) and term[0] in TO_INTEGERS and len(term) == 2 and (
        term[0] == "round" or not is_quotient(term[1]))     # torch.export writes no round()


def has_rounded(term: Term) -> bool:
    if isinstance(term, Computed):
        return has_rounded(term.term)
    return is_rounded(term) or isinstance(term, tuple) and any(map(has_rounded, term[1:]))


def is_quotient(term: Term) -> bool:
    """Whether it is made of integers, or a quotient of these."""
    return all(map(is_whole, term[1:] if isinstance(term, tuple) and term[0] == "/" else (term,)))


def is_whole(term: Term) -> bool:
    """Whether it is computed with integers only, if its origins are integers."""
    if not isinstance(term, tuple):
        return type(term) is int or isinstance(term, Origin)
    if term[0] in TO_INTEGERS and len(term) == 2:
        return True
    powers = term[0] != "**" or type(term[2]) is int and term[2] >= 0
    return term[0] in WHOLE and powers and all(map(is_whole, term[1:]))


def function_of(symbol: str) -> Callable[..., Any]:
    return INFIX[symbol][0] if symbol in INFIX else FUNCTIONS[symbol]


def leaves(term: Term) -> Iterator[Origin]:
    """The origins that a term is computed from."""
    if isinstance(term, Computed):
        yield from leaves(term.term)
    elif isinstance(term, Origin):
        yield term
    elif isinstance(term, tuple):
        for part in term[1:]:
            yield from leaves(part)


def depth(term: Term) -> int:
    return 1 + max(map(depth, term[1:])) if isinstance(term, tuple) else 0


def term_code(term: Term, emit: Emit) -> str:
    if isinstance(term, Origin):
        return emit.ref(term)
    if isinstance(term, tuple):
        parts = [term_code(part, emit) for part in term[1:]]
        if term[0] in INFIX:
            return f"({parts[0]} {term[0]} {parts[1]})"
        return f"{emit.const(FUNCTIONS[term[0]])}({', '.join(parts)})"
    finite = isinstance(term, int) or (type(term) is float and abs(term) < float("inf"))
    return f"({term!r})" if finite else emit.const(term)


def term_text(term: Term, outside: int = 0) -> str:
    """The term as a user would write it. ``outside`` is the precedence of the surrounding operator."""
    if not isinstance(term, tuple):
        return str(term)
    symbol, *parts = term
    symbol = symbol.removeprefix("quiet ")
    if symbol == "neg":
        return f"-{term_text(parts[0], 11)}"
    if symbol not in INFIX:
        return f"{symbol}({', '.join(map(term_text, parts))})"
    if symbol == "+" and type(parts[1]) is int and parts[1] < 0:
        symbol, parts = "-", [parts[0], -parts[1]]
    binds = INFIX[symbol][1]
    text = f"{term_text(parts[0], binds)} {symbol} {term_text(parts[1], binds + 1)}"
    return f"({text})" if binds < outside else text


def computed_before(term: Term, examples: dict[Origin, Any]) -> Computed:
    """The origin of a number that emitted code computes for the graph. Its value is added to the examples."""
    origin = Computed(term, exact(term))
    if origin not in examples:
        examples[origin] = evaluate(term, examples.__getitem__)
    return origin


def term_value(term: Term, inputs: Inputs) -> Any:
    """The value of a term for the arguments of a call."""
    return evaluate(term, lambda origin: origin.read(inputs))


def evaluate(term: Term, read: Callable[[Origin], Any]) -> Any:
    if isinstance(term, Origin):
        return read(term)
    if isinstance(term, tuple):
        return function_of(term[0])(*(evaluate(part, read) for part in term[1:]))
    return term
