"""Python numbers whose value is that of a 0-d tensor, for example the counter of a loop that a tensor ends.

Only operations with exactly Python's result are done in the graph. An int has 64 bits there, so it may be added to
constants and divided by them, but not multiplied. A float is a float64. Next to a tensor it is converted as a Python
number would be. Everything else is left to Python.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.values.base import ANSWERS, Const, Value
from sot.values.tensor import TensorBool, TensorNumber, TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

LIMIT = 1 << 31     # bound of the constants that may be added to an int
INTS = frozenset({"+", "-", "//", "%"})
FLOATS = frozenset({"+", "-", "*", "/"})
EXACT = frozenset({torch.float32, torch.float64, torch.int64, torch.int32})
FUNCTIONS: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge}
INPLACE: dict[str, Any] = {"+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv}
COMPARISONS = frozenset({"<", "<=", "==", "!=", ">", ">="})


def is_one(*values: Value) -> bool:
    return any(isinstance(v, TensorNumber) for v in values)


def binary(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b``, where one operand is such a number. Includes comparisons."""
    plain = symbol.removesuffix("=") if symbol in INPLACE else symbol
    if isinstance(a, TensorValue) or isinstance(b, TensorValue):
        return beside_tensor(m, symbol, a, b)
    if plain not in FUNCTIONS or bool in (a.pytype, b.pytype):
        raise unsupported(symbol)
    kind = float if float in (a.pytype, b.pytype) else int
    if not (plain in COMPARISONS or (plain in FLOATS if kind is float else plain in INTS)):
        raise unsupported(symbol)
    if not all(fits(v, kind, plain) for v in (a, b)) or plain in ("/", "//", "%") and not is_divisor(b):
        raise unsupported(symbol)
    result = torch_call(m, "call_function", FUNCTIONS[plain], [operand(m, v, kind) for v in (a, b)], {})
    assert isinstance(result, TensorValue)
    return TensorBool(result.ref) if plain in COMPARISONS else TensorNumber(result.ref, kind)


def unsupported(symbol: str) -> Break:
    return Break(Reason.UNSUPPORTED, f"`{symbol}` of a Python number that depends on a tensor")


def fits(value: Value, kind: type, symbol: str) -> bool:
    """Whether a tensor can do the computation. Two varying ints could exceed 64 bits."""
    if isinstance(value, TensorNumber):
        return True
    if not isinstance(value, Const) or value.pytype not in (int, float):
        return False
    return value.pytype is float or symbol in COMPARISONS or abs(value.real) < LIMIT


def is_divisor(value: Value) -> bool:
    return isinstance(value, Const) and value.real > 0


def operand(m: Machine, value: Value, kind: type) -> Value:
    if isinstance(value, TensorNumber):
        tensor: Value = TensorValue(value.ref)
        return tensor if value.pytype is kind else torch_call(m, "call_method", "double", [tensor], {})
    return Const(kind(value.constant()))


def beside_tensor(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``tensor <symbol> number``, or with the operands exchanged."""
    tensor, number = (a, b) if isinstance(a, TensorValue) else (b, a)
    if not isinstance(tensor, TensorValue) or not isinstance(number, TensorNumber):
        raise unsupported(symbol)
    dtype = torch.result_type(tensor.fake, number.pytype(0))
    function = FUNCTIONS.get(symbol) if symbol not in INPLACE else INPLACE[symbol]
    if function is None or dtype not in EXACT or symbol in INPLACE and (number is a or dtype is not tensor.fake.dtype):
        raise unsupported(symbol)
    converted = torch_call(m, "call_method", "to", [TensorValue(number.ref), Const(dtype)], {})
    return torch_call(m, "call_function", function, [tensor, converted] if number is b else [converted, tensor], {})


@ANSWERS.add((TensorNumber, "unary"))
def negative(m: Machine, value: TensorNumber, function: Any, name: str, symbol: str) -> Value:
    if symbol != "-" or value.pytype is bool:
        raise unsupported(symbol)
    result = torch_call(m, "call_function", operator.neg, [TensorValue(value.ref)], {})
    assert isinstance(result, TensorValue)
    return TensorNumber(result.ref, value.pytype)
