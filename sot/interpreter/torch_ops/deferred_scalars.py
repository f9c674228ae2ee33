"""Deferred scalars: numbers and NumPy arrays that emitted code reads from a tensor after the graph.

The program may use them only in operations that raise for no number, because an exception would come too late. A loop
that reads a number in every iteration stays a loop, with a break at the reading.
"""
from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.bytecode.resume_origin import source
from sot.guards.assumptions import Point
from sot.support.registry import HANDLERS, POLYFILLS, is_among
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.functions import is_in_transform
from sot.values.base import ANSWERS, Const, Value
from sot.values.deferred_scalars import DeferredScalar, NeededNow, Reading
from sot.values.numbers import DynamicNumber, compare, is_dynamic
from sot.values.objects import ListValue
from sot.values.objects.identities import IdentityNumber
from sot.values.tensor import TensorValue, overrides_operations
from sot.values.text import ShownNumber, ShownTensor, TextValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

ROUNDS, LIMIT = 4, 50   # of a loop that reads numbers without a break: so many iterations, and more if they have
OPERATIONS = 200        # no more operations than this in all
LIST_LIMIT = 64         # greatest number of elements from ``tolist``
SIZE_BITS = 62          # greatest size of a varying int
FLOAT_BITS = 1000       # greatest size of an int that becomes a float, whatever its value
ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%"))
CONVERSIONS = {"int": int, "float": float}
ARRAYS = frozenset((torch.float64, torch.float32, torch.float16, torch.complex64, torch.complex128, torch.uint8,
                    torch.int8, torch.int16, torch.int32, torch.int64, torch.bool))
SPECIMENS = (0, 1, -1), (0.5, float("inf"), float("nan"))
# These store a number, show it, or read its type.
STORING = frozenset((
    print, str, repr, format, str.format, isinstance, type, getattr, setattr, object.__setattr__, object.__new__,
    object.__init__, list.append, list.insert, list.__setitem__, dict.__setitem__, dict.setdefault, dict.get, dict.pop,
    next, functools.partial, collections.OrderedDict.__setitem__, collections.deque.append,
    collections.deque.appendleft))
BUILTINS: dict[str, Any] = {f.__name__: f for f in (abs, round, int, float)}
RECKONING = frozenset(BUILTINS.values())
# They look for a key: one that says which object is meant is found without its number.
LOOKING = frozenset(
    vars(cls)[name] for cls in (dict, collections.OrderedDict, set, frozenset, list, tuple) for name in (
        "__contains__", "__getitem__", "__delitem__", "add", "discard", "remove", "index", "count", "get", "pop",
        "setdefault") if name in vars(cls))


# ---- reading ----------------------------------------------------------------------------------------------------
def here(m: Machine) -> Point:
    return source(m.frames[-1].native, m.frames[-1].last)


def can_read(m: Machine, point: Point) -> bool:
    """Whether a number read at this point may be deferred."""
    return point not in m.assumptions.read_at_once and not m.modes and m.builder.region is None and m.watch is None


def count(m: Machine, point: Point) -> None:
    """Count a reading at this point. A loop with many readings must stay a loop."""
    operations = m.builder.operations
    done, begin = m.readings.get(point, (0, operations))
    if done >= LIMIT or done >= ROUNDS and operations - begin > OPERATIONS:
        raise NeededNow(frozenset({point}))
    m.readings[point] = done + 1, begin


def begin_to_read(m: Machine, name: str, tensor: Value) -> bool:
    """Whether the graph may come before ``tensor.item()``, ``tensor.tolist()``, ``int(tensor)`` or ``float(tensor)``.
    False where the result would differ.
    """
    point = here(m)
    if not can_read(m, point) or not isinstance(tensor, TensorValue) or not can_wait(name, tensor.fake):
        return False
    count(m, point)
    return True


def read(m: Machine, name: str, tensor: TensorValue) -> Value:
    """The deferred result of reading a tensor. ``begin_to_read`` has returned true, and the tensor needs no grad."""
    point = here(m)
    method = name if name == "tolist" else "item"
    reading = Reading(ShownTensor(m, tensor, f"{{}}.{method}()"), frozenset({point}))
    fake = tensor.fake
    kind = CONVERSIONS.get(name) or (bool if fake.dtype is torch.bool else float if fake.is_floating_point() else int)
    if name == "tolist" and fake.dim():
        return elements(reading, kind, tuple(fake.shape), "")
    write = written(name, reading) if name in CONVERSIONS else (lambda e: e.value(reading))
    return DeferredScalar(kind, reading.points, write, reading=reading)


def array(m: Machine, tensor: TensorValue) -> Value | None:
    """``tensor.numpy()``. It shares the tensor's memory, and so shows later changes by the graph."""
    fake, point = tensor.fake, here(m)
    if not can_read(m, point) or not has_array(fake) or overrides_operations(tensor.pytype):
        return None
    count(m, point)
    return DeferredScalar(np.ndarray, frozenset({point}), lambda e: f"{e.value(tensor)}.numpy()")


def has_array(fake: torch.Tensor) -> bool:
    if fake.device.type != "cpu" or fake.layout is not torch.strided or is_in_transform(fake):
        return False
    return fake.dtype in ARRAYS and not (fake.requires_grad or fake.is_conj() or fake.is_neg())


def can_wait(name: str, fake: torch.Tensor) -> bool:
    if fake.dtype.is_complex or fake.is_meta or is_symbolic(fake) or is_in_transform(fake):
        return False
    if name == "tolist":
        return fake.numel() <= LIST_LIMIT
    if fake.numel() != 1 or name == "float" and fake.requires_grad:     # torch warns of this
        return False
    return name in ("item", "float") or name == "int" and not fake.is_floating_point()     # a NaN is not an int


