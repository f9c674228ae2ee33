"""Functions of numbers that vary from call to call: every call computes their results again.

``of_numbers`` is tried before the handlers, because a handler reads the numbers and so makes them constants.
"""
from __future__ import annotations

import builtins
import functools
import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.terms import FUNCTIONS as FUNCTIONS_OF_TERMS
from sot.interpreter.builtins import iteration
from sot.values import numbers, other_numbers
from sot.values.base import Const, Value
from sot.values.numbers import NUMBER_TYPES, applied, arithmetic, is_dynamic
from sot.values.objects import ListValue, TupleValue
from sot.values.other_numbers import OtherNumber, is_other
from sot.values.text import number_text, varies

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

OF_TWO = {math.atan2: "math.atan2", math.copysign: "math.copysign", math.hypot: "math.hypot"}
OF_ONE = {int: "int", float: "float", abs: "abs", operator.abs: "abs", round: "round", operator.neg: "neg",
          torch.sym_int: "int", torch.sym_float: "float",
          **{getattr(math, name.removeprefix("math.")): name for name in FUNCTIONS_OF_TERMS
             if name.startswith("math.") and name != "math.prod" and name not in OF_TWO.values()}}
QUESTIONS = {math.isfinite: numbers.is_finite, math.isnan: numbers.is_nan, math.isinf: numbers.is_infinite}
THEMSELVES = frozenset((operator.index, operator.pos))
EXTREMES = {min: "min", max: "max", torch.sym_min: "min", torch.sym_max: "max"}
# Those that raise nothing, whatever the text is. The others have arguments, which are read.
PADDED = frozenset((str.ljust, str.rjust, str.center, str.zfill, str.replace, str.expandtabs))
TEXT_TO_TEXT = frozenset((str.upper, str.lower, str.title, str.capitalize, str.casefold, str.swapcase, str.strip,
                          str.lstrip, str.rstrip, str.removeprefix, str.removesuffix))


def of_numbers(m: Machine, function: Any, args: list[Value]) -> Value | None:
    """The result of a function with a varying argument, or None to leave the call to other handlers."""
    if function in other_numbers.CALLED and (function not in OF_ONE or any(map(is_other, args))):
        return other_numbers.called(m, function, args)
    if any(map(is_other, args)):
        if function in other_numbers.TO_PYTHON:
            return other_numbers.called(m, function, args)
        if getattr(function, "__module__", "") != "math":
            return None
        args = [other_numbers.as_python(m, arg) for arg in args]
    if function in OF_ONE and len(args) == 1:
        return applied(m, OF_ONE[function], *args)
    if function in OF_TWO and len(args) == 2:
        return applied(m, OF_TWO[function], *args)
    if function in QUESTIONS and len(args) == 1 and is_dynamic(args[0]):
        return QUESTIONS[function](m, args[0])
    if function is round and len(args) == 2 and type(args[1].real) is int and not is_dynamic(args[1]):
        return applied(m, "round", *args)
    if function in THEMSELVES and len(args) == 1 and args[0].pytype is int:
        return args[0]
    if function in EXTREMES:
        return extreme(m, EXTREMES[function], args if len(args) > 1 else iteration.known_items(m, args[0]) or [])
    if function in (str, repr, format) and varies(args[0]) and all(
            isinstance(a, Const) and a.pytype is str for a in args[1:]):
        if function is repr:
            return number_text(args, repr, "repr({})".format)
        spec = args[1].real if function is format and len(args) > 1 else ""
        if spec.endswith("c"):      # a character does not exist for every number
            return None
        return number_text(args[:1], lambda n: format(n, spec), lambda n: f"format({n}, {spec!r})")
    if function in TEXT_TO_TEXT and varies(args[0]):
        return number_text(args, function, lambda *codes: f"str.{function.__name__}({', '.join(codes)})")
    if function in PADDED and varies(args[0]) and all(isinstance(a, Const) for a in args):
        rest = [a.real for a in args[1:]]
        return number_text(args[:1], lambda text: function(text, *rest),
                           lambda code: f"str.{function.__name__}({', '.join([code, *map(repr, rest)])})")
    if function is divmod and len(args) == 2:
        parts = arithmetic(m, "//", *args), arithmetic(m, "%", *args)
        return None if None in parts else TupleValue(list(parts))
    if function is pow and len(args) == 2:
        return arithmetic(m, "**", *args)
    if function in (math.prod, torch.Size.numel) and len(args) == 1:
        return product(m, iteration.known_items(m, args[0]) or [])
    return None


FUNCTIONS: frozenset[Any] = frozenset((
    *OF_ONE, *OF_TWO, *QUESTIONS, *THEMSELVES, *EXTREMES, *TEXT_TO_TEXT, *PADDED, *other_numbers.FUNCTIONS,
    str, repr, format, divmod, pow, math.prod, torch.Size.numel))


def may_vary(value: Value) -> bool:
    return varies(value) or isinstance(value, (TupleValue, ListValue, OtherNumber))


def extreme(m: Machine, name: str, items: list[Value]) -> Value | None:
    """The least or the greatest of several numbers. If their types differ, a guard fixes the type of the result."""
    kinds = {v.pytype for v in items}
    if not all(isinstance(v, Const) for v in items):
        return None     # such a number is read after the graph
    if kinds == {int, float} and any(map(is_dynamic, items)):
        symbol = "<" if name == "min" else ">"
        return functools.reduce(lambda best, v: v if numbers.compare(m, symbol, v, best).real else best, items)
    if kinds not in ({int}, {float}):
        return None
    choose = getattr(builtins, name)
    return folded(items, lambda a, b: applied(m, name, a, b), choose)


def product(m: Machine, items: list[Value]) -> Value | None:
    return folded([Const(1), *items], lambda a, b: arithmetic(m, "*", a, b), operator.mul)


def folded(items: list[Value], varying: Any, constant: Any) -> Value | None:
    """``functools.reduce`` over numbers of which some vary: one function for varying numbers, one for constants."""
    if not any(map(is_dynamic, items)) or not all(isinstance(v, Const) and v.pytype in NUMBER_TYPES for v in items):
        return None
    result = items[0]
    for item in items[1:]:
        either = is_dynamic(result) or is_dynamic(item)
        made = varying(result, item) if either else Const(constant(result.real, item.real))
        if made is None:
            return None
        result = made
    return result
