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
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.support.registry import HANDLERS, POLYFILLS, is_among
from sot.torch_compat.functions import is_in_transform
from sot.values.base import ANSWERS, Const, Value, boolean
from sot.values.deferred_scalars import SIZE_BITS, DeferredScalar, NeededNow, Reading
from sot.values.numbers import DynamicNumber, compare, is_dynamic
from sot.values.objects import ListValue
from sot.values.objects.identities import IdentityNumber
from sot.values.tensor import TensorValue, has_own_code
from sot.values.text import ShownNumber, ShownTensor, TextValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

ROUNDS, LIMIT = 4, 50   # of a loop that reads numbers without a break: so many iterations, and more if they have
OPERATIONS = 200        # no more operations than this in all
LIST_LIMIT = 64         # greatest number of elements from ``tolist``

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
# Their handlers make a number of the graph of it.
SEEDING = torch.manual_seed, torch.Generator.manual_seed, torch.cuda.manual_seed_all
BUILTINS: dict[str, Any] = {f.__name__: f for f in (abs, round, int, float, complex)}
RECKONING = frozenset((abs, round, int, float))
EXTREMES = {min: "min", max: "max", torch.sym_min: "min", torch.sym_max: "max"}
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
    own = bool if fake.dtype is torch.bool else float if fake.is_floating_point() else int
    kind = CONVERSIONS.get(name, own)
    if name == "tolist" and fake.dim():
        return elements(reading, kind, tuple(fake.shape), ())
    write = written(name, reading) if name in CONVERSIONS else (lambda e: e.value(reading))
    return DeferredScalar(kind, reading.points, write, reading=reading,
                          number=in_graph(reading, kind) if kind is own else None)


def in_graph(reading: Reading, kind: type, index: tuple[int, ...] = ()) -> Callable[[Machine], Any]:
    """A function that makes the graph's number for a reading."""
    def number(m: Machine) -> Any:
        if not reading.shown.is_unchanged:
            raise NeededNow(reading.points)
        return graph_numbers.read(m, reading.shown.tensor.ref, kind, index, reading.points)
    return number


def array(m: Machine, tensor: TensorValue) -> Value | None:
    """``tensor.numpy()``. It shares the tensor's memory, and so shows later changes by the graph."""
    fake, point = tensor.fake, here(m)
    if not can_read(m, point) or not has_array(fake) or has_own_code(tensor.pytype):
        return None
    count(m, point)
    m.storages_read.add(id(fake))
    read = tensor.current()
    return DeferredScalar(np.ndarray, frozenset({point}), lambda e: f"{e.value(read)}.numpy()")


def has_array(fake: torch.Tensor) -> bool:
    if fake.device.type != "cpu" or fake.layout is not torch.strided or is_in_transform(fake):
        return False
    return fake.dtype in ARRAYS and not (fake.requires_grad or fake.is_conj() or fake.is_neg())


def can_wait(name: str, fake: torch.Tensor) -> bool:
    if fake.dtype.is_complex or fake.is_meta or is_in_transform(fake) or any(type(n) is not int for n in fake.shape):
        return False
    if name == "tolist":
        return fake.numel() <= LIST_LIMIT
    if fake.numel() != 1 or name == "float" and fake.requires_grad:     # torch warns of this
        return False
    return name in ("item", "float") or name == "int" and not fake.is_floating_point()     # a NaN is not an int


def elements(reading: Reading, kind: type, shape: tuple[int, ...], index: tuple[int, ...]) -> Value:
    if shape:
        return ListValue([elements(reading, kind, shape[1:], (*index, i)) for i in range(shape[0])])
    path = "".join(f"[{i}]" for i in index)
    return DeferredScalar(kind, reading.points, lambda e: f"{e.value(reading)}{path}",
                          number=in_graph(reading, kind, index))


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
    if is_among(EXTREMES, real) and len(args) > 1 and not kwargs:
        return extreme(EXTREMES[real], args)
    if is_among(LOOKING, real) and all(isinstance(v, IdentityNumber) for v in args if isinstance(v, DeferredScalar)):
        return None
    is_users = isinstance(real, type) or POLYFILLS.find(real) is not None
    if is_among(STORING, real) or is_among(SEEDING, real) or is_users and HANDLERS.find(real) is None:
        return None
    raise needed(*args, *kwargs.values())


