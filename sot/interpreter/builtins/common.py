"""Shared by the handlers: nested constants, type slots, identity, and checks of arguments.

A handler must not call user code and continue. So each function here may answer "not known without user code". The
handler then enters a polyfill or breaks.
"""
from __future__ import annotations

import builtins
import collections
import decimal
import operator
import sys
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sot.interpreter.frame import DISCARD
from sot.interpreter.loop import evaluate
from sot.interpreter.objects import attributes
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.torch_ops import deferred_scalars
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.unwinding import chain
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import HANDLERS
from sot.values import numbers, other_numbers, text
from sot.values.base import ABSENT, ENTERED, NONE, Const, NotConstant, Opaque, Value
from sot.values.callables import BoundMethod, FunctionValue
from sot.values.constants import compares_by_python, is_library, is_nan
from sot.values.iterators import GeneratorValue, IteratorValue
from sot.values.objects import (
    ListValue,
    ObjectValue,
    SetValue,
    TupleValue,
    guard_key,
)
from sot.values.objects.exceptions import like_native
from sot.values.objects.hosted import in_decimal_context
from sot.values.objects.identities import IdentityNumber, fix_nan, is_same_constant
from sot.values.objects.keys import PythonKey
from sot.values.objects.references import PassNumber
from sot.values.tensor import TensorNumber, TensorValue, see_both
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

NOT_IMPLEMENTED = Const(NotImplemented)
SLOT_TYPES = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType,
              types.ClassMethodDescriptorType)
EXACT = frozenset({list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict,
                   collections.defaultdict, str, bytes, int, float, bool, complex, range, slice, type(None)})
SEQUENCES = (list, tuple, str, bytes)
HOST_LIMIT = 200_000
INEXACT = (float, complex, np.inexact)
CONTAINERS = (list, tuple, set, frozenset, dict, collections.deque)
ATOMS = frozenset((int, float, bool, str, bytes, type(None)))
COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


# ---- nested constants -----------------------------------------------------------------------------------
def hosts(m: Machine, values: list[Value]) -> list[Any] | None:
    """``host`` of each value, or None if one is not constant or contains itself."""
    try:
        return [v.host(m) for v in values]
    except (NotConstant, RecursionError):
        return None


def comparable_hosts(m: Machine, values: list[Value]) -> list[Any] | None:
    """The same for functions that compare. A container with a NaN is none: its comparison depends on identity. Nor is
    an object that code of the program compares.
    """
    found = hosts(m, values)
    return None if found is not None and any(map(compares_otherwise, found)) else found


def compares_otherwise(value: Any) -> bool:
    """Whether the comparison of a value depends on more than what it is."""
    return (isinstance(value, CONTAINERS) and has_nan(value)) or has_own_comparison(value)


def has_own_comparison(value: Any) -> bool:
    """Whether code of the program compares a value, or something in it, with others. ``compares_by_python`` asks only
    what a key of a dict needs.
    """
    if type(value) in ATOMS:
        return False
    methods = [getattr(type(value), name) for name in COMPARING]
    return any(isinstance(f, types.FunctionType) and not is_library(f.__module__) for f in methods) or any(
        map(has_own_comparison, items_in(value)))


def items_in(value: Any) -> Iterable[Any]:
    """What is in a container, also in one of a class with iterators of its own."""
    if isinstance(value, dict):
        return (*dict.keys(value), *dict.values(value))
    kind: Any = next((base for base in CONTAINERS if isinstance(value, base)), None)
    return () if kind is None else kind.__iter__(value)


def run_native(m: Machine, function: Any, *args: Any, **kwargs: Any) -> Value:
    """Call a pure function during capture. An exception of it is raised in the captured program. If it warns, Python
    calls it again.
    """
    m.warned.clear()
    outside = sys.exception()
    try:
        with np.errstate(all="raise"), in_decimal_context(m, function):
            result = as_from(m, CALL)(function, args, kwargs)
    except (RecursionError, MemoryError, FloatingPointError) as e:
        raise Break(Reason.OPERATION_FAILED, str(e)) from None
    except Break:
        raise
    except Exception as e:
        return throw_like(m, e, outside)
    if m.warned:
        raise Break(Reason.UNSUPPORTED, f"the warning {str(m.warned[0][0].message)!r}")
    return wrap_new(m, result)


CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__


def as_from(m: Machine, code: types.CodeType) -> types.FunctionType:
    """A function with this code. Filters see its warnings as those of the user's module."""
    frame = next(iter(m.user_frames()), m.frames[0])
    return types.FunctionType(code, {"__name__": frame.namespace.get("__name__"), "__builtins__": builtins})


