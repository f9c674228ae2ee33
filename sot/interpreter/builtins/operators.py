"""Operators, comparisons and truth by Python's protocol: which special methods are called, and in what order.

Constants are computed at once, tensors go into the graph, and builtin containers have handlers for their slots. If one
of the candidates is a special method in Python, a polyfill calls them one after the other.
"""
from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from sot.interpreter.builtins import special_methods
from sot.interpreter.builtins.common import (
    EXACT,
    NOT_IMPLEMENTED,
    SEQUENCES,
    asked_identical,
    call_slot,
    equal,
    fold,
    foldable,
    has_own_index,
    identical,
    is_native,
    is_none,
    overridden,
    run_native,
    slot,
    take,
    unsupported,
)
from sot.interpreter.builtins.containers import hosted
from sot.interpreter.builtins.numbers import of_tensors
from sot.interpreter.numpy_ops import numpy_arrays, numpy_functions
from sot.interpreter.objects import attributes
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.torch_ops import deferred_scalars
from sot.interpreter.torch_ops.constructors import specimens
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import operators as polyfill
from sot.polyfills import special_methods as truths
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values import other_numbers
from sot.values.base import ANSWERS, ENTERED, Const, Opaque, Value, boolean, has_only_identity
from sot.values.callables import BoundMethod
from sot.values.constants import is_constant
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber
from sot.values.objects import DictValue, ListValue, ObjectValue, SetValue, TupleValue
from sot.values.objects.hosted import HostedValue
from sot.values.objects.identities import IdentityNumber
from sot.values.tensor import TensorValue, is_tensor
from sot.values.text import joined, made_later, percent_of_numbers
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
          "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"}
BINARY = {symbol: (getattr(operator, f"__{name}__"), f"__{name}__", f"__r{name}__") for symbol, name in _NAMES.items()}
INPLACE = {f"{symbol}=": (getattr(operator, f"__i{name}__"), f"__i{name}__") for symbol, name in _NAMES.items()}
COMPARE = {"<": (operator.lt, "__lt__", "__gt__"), "<=": (operator.le, "__le__", "__ge__"),
           "==": (operator.eq, "__eq__", "__eq__"), "!=": (operator.ne, "__ne__", "__ne__"),
           ">": (operator.gt, "__gt__", "__lt__"), ">=": (operator.ge, "__ge__", "__le__")}
UNARY = {"-": (operator.neg, "__neg__"), "~": (operator.invert, "__invert__"), "+": (operator.pos, "__pos__")}
NUMBERS = (int, float, complex, np.number)
TENSORS = (TensorValue, specimens.SpecimenTensor)