def reckoned(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of one of the builtins of numbers."""
    value = args[0] if args else None
    count = 2 if real is round else 1
    if not isinstance(value, DeferredScalar) or not is_number(value) or kwargs or len(args) != count:
        raise needed(*args, *kwargs.values())
    more: tuple = ()
    if real is int and value.pytype is float and value.is_in_graph:
        return graph_numbers.at_once(m, "int", int, [value])
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
    number = None if more or real is round else computing(real.__name__, kind, value)
    return DeferredScalar(kind, value.points, written(real.__name__, value, *more), value.bits, value.depth + 1,
                          number=number)


def whole(m: Machine, value: Value) -> Value:
    """``int(value)`` of a number that was read off a tensor."""
    return reckoned(m, int, [value], {})


def complex_number(value: Value) -> Value:
    """``complex(value)`` of a number that was read off a tensor. It can only be passed on."""
    if not isinstance(value, DeferredScalar) or not is_number(value):
        raise needed(value)
    return DeferredScalar(complex, value.points, written("complex", value), depth=value.depth + 1)


def extreme(name: str, args: list[Value]) -> Value:
    """``min`` or ``max`` of ints or of floats. Of both the type of the result would depend on the values."""
    kind = args[0].pytype
    if not all(is_number(v) and v.pytype is kind for v in args):
        raise needed(*args)
    found = functools.reduce(lambda a, b: joined(kind, a, b, lambda e: f"{name}({e.value(a)}, {e.value(b)})", name,
                                                 max(bits_known(a), bits_known(b))), args)
    assert isinstance(found, DeferredScalar)
    found.is_nonzero = name == "max" and any(
        isinstance(v, Const) and not is_dynamic(v) and v.constant() > 0 for v in args)
    return found


def bits_known(value: Value) -> float:
    if value.pytype is float:
        return 0
    return value.bits if isinstance(value, DeferredScalar) else float("inf") if is_dynamic(value) else (
        value.constant().bit_length())


def computing(name: str, kind: type, *values: Value) -> Callable[[Machine], Any] | None:
    """A function that computes a number of the graph from others; None if the others are not in the graph."""
    if any(isinstance(v, DeferredScalar) and not v.is_in_graph for v in values):
        return None
    return lambda m: graph_numbers.computed(m, name, kind, [*values])


def joined(kind: type, a: Value, b: Value, write: Callable[[Emitter], str], name: str, bits: float = 64) -> Value:
    """A number computed from two, by a function that raises for no numbers."""
    later = [v for v in (a, b) if isinstance(v, DeferredScalar)]
    return DeferredScalar(kind, frozenset().union(*(v.points for v in later)), write, bits,
                          1 + max((v.depth for v in later), default=0), number=computing(name, kind, a, b))


def compared(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b`` where one operand is such a number."""
    if not is_number(a) or not is_number(b):
        raise needed(a, b)
    result = joined(bool, a, b, lambda e: f"{e.value(a)} {symbol} {e.value(b)}", symbol)
    if not any(v.is_held for v in (a, b) if isinstance(v, DeferredScalar)):
        return result
    known = graph_numbers.known_truth(m, result)    # type: ignore[arg-type]
    return result if known is None else boolean(known)


def binary(m: Machine, symbol: str, a: Value, b: Value) -> Value:
    """``a <symbol> b`` where one operand is such a number; also in place."""
    plain = symbol[:-1] if len(symbol) > 1 and symbol.endswith("=") else symbol
    if plain == "%" and a.pytype is str:
        return HANDLERS[str.__mod__](m, [a, b], {})
    if plain not in (*ARITHMETIC, "**") or not is_number(a) or not is_number(b):
        raise needed(a, b)
    is_float = plain == "/" or float in (a.pytype, b.pytype)
    kind = float if is_float else int
    if plain == "**" or plain in ("/", "//", "%") and not is_divisor(m, plain, b):
        return in_graph_at_once(m, plain, kind, a, b)
    sizes = bits_of(m, a, is_float), bits_of(m, b, is_float)
    if is_float and max(sizes) > FLOAT_BITS:
        return in_graph_at_once(m, plain, kind, a, b)
    bits = sum(sizes) if plain == "*" else max(sizes) + 1
    return joined(kind, a, b, lambda e: f"{e.value(a)} {plain} {e.value(b)}", plain, bits)


def in_graph_at_once(m: Machine, symbol: str, kind: type, a: Value, b: Value) -> Value:
    """Arithmetic that may raise: the graph does it where the program does, so that Python can raise."""
    known = isinstance(b, Const) and not is_dynamic(b) and b.constant() > 0      # else the type of a power is not known
    if symbol == "**" and not (kind is int and known) or computing(symbol, kind, a, b) is None:
        raise needed(a, b)
    return graph_numbers.at_once(m, symbol, kind, [a, b])


def is_number(value: Value) -> bool:
    if isinstance(value, DeferredScalar):
        return not value.is_array and value.pytype is not complex
    return isinstance(value, Const) and value.pytype in (int, float)


def is_divisor(m: Machine, symbol: str, value: Value) -> bool:
    """Whether it is known to be nonzero."""
    if isinstance(value, DynamicNumber) and value.varies and symbol == "/":
        return bool(value.example) and bool(compare(m, "!=", value, Const(0)).real)
    return value.is_nonzero if isinstance(value, DeferredScalar) else isinstance(value, Const) and value.real != 0


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
    number = computing("neg", value.pytype, value) if symbol == "-" else value.graph_number
    return DeferredScalar(value.pytype, value.points, lambda e: f"{symbol}{e.value(value)}", value.bits,
                          value.depth + 1, number=number if value.is_in_graph else None)


# ---- text -------------------------------------------------------------------------------------------------------
def text(value: DeferredScalar, template: str, show: Callable[[Any], str], form: str) -> Value:
    """Text that shows the number: ``show`` for an example, ``template`` in emitted code. ``form`` is its format."""
    if not is_number(value):
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


def decisive(m: Machine, left: list[Value], right: list[Value], equal: Callable[..., bool | None]) -> list[Value]:
    """The two numbers, one of them deferred, that decide whether two sequences of one length are equal, because all
    other elements are ``equal``. Empty if there are no such numbers, or more.
    """
    pairs = [[a, b] for a, b in zip(left, right, strict=True)]
    deferred = [pair for pair in pairs if among(*pair) and pair[0] is not pair[1]]
    if len(deferred) != 1 or not all(isinstance(v, (Const, DeferredScalar, DynamicNumber)) for v in deferred[0]):
        return []
    return deferred[0] if all(equal(m, *pair) for pair in pairs if pair is not deferred[0]) else []


def is_same(a: Value, b: Value) -> bool:
    """``a is b`` where one operand is such a number."""
    if a is b or a.pytype is not b.pytype:
        return a is b
    raise needed(a, b)