def throw_like(m: Machine, error: Exception, outside: BaseException | None = None) -> Any:
    """Raise in the captured program the exception that a pure function has raised. ``outside``: what capture itself
    was handling when it called the function.
    """
    try:
        raised = innermost = like_native(m, error, outside, {})
    except NotConstant:
        raise Break(Reason.OPERATION_FAILED, str(error)) from None
    while innermost.context is not None:
        innermost = innermost.context  # type: ignore[assignment]
    chain(m, innermost)
    raise PyRaise(raised, chained=False)


def fold(m: Machine, function: Any, values: list[Value], named: dict[str, Value] | None = None) -> Value | None:
    """The result of a pure function if all values are nested constants, else None."""
    named = named or {}
    found = hosts(m, [*values, *named.values()])
    if found is None:
        return None
    return run_native(m, function, *found[:len(values)], **dict(zip(named, found[len(values):], strict=True)))


# ---- slots of types -----------------------------------------------------------------------------------------
def slot(m: Machine, value: Value, name: str) -> Any:
    """What the type has under the name of a special method: the raw attribute, or None."""
    raw, _ = lookup(m, value.pytype, name)
    return None if raw is ABSENT else raw


def is_native(raw: Any) -> bool:
    """Whether a special method is implemented in C."""
    return isinstance(raw, SLOT_TYPES)


def overridden(m: Machine, value: Value, name: str) -> bool:
    """Whether a subclass of a builtin type overrides a special method."""
    if value.pytype in EXACT:
        return False
    raw = slot(m, value, name)
    return raw is not None and not is_native(raw)


def foldable(value: Value, name: str) -> bool:
    """Whether the special method of a constant may be called during capture: it is written in C or in the standard
    library.
    """
    if not isinstance(value, Const):
        return False
    kind = value.pytype
    if kind in EXACT:
        return True
    for owner in kind.__mro__:
        if name in owner.__dict__:
            raw = owner.__dict__[name]
            return not isinstance(raw, types.FunctionType) or is_library(raw.__module__)
    return True


def call_slot(m: Machine, obj: Value, name: str, args: list[Value]) -> Value | None:
    """``type(obj).name(obj, *args)``, or None when the type has no such method."""
    raw, owner = lookup(m, obj.pytype, name)
    if raw is ABSENT or raw is None:
        return None
    handler = HANDLERS.find(raw)
    if handler is not None:
        return handler(m, [obj, *args], {})
    if isinstance(obj, Opaque):
        raise obj.refusal(str(obj))
    method = attributes.bind(m, obj, obj.pytype, raw, owner, name)
    if method is ENTERED:
        raise Break(Reason.UNSUPPORTED, f"{name}, which Python code looks up,")
    return method.call(m, args, {})


def call_slot_for_effect(m: Machine, obj: Value, name: str, args: list[Value]) -> Value | None:
    """The same for an instruction that needs no result: a pushed frame drops its result."""
    result = call_slot(m, obj, name, args)
    if result is ENTERED:
        m.frames[-1].on_return = DISCARD
    return result


# ---- identity and equality ------------------------------------------------------------------------------------
def note_identity(m: Machine, a: Value, b: Value) -> None:
    """That ``a is b`` is asked. Objects of two types are never the same."""
    if a.pytype is b.pytype:
        m.compared.add(a.pytype)


def asked_identical(m: Machine, a: Value, b: Value) -> bool:
    """``a is b`` of the program."""
    note_identity(m, a, b)
    return identical(m, a, b)


def identical(m: Machine, a: Value, b: Value) -> bool:
    """``a is b``"""
    if a is b:
        return True
    if isinstance(a, Const) and isinstance(b, Const):
        return a.pytype is b.pytype and is_same_constant(m, a, b)
    if a.pytype is b.pytype is tuple and is_empty(a) and is_empty(b):
        return True
    if isinstance(a, BoundMethod) or isinstance(b, BoundMethod):
        return False
    if deferred_scalars.among(a, b):
        return deferred_scalars.is_same(a, b)
    if isinstance(a, TensorNumber) or isinstance(b, TensorNumber):
        raise Break(Reason.UNSUPPORTED, "the identity of a number that depends on a tensor")
    see_both(a, b)
    return a.pytype is b.pytype and a.real is not ABSENT and a.real is b.real      # ``real`` fixes a number that varies


def is_empty(value: Value) -> bool:
    return not value.items if isinstance(value, TupleValue) else isinstance(value, Const) and value.real == ()


def names_the_key() -> bool:
    """Whether CPython says in the message that the unhashable object is a key or an element. It does so since 3.14."""
    try:
        dict.fromkeys([[]])
    except TypeError as e:
        return not str(e).startswith("unhashable")
    return False