def elements(reading: Reading, kind: type, shape: tuple[int, ...], path: str) -> Value:
    if not shape:
        return DeferredScalar(kind, reading.points, lambda e: f"{e.value(reading)}{path}")
    return ListValue([elements(reading, kind, shape[1:], f"{path}[{i}]") for i in range(shape[0])])


def written(function: str, value: Value, *more: Any) -> Callable[[Emitter], str]:
    """A writer of a call of a builtin."""
    rest = "".join(f", {part!r}" for part in more)
    return lambda e: f"{e.const(BUILTINS[function])}({e.value(value)}{rest})"


# ---- uses of deferred scalars ------------------------------------------------------------------------------------
def among(*values: Value) -> bool:
    return any(isinstance(v, DeferredScalar) for v in values)


def needed(*values: Value) -> NeededNow:
    """The exception to raise when the value of one of these numbers is needed."""
    return NeededNow(frozenset().union(*(v.points for v in values if isinstance(v, DeferredScalar))))


def called(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A call with such a number: its result, or None to leave it to other handlers."""
    if is_among(RECKONING, real):
        return reckoned(m, real, args, kwargs)
    if is_among(LOOKING, real) and all(isinstance(v, IdentityNumber) for v in args if isinstance(v, DeferredScalar)):
        return None
    is_users = isinstance(real, type) or POLYFILLS.find(real) is not None
    if is_among(STORING, real) or is_users and HANDLERS.find(real) is None:
        return None
    raise needed(*args, *kwargs.values())


def reckoned(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of one of the builtins of numbers."""
    value = args[0] if args else None
    if not isinstance(value, DeferredScalar) or value.is_array or kwargs or len(args) != (2 if real is round else 1):
        raise needed(*args, *kwargs.values())
    more: tuple = ()
    if real is round:
        digits = args[1]
        if not isinstance(digits, Const) or type(digits.real) is not int or not 0 <= digits.real <= 15:
            raise needed(*args)
        more = digits.real,
    if real is value.pytype and real in (int, float):
        return value
    if real is int and value.pytype is float or real is float and value.bits > FLOAT_BITS:
        raise needed(value)
    kind = real if real in (int, float) else int if value.pytype is bool else value.pytype
    return DeferredScalar(kind, value.points, written(real.__name__, value, *more), value.bits, value.depth + 1)


def binary(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b`` where one operand is such a number; also in place."""
    plain = symbol[:-1] if len(symbol) > 1 and symbol.endswith("=") else symbol
    if plain == "%" and a.pytype is str:
        return HANDLERS[str.__mod__](m, [a, b], {})
    if plain not in ARITHMETIC or not is_number(a) or not is_number(b):
        raise needed(a, b)
    if plain in ("/", "//", "%") and not is_divisor(m, plain, b):
        raise needed(a, b)
    is_float = plain == "/" or float in (a.pytype, b.pytype)
    sizes = bits_of(m, a, is_float), bits_of(m, b, is_float)
    if is_float and max(sizes) > FLOAT_BITS:
        raise needed(a, b)
    bits = sum(sizes) if plain == "*" else max(sizes) + 1
    later = [v for v in (a, b) if isinstance(v, DeferredScalar)]
    return DeferredScalar(float if is_float else int, frozenset().union(*(v.points for v in later)),
                       lambda e: f"{e.value(a)} {plain} {e.value(b)}", bits, 1 + max(v.depth for v in later))


def is_number(value: Value) -> bool:
    if isinstance(value, DeferredScalar):
        return not value.is_array
    return isinstance(value, Const) and value.pytype in (int, float)


def is_divisor(m: Machine, symbol: str, value: Value) -> bool:
    """Whether it is known to be nonzero."""
    if isinstance(value, DynamicNumber) and value.varies and symbol == "/":
        return bool(value.example) and bool(compare(m, "!=", value, Const(0)).real)
    return isinstance(value, Const) and value.real != 0


def bits_of(m: Machine, value: Value, is_asked: bool) -> float:
    """The greatest bit length of an int. For a varying int a guard fixes it, if ``is_asked``."""
    if value.pytype is float:
        return 0
    if isinstance(value, DeferredScalar):
        return value.bits
    if not is_dynamic(value):
        return value.constant().bit_length()
    fits = is_asked and all(compare(m, symbol, value, Const(limit)).real for symbol, limit in (
        ("<", 1 << SIZE_BITS), (">", -1 << SIZE_BITS)))
    return SIZE_BITS if fits else float("inf")


@ANSWERS.add((DeferredScalar, "unary"))
def unary(m: Machine, value: DeferredScalar, function: Any, name: str, symbol: str) -> Value:
    if symbol == "abs()":
        return reckoned(m, abs, [value], {})
    if symbol not in "+-" or value.pytype not in (int, float):
        raise value.needed()
    return DeferredScalar(value.pytype, value.points, lambda e: f"{symbol}{e.value(value)}", value.bits,
                          value.depth + 1)


# ---- text -------------------------------------------------------------------------------------------------------
def text(value: DeferredScalar, template: str, show: Callable[[Any], str], form: str) -> Value:
    """Text that shows the number: ``show`` for an example, ``template`` in emitted code. ``form`` is its format."""
    if value.is_array:
        raise value.needed()
    examples: tuple = (True, False) if value.pytype is bool else SPECIMENS[value.pytype is float]
    try:
        for example in examples:
            show(example)
    except (ValueError, OverflowError, TypeError):
        raise value.needed() from None
    if form.endswith("c"):     # for small numbers only
        raise value.needed()
    return TextValue([ShownNumber(value, template)])


def is_same(a: Value, b: Value) -> bool:
    """``a is b`` where one operand is such a number."""
    if a is b or a.pytype is not b.pytype:
        return a is b
    raise needed(a, b)
