"""Results of special methods, which Python checks, and the conversions int(), float(), complex() and index()."""
from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import call_slot, foldable, is_native, run_native, slot, take
from sot.interpreter.numpy_ops import numpy_functions
from sot.interpreter.objects import attributes
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import special_methods as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.arrays import ArrayValue
from sot.values.base import Const, Opaque, Value
from sot.values.constants import is_library
from sot.values.numbers import is_dynamic, within
from sot.values.objects.identities import IdentityNumber
from sot.values.tensor import TensorValue
from sot.values.text import TextValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

# What a special method must return. Python takes an instance of a subclass, too, and may convert it.
RETURNED = {"__len__": int, "__hash__": int, "__index__": int, "__int__": int, "__float__": float, "__bool__": bool,
            "__complex__": complex, "__str__": str, "__repr__": str, "__format__": str}


def by_method(m: Machine, function: Any, value: Value, name: str, *args: Value) -> Value:
    """``function`` of an object, by a special method that is no slot of C. The result is checked as in Python."""
    if is_trusted(slot(m, value, name)):
        return call_slot(m, value, name, [*args])  # type: ignore[return-value]
    return enter(m, polyfill.by_method, value, name, *args, before=[Const(function), Const(name)])


def is_trusted(method: Any) -> bool:
    """Whether the result of a special method need not be checked: that of C code, or of a library."""
    return is_native(method) or is_library(getattr(method, "__module__", None))


def enter(m: Machine, how: Any, value: Value, name: str, *args: Value, before: Any = ()) -> Value:
    """Push a frame of a polyfill that calls a special method. It is given the name of the class, for error messages."""
    return m.enter(how, [*before, Const(value.pytype.__name__), attributes.special_method(m, value, name), *args])


@handles(polyfill.answer)
def answer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, name, kind = (v.constant() for v in args[:3])
    result, wanted = args[3], RETURNED[name]
    if result.pytype is wanted and is_unchanged(m, name, result):
        return result
    if isinstance(result, Const):
        real = result.real
    elif issubclass(result.pytype, wanted):
        raise Break(Reason.UNSUPPORTED, f"{name} that returns {result}")
    else:       # Python names its type
        real = result.real if isinstance(result, Opaque) else type(result.pytype.__name__, (), {})()
    return run_native(m, polyfill.answer, function, name, kind, real)


def is_unchanged(m: Machine, name: str, result: Any) -> bool:
    """Whether Python takes a result of the right type as it is: a length within its range, a hash other than -1."""
    if name == "__len__":
        return is_dynamic(result) and (result.is_size or within(m, result, 0, sys.maxsize))
    return name != "__hash__" or isinstance(result, IdentityNumber)


# ---- numbers
WANTED = {int: "argument must be a string, a bytes-like object or a real number",
          float: "argument must be a string or a real number", complex: "first argument must be a string or a number"}


def _number(kind: type, *names: str) -> Any:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        values = [*args, *kwargs.values()]
        if all(isinstance(v, Const) and all(foldable(v, n) for n in names) for v in values):
            return run_native(m, kind, *(v.real for v in args), **{k: v.real for k, v in kwargs.items()})
        if len(args) != 1 or kwargs:
            raise Break(Reason.UNSUPPORTED, f"{kind.__name__}() of these arguments")
        if isinstance(args[0], ArrayValue) and kind is not complex:
            return numpy_functions.item(m, args[0], kind)
        return torch_call(m, "call_function", kind, args, {}) if isinstance(args[0], TensorValue) else (
            number_of_object(m, kind, args[0], names))
    return handler


def number_of_object(m: Machine, kind: type, value: Value, names: tuple[str, ...]) -> Value:
    if isinstance(value, Opaque):
        raise value.refusal(str(value))
    for name in names:
        raw = slot(m, value, name)
        if raw is not None and not is_native(raw):
            return enter(m, polyfill.number, value, name, before=[Const(kind), Const(name)])
    if isinstance(value, TextValue):
        raise Break(Reason.TENSOR_VALUE, f"{kind.__name__}() of text that contains it")
    if kind is int and slot(m, value, "__trunc__") is not None:
        raise Break(Reason.UNSUPPORTED, f"int() of {value} by its __trunc__")
    return m.throw(TypeError, f"{kind.__name__}() {WANTED[kind]}, not {value.pytype.__name__!r}")


HANDLERS[int] = _number(int, "__int__", "__index__")
HANDLERS[float] = _number(float, "__float__", "__index__")
HANDLERS[complex] = _number(complex, "__complex__", "__float__", "__index__")


@handles(operator.index)
def index(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = take("index", args, kwargs, "a", required=1)[0]
    if isinstance(value, Const) and foldable(value, "__index__"):
        return run_native(m, operator.index, value.real)
    if isinstance(value, TensorValue):
        return torch_call(m, "call_function", operator.index, [value], {})
    raw = slot(m, value, "__index__")
    if raw is None:
        if isinstance(value, Opaque):       # in an error message a type of C has its module, too
            return run_native(m, operator.index, value.real)
        m.throw(TypeError, f"{value.pytype.__name__!r} object cannot be interpreted as an integer")
    return by_method(m, operator.index, value, "__index__")