NAMES_THE_KEY = names_the_key()
ELEMENT = "a set element"


def key_of(m: Machine, value: Value, role: str | None = "a dict key", within: Value | None = None) -> Any:
    """The host object that represents a value as dict key or set member. Unhashable types raise TypeError."""
    if isinstance(value, TupleValue):
        if overridden(m, value, "__hash__") or overridden(m, value, "__eq__"):
            raise Break(Reason.UNSUPPORTED, f"hashing {value}")
        return tuple(key_of(m, v, role, within or value) for v in m.settle(value.items))
    if isinstance(value, SetValue) and value.pytype is frozenset:
        return frozenset(value.items)
    if value.pytype.__hash__ is None:
        words = f"unhashable type: {value.pytype.__name__!r}"
        if NAMES_THE_KEY and role:
            kind = (within or value).pytype
            home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
            words = f"cannot use '{home}{kind.__qualname__}' as {role} ({words})"
        m.throw(TypeError, words)
    if isinstance(value, Const) and compares_by_python(value.unguarded):
        raise Break(Reason.UNSUPPORTED, f"hashing {value}")
    if isinstance(value, ObjectValue) and is_python(slot(m, value, "__hash__"), slot(m, value, "__eq__")):
        return PythonKey(value, hash(follow(m, hash, value)), lambda a, b: bool(follow(m, operator.eq, a, b)), state_of)
    if isinstance(value, Const):    # a constant is the key that it equals
        fix_nan(m, value)
    else:
        m.compared.add(value.pytype)
    key = value.key()
    if isinstance(value, FunctionValue):
        guard_key(m, key)
    return key


def is_python(*methods: Any) -> bool:
    return any(isinstance(f, types.FunctionType) for f in methods)


def follow(m: Machine, function: Any, *args: Value) -> Any:
    """The constant that a method of the program returns, if the method has no effects; else a break."""
    outer, m.watch = m.watch, []
    try:
        result = evaluate(m, Const(function), [*args])
        clean = all(isinstance(touch.value, (GeneratorValue, IteratorValue)) for touch in m.watch)
    finally:
        m.watch = outer
    if not clean or not isinstance(result, Const):
        raise Break(Reason.UNSUPPORTED if clean else Reason.SIDE_EFFECT, f"{function.__name__} of {args[0]}")
    return result.real


def state_of(value: Value) -> Any:
    assert isinstance(value, ObjectValue)
    return dict(value.attrs.overlay) if value.has_attrs else {}, dict(value.slots)


def equal(m: Machine, a: Value, b: Value) -> bool | None:
    """``a is b or a == b``, as containers compare. None if that needs user code or a tensor's value."""
    a, b = (v.as_constant() if isinstance(v, BoundMethod) else v for v in (a, b))
    if a is b:
        return True
    if may_be_nan(a) and may_be_nan(b) and a.pytype is b.pytype:
        return numbers_equal(m, a, b) or identical(m, a, b)
    if numbers.operands(a, b) is not None:
        return bool(numbers.compare(m, "==", a, b).real)
    if isinstance(a, IdentityNumber) and isinstance(b, IdentityNumber):
        return a.is_same(b)
    if isinstance(a, Const) and isinstance(b, Const):
        return equal_constants(m, a, b)
    if identical(m, a, b):
        return True
    tensors = isinstance(a, TensorValue), isinstance(b, TensorValue)
    if any(tensors):
        other = b if tensors[0] else a
        return False if isinstance(other, Const) and isinstance(other.real, (str, type(None), type)) else None
    for kind in (ListValue, TupleValue):
        if isinstance(a, kind) and isinstance(b, kind) and not overridden(m, a, "__eq__") and not overridden(
                m, b, "__eq__"):
            return equal_items(m, m.settle(a.items), m.settle(b.items))
    found = comparable_hosts(m, [a, b])
    if found is not None:
        return bool(found[0] == found[1])
    if by_identity(m, a) and by_identity(m, b):
        m.compared.add(a.pytype)
        return False
    return None


def may_be_nan(value: Value) -> bool:
    """Whether it may equal only itself, here or at a later call."""
    return isinstance(value, Const) and issubclass(value.pytype, INEXACT) and (
        is_nan(value.unguarded) or text.varies(value))


def numbers_equal(m: Machine, a: Any, b: Any) -> bool:
    """``a == b`` for floats and complex numbers"""
    known = other_numbers.compared(m, "==", a, b)
    return bool(a.real == b.real if known is None else known.real)


def has_nan(value: Any) -> bool:
    return any(map(has_nan, items_in(value))) if isinstance(value, CONTAINERS) else is_nan(value)