# ---- binary -------------------------------------------------------------------------------------------------
def binary(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b``; an in-place symbol ends in ``=``."""
    inplace = symbol in INPLACE
    plain = symbol[:-1] if inplace else symbol
    function, name, reflected = BINARY[plain]
    if deferred_scalars.among(a, b) and not is_tensor(a) and not is_tensor(b):
        return deferred_scalars.binary(m, symbol, a, b)
    if numpy_arrays.among(a, b):
        return numpy_functions.operate(m, function, a, b, inplace=INPLACE[symbol][0] if inplace else None)
    if of_tensors.is_one(a, b):
        return of_tensors.binary(m, symbol, a, b)
    if (varying := other_numbers.arithmetic(m, plain, a, b)) is not None:
        return varying
    if plain == "%" and a.pytype is str and isinstance(a, Const) and (shown := percent_of_numbers(m, a, b)) is not None:
        return shown
    if plain == "+" and made_later(a, b):
        return joined([a, b])
    if isinstance(a, Const) and isinstance(b, Const) and foldable(a, name) and foldable(b, reflected):
        return run_native(m, INPLACE[symbol][0] if inplace else function, a.real, b.real)
    if isinstance(a, Const) and isinstance(b, HostedValue):
        return hosted.after_constant(m, function, a, b)
    if plain == "%" and a.pytype is str and isinstance(b, TensorValue):
        return HANDLERS[str.__mod__](m, [a, b], {})
    if isinstance(a, TENSORS) or isinstance(b, TENSORS):
        in_graph = INPLACE[symbol][0] if inplace and isinstance(a, TENSORS) else function
        if (result := tensor_operator(m, in_graph, a, b)) is not None:
            return result
    sequence, count = (a, b) if issubclass(a.pytype, SEQUENCES) else (b, a)
    if symbol == "*" and issubclass(sequence.pytype, SEQUENCES) and has_own_index(m, count):
        methods = [c for c in ordered(m, a, b, name, reflected) if c[1] is count]
        bound = TupleValue([TupleValue([bound_method(m, *c), c[2]]) for c in methods])
        return m.enter(polyfill.repetition, [bound, sequence, count])
    candidates = ordered(m, a, b, name, reflected)
    if inplace:
        candidates = [*candidate(m, a, INPLACE[symbol][1], b), *candidates]
    result = first_answer(m, candidates, symbol, a, b)
    if result is not None:
        return result
    refuse_opaque(a, b)
    return m.throw(TypeError, unsupported(symbol, a, b))


def tensor_operator(m: Machine, function: Any, a: Value, b: Value) -> Value | None:
    """An operator between a tensor and a tensor or number; None if the other operand takes part in the decision."""
    if specimens.among(a, b):
        return specimens.called(m, function, [a, b], {})
    other = b if isinstance(a, TensorValue) else a
    if isinstance(other, (TensorValue, DynamicNumber, DeferredScalar)) or (
            isinstance(other, Const) and issubclass(other.pytype, NUMBERS)):
        return torch_call(m, "call_function", function, [a, b], {})
    if isinstance(other, ObjectValue) and other.is_duck:
        names = [n for f, *n in (*BINARY.values(), *COMPARE.values()) if f is function]
        if isinstance(a, TensorValue) or not names or slot(m, other, names[0][0]) is None:
            return torch_call(m, "call_function", function, [a, b], {})
    if isinstance(other, Opaque):
        raise other.refusal(f"{other} as an operand")
    if isinstance(other, Const) and function in (operator.eq, operator.ne):
        return torch_call(m, "call_function", function, [a, b], {})
    if isinstance(other, (Const, TupleValue, ListValue)) and other.pytype in EXACT:
        raise Break(Reason.OPERATION_FAILED, unsupported(function.__name__, a, b))
    return None


Candidate = tuple[Any, Value, Value]       # (raw method, the object that it belongs to, the argument)


def candidate(m: Machine, obj: Value, name: str, other: Value) -> list[Candidate]:
    """The special method as a candidate, unless it is known to return NotImplemented."""
    if isinstance(obj, TensorValue):
        if isinstance(other, ObjectValue) and other.is_duck:
            raise Break(Reason.UNSUPPORTED, f"{name} of a tensor and {other}, which has __torch_function__,")
        return []                          # its operators do not support objects of other classes
    raw = slot(m, obj, name)
    if raw is None:
        return []
    if is_native(raw) and HANDLERS.find(raw) is None:
        if isinstance(obj, Const):
            return []                      # a number, and the other operand is not
        what = f"{name} of {obj}"
        raise obj.refusal(what, Reason.OPAQUE_CALL) if isinstance(obj, Opaque) else Break(Reason.OPAQUE_CALL, what)
    return [(raw, obj, other)]


def ordered(m: Machine, a: Value, b: Value, name: str, reflected: str) -> list[Candidate]:
    """The candidates of a binary operator in the order in which Python calls them."""
    left, right = candidate(m, a, name, b), []
    if a.pytype is not b.pytype or (a.pytype in SEQUENCES and name == "__mul__"):
        right = candidate(m, b, reflected, a)
    if not left or not right:
        return left + right
    subclass = issubclass(b.pytype, a.pytype) and right[0][0] is not slot(m, a, reflected)
    concatenation = is_native(left[0][0]) and issubclass(a.pytype, SEQUENCES) and name in ("__add__", "__mul__")
    return right + left if subclass or concatenation else left + right


def first_answer(m: Machine, candidates: list[Candidate], symbol: str, a: Value, b: Value) -> Value | None:
    """The first result that is not NotImplemented, or None; a polyfill if one of the methods is Python code."""
    for i, (raw, obj, other) in enumerate(candidates):
        handler = HANDLERS.find(raw)
        if handler is None:
            bound = [TupleValue([bound_method(m, *c), c[2]]) for c in candidates[i:]]
            message = Const(unsupported(symbol, a, b))
            return m.enter(polyfill.binary_answer, [TupleValue(bound), message])
        result = handler(m, [obj, other], {})
        if result is ENTERED or result.pytype is not type(NotImplemented):
            return result
    return None


def bound_method(m: Machine, raw: Any, obj: Value, other: Value) -> Value:
    name = raw.__name__ if hasattr(raw, "__name__") else ""
    _, owner = lookup(None, obj.pytype, name)
    found = owner.__dict__.get(name)
    if found is raw:
        return attributes.bind(m, obj, obj.pytype, raw, owner, name)
    return BoundMethod(wrap_known(m, raw), obj, name)


def refuse_opaque(*values: Value) -> None:
    for value in values:
        if isinstance(value, Opaque):
            raise value.refusal(str(value))


# always return NotImplemented
ORDERINGS = tuple(vars(object)[name] for name in ("__lt__", "__le__", "__gt__", "__ge__"))


# ---- comparison -----------------------------------------------------------------------------------------------
def compare(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b``"""
    function, name, reflected = COMPARE[symbol]
    a, b = (v.as_constant() if isinstance(v, BoundMethod) else v for v in (a, b))
    if isinstance(a, IdentityNumber) and isinstance(b, IdentityNumber) and symbol in ("==", "!="):
        return boolean(a.is_same(b) is (symbol == "=="))
    if deferred_scalars.among(a, b) and not is_tensor(a) and not is_tensor(b):
        return deferred_scalars.compared(m, symbol, a, b)
    if numpy_arrays.among(a, b):
        return numpy_functions.operate(m, function, a, b)
    if of_tensors.is_one(a, b):
        return of_tensors.binary(m, symbol, a, b)
    if (known := other_numbers.compared(m, symbol, a, b)) is not None:
        return known
    if isinstance(a, Const) and isinstance(b, Const) and foldable(a, name) and foldable(b, reflected):
        return run_native(m, function, a.real, b.real)
    if isinstance(a, Const) and isinstance(b, HostedValue) and not b.is_stream:
        return hosted.after_constant(m, function, a, b)
    if isinstance(a, TENSORS) or isinstance(b, TENSORS):
        if (result := tensor_operator(m, function, a, b)) is not None:
            return result
    left, right = comparing(m, a, name, b), comparing(m, b, reflected, a)
    subclass = left and right and a.pytype is not b.pytype and issubclass(b.pytype, a.pytype)
    candidates = right + left if subclass else left + right
    if any(HANDLERS.find(c[0]) is None or c[0] is object.__ne__ for c in candidates):
        bound = TupleValue([TupleValue([bound_method(m, *c), c[2]]) for c in candidates])
        if symbol in ("==", "!="):
            return m.enter(polyfill.equality_answer, [bound, boolean(identical(m, a, b) is (symbol == "=="))])
        return m.enter(polyfill.binary_answer, [bound, Const(not_supported(symbol, a, b))])
    result = first_answer(m, candidates, symbol, a, b)
    if result is not None:
        return result
    refuse_opaque(*(v for v in (a, b) if symbol not in ("==", "!=") or not has_only_identity(v.pytype)))
    if symbol in ("==", "!="):
        return boolean(identical(m, a, b) is (symbol == "=="))
    return m.throw(TypeError, not_supported(symbol, a, b))


def not_supported(symbol: str, a: Value, b: Value) -> str:
    return (f"{symbol!r} not supported between instances of {a.pytype.__name__!r} and {b.pytype.__name__!r}")


def comparing(m: Machine, obj: Value, name: str, other: Value) -> list[Candidate]:
    """A comparison method as a candidate. That of ``object`` is decided here."""
    raw = slot(m, obj, name)
    if raw in ORDERINGS or raw is object.__eq__:
        return []
    if raw is object.__ne__ and slot(m, obj, "__eq__") is object.__eq__:
        return []
    return candidate(m, obj, name, other)


@handles(object.__eq__)
def object_eq(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, b = take("__eq__", args, kwargs, "self", "other", required=2)
    return boolean(True) if identical(m, a, b) else NOT_IMPLEMENTED


@handles(object.__ne__)
def object_ne(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, b = take("__ne__", args, kwargs, "self", "other", required=2)
    method = attributes.special_method(m, a, "__eq__")
    return m.enter(polyfill.opposite, [method, b])


@handles(*ORDERINGS)
def object_order(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NOT_IMPLEMENTED


@handles(types.MethodType.__eq__, types.BuiltinMethodType.__eq__, types.MethodWrapperType.__eq__)
def method_eq(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, b = take("__eq__", args, kwargs, "self", "other", required=2)
    if not isinstance(a, BoundMethod) or not isinstance(b, BoundMethod):
        return NOT_IMPLEMENTED
    return boolean(identical(m, a.self_, b.self_) and identical(m, a.function, b.function))


@handles(types.MethodType.__ne__, types.BuiltinMethodType.__ne__, types.MethodWrapperType.__ne__)
def method_ne(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = method_eq(m, args, kwargs)
    return NOT_IMPLEMENTED if result is NOT_IMPLEMENTED else boolean(not result.real)


def equality(m: Machine, a: Value, b: Value, wanted: bool) -> Value:
    """== or != of two containers of one family: at once if it is known, else element by element."""
    left, right = a.items_list(m), b.items_list(m)
    if left and right and len(left) == len(right) and (
            pair := deferred_scalars.decisive(m, left, right, equal)):
        return compare(m, "==" if wanted else "!=", *pair)
    same = equal_unless_same(m, a, b)
    if same is not None:
        return boolean(same is wanted)
    return m.enter(polyfill.equal_sequences if wanted else polyfill.different_sequences, [a, b])


def equal_unless_same(m: Machine, a: Value, b: Value) -> bool | None:
    """``equal``, also for classes that override == and call the builtin method."""
    if a is b or not isinstance(a, Const) and identical(m, a, b) and is_constant(a.real):
        return True
    left, right = a.items_list(m), b.items_list(m)
    if left is None or right is None:
        return None
    if len(left) != len(right):
        return False
    known: bool | None = True
    for x, y in zip(left, right, strict=True):
        same = equal(m, x, y)
        if same is False and known:
            return False
        known = known if same else None
    return known


# ---- unary ------------------------------------------------------------------------------------------------------
def unary(m: Machine, symbol: str, a: Value) -> Value:
    """``-a``, ``~a`` and ``+a``"""
    function, name = UNARY[symbol]
    return apply_unary(m, function, name, a, symbol)


def apply_unary(m: Machine, function: Any, name: str, a: Value, symbol: str) -> Value:
    if symbol == "-" and (varying := other_numbers.negated(m, a)) is not None:
        return varying
    if isinstance(a, Const) and foldable(a, name):
        return run_native(m, function, a.real)
    return ANSWERS.of(type(a), "unary")(m, a, function, name, symbol)


@ANSWERS.add((Value, "unary"))
def unary_by_method(m: Machine, a: Value, function: Any, name: str, symbol: str) -> Value:
    result = call_slot(m, a, name, [])
    if result is not None:
        return result
    operation = symbol if symbol.endswith("()") else f"unary {symbol}"
    return m.throw(TypeError, f"bad operand type for {operation}: {a.pytype.__name__!r}")


@ANSWERS.add((TensorValue, "unary"))
def unary_of_tensor(m: Machine, a: TensorValue, function: Any, name: str, symbol: str) -> Value:
    return torch_call(m, "call_function", function, [a], {})


# ---- truth ------------------------------------------------------------------------------------------------------
def truth(m: Machine, value: Value) -> bool | Any:
    """``bool(value)``; ENTERED if a frame was pushed, whose result is a real bool."""
    kind = value.pytype
    if kind in EXACT or not isinstance(value, (ListValue, TupleValue, DictValue, SetValue)):
        known = value.truth(m)
        if known is not None:
            return known
    elif not overridden(m, value, "__bool__") and not overridden(m, value, "__len__"):
        return bool(value.items_list(m))
    refuse_opaque(value)
    if isinstance(value, Const) and foldable(value, "__bool__") and foldable(value, "__len__"):
        return bool(value.real)
    for name, check in (("__bool__", truths.truth), ("__len__", truths.is_nonempty)):
        if slot(m, value, name) is not None:
            return special_methods.enter(m, check, value, name)
    return True


@handles(operator.is_)
def is_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(asked_identical(m, *take("is_", args, kwargs, "a", "b", required=2)))


@handles(operator.is_not)
def is_not(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(not asked_identical(m, *take("is_not", args, kwargs, "a", "b", required=2)))


# ---- the functions of the operator module -------------------------------------------------------------------------
def _register() -> None:
    """Register operator.add and the others, each as its operator."""
    for symbol, (function, _, _) in BINARY.items():
        HANDLERS[function] = _two(binary, symbol, function.__name__)
    for symbol, (function, _) in INPLACE.items():
        HANDLERS[function] = _two(binary, symbol, function.__name__)
    for symbol, (function, _, _) in COMPARE.items():
        HANDLERS[function] = _two(compare, symbol, function.__name__)
    for symbol, (function, _) in UNARY.items():
        HANDLERS[function] = _one(symbol, function.__name__)
    HANDLERS[operator.inv] = HANDLERS[operator.invert]
    HANDLERS[operator.concat] = _two(binary, "+", "concat")
    HANDLERS[operator.iconcat] = _two(binary, "+=", "iconcat")


def _two(apply: Any, symbol: str, name: str) -> Any:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, b = take(name, args, kwargs, "a", "b", required=2)
        return apply(m, symbol, a, b)
    return handler


def _one(symbol: str, name: str) -> Any:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return unary(m, symbol, take(name, args, kwargs, "a", required=1)[0])
    return handler


_register()


@handles(abs, operator.abs)
def abs_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return apply_unary(m, operator.abs, "__abs__", take("abs", args, kwargs, "x", required=1)[0], "abs()")


@handles(pow)
def pow_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    base, exp, mod = take("pow", args, kwargs, "base", "exp", "mod", required=2)
    if mod is None:
        return binary(m, "**", base, exp)
    return fold(m, pow, [base, exp, mod]) or _needs(m, "pow", base)


@handles(divmod)
def divmod_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, b = take("divmod", args, kwargs, "a", "b", required=2)
    if isinstance(a, Const) and isinstance(b, Const) and foldable(a, "__divmod__") and foldable(b, "__rdivmod__"):
        return run_native(m, divmod, a.real, b.real)
    if numpy_arrays.among(a, b):
        return numpy_functions.operate(m, divmod, a, b)
    if isinstance(a, TensorValue) or isinstance(b, TensorValue):
        result = tensor_operator(m, divmod, a, b)
        if result is not None:
            return result
    candidates = ordered(m, a, b, "__divmod__", "__rdivmod__")
    result = first_answer(m, candidates, "divmod()", a, b)
    return m.throw(TypeError, unsupported("divmod()", a, b)) if result is None else result


@handles(round)
def round_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    number, digits = take("round", args, kwargs, "number", "ndigits", required=1)
    given = [number] if is_none(digits) else [number, digits]
    if isinstance(number, Const) and foldable(number, "__round__"):
        result = fold(m, round, given)
        if result is not None:
            return result
    if isinstance(number, TensorValue):
        return torch_call(m, "call_function", round, given, {})
    result = call_slot(m, number, "__round__", given[1:])
    return _needs(m, "round", number) if result is None else result


def _needs(m: Machine, name: str, value: Value) -> Any:
    refuse_opaque(value)
    raise Break(Reason.OPERATION_FAILED, f"{name}() of {value}")