def equal_constants(m: Machine, a: Const, b: Const) -> bool | None:
    left, right = a.real, b.real
    if left is right and a.pytype is b.pytype:
        return True
    if not foldable(a, "__eq__") or not foldable(b, "__eq__"):
        return None
    if decimal.Decimal in (a.pytype, b.pytype):
        return bool(run_native(m, operator.eq, left, right).real)
    return bool(left == right)


def by_identity(m: Machine, value: Value) -> bool:
    """Whether the value equals only itself or, if it is a constant, only other constants."""
    if isinstance(value, Const):
        return foldable(value, "__eq__") and not isinstance(value.real, (tuple, frozenset))
    if isinstance(value, FunctionValue):
        return True
    return type(value) in (ObjectValue, PassNumber) and slot(m, value, "__eq__") is object.__eq__


def equal_items(m: Machine, left: list[Value], right: list[Value]) -> bool | None:
    if len(left) != len(right):
        return False
    known: bool | None = True
    for a, b in zip(left, right, strict=True):
        same = equal(m, a, b)
        if same is False and known:
            return False
        if same is None:
            known = None        # a later difference must not hide that == is to be called
    return known


# ---- arguments --------------------------------------------------------------------------------------------------
def no_keywords(name: str, kwargs: dict[str, Value]) -> None:
    if kwargs:
        raise Break(Reason.BAD_CALL, f"{name}() takes no keyword arguments")


def take(name: str, args: list[Value], kwargs: dict[str, Value], *parameters: str, required: int = 0) -> list[Any]:
    """The arguments in the order of the parameters, None for missing ones. Python raises for arguments that do not
    fit.
    """
    if len(args) > len(parameters) or any(k not in parameters[len(args):] for k in kwargs):
        raise Break(Reason.BAD_CALL, f"{name}()")
    found = [*args, *(kwargs.get(p) for p in parameters[len(args):])]
    if any(v is None for v in found[:required]):
        raise Break(Reason.BAD_CALL, f"{name}() lacks an argument")
    return found


def truth_of(m: Machine, value: Value | None, default: bool = False) -> bool:
    """The value of a flag argument, which must be known."""
    if value is None:
        return default
    found = value.truth(m)
    if found is None:
        raise Break(Reason.UNSUPPORTED, f"{value} as a flag")
    return found


def index_of(m: Machine, value: Value) -> int:
    """``operator.index(value)``"""
    if isinstance(value, TensorValue):
        value = torch_call(m, "call_function", operator.index, [value], {})
    if isinstance(value, Const):
        try:
            return operator.index(value.real)
        except TypeError as e:
            m.throw(TypeError, str(e))
    if slot(m, value, "__index__") is None:
        m.throw(TypeError, f"{value.pytype.__name__!r} object cannot be interpreted as an integer")
    raise Break(Reason.UNSUPPORTED, f"{value} as an index")


def fits(index: int) -> bool:
    """Whether it fits into a ``Py_ssize_t``."""
    return -sys.maxsize - 1 <= index <= sys.maxsize


def count_of(m: Machine, value: Value) -> int:
    """``operator.index(value)``, for a parameter that C holds in a ``Py_ssize_t``"""
    index = index_of(m, value)
    if not fits(index):
        m.throw(OverflowError, "Python int too large to convert to C ssize_t")
    return index


def has_own_index(m: Machine, value: Value) -> bool:
    """Whether the value is an object whose ``__index__`` is Python code."""
    if isinstance(value, (Const, TensorValue)):
        return False
    raw = slot(m, value, "__index__")
    return raw is not None and not is_native(raw)


def unsupported(symbol: str, a: Value, b: Value) -> str:
    for kind in SEQUENCES:
        if symbol in ("+", "+=") and issubclass(a.pytype, kind):
            if kind is bytes:
                return f"can't concat {b.pytype.__name__} to bytes"
            return f'can only concatenate {kind.__name__} (not "{b.pytype.__name__}") to {kind.__name__}'
    if symbol in ("*", "*=") and (issubclass(a.pytype, SEQUENCES) or issubclass(b.pytype, SEQUENCES)):
        other = b if issubclass(a.pytype, SEQUENCES) else a
        return f"can't multiply sequence by non-int of type {other.pytype.__name__!r}"
    symbol = "** or pow()" if symbol == "**" else symbol
    return (f"unsupported operand type(s) for {symbol}: {a.pytype.__name__!r} and {b.pytype.__name__!r}")


def is_none(value: Value | None) -> bool:
    return value is None or value is NONE or (isinstance(value, Const) and value.real is None)


def refuse(reason: Reason, what: str) -> Any:
    """Make a handler that leaves the call to Python."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Break(reason, what)
    return handler
