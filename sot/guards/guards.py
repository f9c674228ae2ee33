"""Guards: the conditions under which captured code may be run again.

A guard is an origin and a check. ``test`` is its expression in the emitted function. ``holds`` evaluates it alone, to
explain a miss. ``str`` describes it in English. Guards are emitted in the order in which capture met them, so a guard
on ``a`` always precedes one on ``a.b``, and an origin is loaded once for all guards and graph inputs below it. Tensors
are an
exception: one call at the end checks them all.
"""
from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable
from dataclasses import field
from math import copysign
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType, WrapperDescriptorType
from typing import Any

import numpy as np
import torch

from sot._hook import plain
from sot.guards.containers import CONSTANTS, PRINTED, has_key, hash_of_key, keys_of, length_of, same_key, table_size
from sot.guards.origin import Element, Emit, Held, Inputs, Origin, TensorPart, immutable
from sot.guards.terms import Term, exact, function_of, leaves, term_code, term_text, term_value
from sot.support.errors import article
from sot.torch_compat.global_state import GlobalState
from sot.torch_compat.tensors import tensor_summary, without_subclasses

NAMED = (type, FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, ModuleType)
NO_HOOK_DICTS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")


def shows_itself(value: object, depth: int = 3) -> bool:
    """Whether ``repr`` may be called: it is short, and runs no user code, which could fail or have effects."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset, dict):
        parts = [*value, *value.values()] if isinstance(value, dict) else [*value]  # type: ignore[misc]
        return depth > 0 and len(parts) <= 20 and all(shows_itself(v, depth - 1) for v in parts)
    if issubclass(kind, enum.Enum):
        return kind.__repr__.__module__ == "enum" and shows_itself(value.value, depth - 1)  # type: ignore[attr-defined]
    return kind in PRINTED or kind.__module__.partition(".")[0] == "numpy" and not (
        isinstance(value, np.ndarray) and (value.dtype.hasobject or value.size > 20))


def given_name(value: object) -> str | None:
    """The name of a class, function or module. No ``__getattr__`` of a module or its class runs: it may fail."""
    kind, name = type(value), None
    if issubclass(kind, ModuleType):
        name = object.__getattribute__(value, "__dict__").get("__name__")
    elif issubclass(kind, NAMED):
        name = getattr(value, "__qualname__", None)
    return name


def short(value: object, limit: int = 60) -> str:
    """A one-line description of a value for messages."""
    kind = type(value)
    if (name := given_name(value)) is not None:
        text = f"{kind.__name__} {name}"
    elif kind in (torch.Tensor, torch.nn.Parameter):
        text = article(tensor_summary(value))     # type: ignore[arg-type]
    else:
        text = f"an object of class {kind.__qualname__}"
        with contextlib.suppress(Exception), without_subclasses():
            text = repr(value) if shows_itself(value) else text
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


NUMBERS = (int, bool, float, complex)
SEVERAL_EQUAL = (float, complex, tuple)     # equal objects of the type may be told apart: 0.0 and -0.0


def is_constant(value: object) -> bool:
    """Whether ``same_constant`` and the guard program compare this value in the same way."""
    return type(value) in CONSTANTS or (type(value) in (tuple, torch.Size) and all(
        map(is_constant, value)))   # type: ignore[call-overload]


def same_constant(a: Any, b: Any) -> bool:
    """Whether type and value are the same: 1, 1.0 and True are three constants, and so are 0.0 and -0.0."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return a != a and b != b or a == b and copysign(1.0, a) == copysign(1.0, b)
    if kind is complex:
        return same_constant(a.real, b.real) and same_constant(a.imag, b.imag)
    if kind in (tuple, torch.Size):
        return len(a) == len(b) and all(map(same_constant, a, b))
    if kind in (slice, range):
        return same_constant((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if issubclass(kind, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if issubclass(kind, np.dtype):
        return a == b and a.metadata == b.metadata
    if issubclass(kind, (set, frozenset)):
        return a == b and same_members(a, b)
    return bool(same_key(a, b))


def same_members(a: Iterable, b: Iterable) -> bool:
    """Whether the members of equal sets are the same constants. Only numbers may be equal and differ."""
    kinds = set(map(type, b))
    mixed = len(kinds.intersection(NUMBERS)) > 1 or not kinds.isdisjoint(SEVERAL_EQUAL)
    return {*map(type, a)} == kinds and (not mixed or {*map(exact_key, a)} == {*map(exact_key, b)})


def exact_key(value: object) -> object:
    kind = type(value)
    return exact(value) if kind in NUMBERS or kind in SEVERAL_EQUAL else value


def code_and_defaults(function: FunctionType) -> tuple:
    """The objects that a guard on the code of a function compares by identity."""
    return function.__code__, function.__defaults__, function.__kwdefaults__


@immutable
class Guard:
    """Base class. ``where`` (file, line) is the user's code that needed the guard; it is not part of its identity."""

    origin: Origin
    after_tensors = False       # it depends on a tensor whose type and shape have been checked

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def test(self, emit: Emit) -> str:
        raise NotImplementedError

    def holds(self, value: object) -> bool:
        raise NotImplementedError

    def explain(self, inputs: Inputs) -> str | None:
        """None if the guard holds for ``inputs``, else a sentence that says what differs."""
        try:
            value = self.origin.read(inputs)
            holds = self.holds(value)
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as e:     # torch raises the last
            return f"expected {self}, but it is gone ({type(e).__name__}: {e})"
        return None if holds else f"expected {self}, got {self.seen(value)}"

    def seen(self, value: object) -> str:
        """The description of the value that was found instead."""
        return short(value)


@immutable
class IsGuard(Guard):
    """The value is this object."""

    value: Any = Held()

    def test(self, emit: Emit) -> str:
        right = repr(self.value) if any(self.value is v for v in (None, True, False)) else emit.const(self.value)
        return f"{emit.ref(self.origin)} is {right}"

    def holds(self, value: object) -> bool:
        return value is self.value

    def __str__(self) -> str:
        return f"{self.origin} is {short(self.value)}"

    def __hash__(self) -> int:
        return hash((self.origin, id(self.value)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IsGuard) and self.origin == other.origin and self.value is other.value


@immutable
class EqualsGuard(Guard):
    """The value has this exact type and equals this constant."""

    value: object

    def test(self, emit: Emit) -> str:
        ref, kind = emit.ref(self.origin), type(self.value)
        if kind in (int, str):
            return f"type({ref}) is {emit.const(kind)} and {ref} == {self.value!r}"
        return f"{emit.const(same_constant)}({ref}, {emit.const(self.value)})"

    def holds(self, value: object) -> bool:
        return same_constant(value, self.value)

    def __str__(self) -> str:
        return f"{self.origin} == {short(self.value)}"

    def __hash__(self) -> int:
        return hash((self.origin, type(self.value), repr(self.value)))


@immutable
class OrderGuard(Guard):
    """A set is iterated in this order. An equal set may have another order.

    ``size``: its memory in bytes, if the order matters of what is made of it. It tells the size of the set's table.
    """

    order: tuple
    size: int | None = None

    def test(self, emit: Emit) -> str:
        ordered = f"tuple({emit.ref(self.origin)}) == {emit.const(self.order)}"
        return ordered if self.size is None else (
            f"{ordered} and {emit.const(table_size)}({emit.ref(self.origin)}) == {self.size}")

    def holds(self, value: object) -> bool:
        return tuple(value) == self.order and self.size in (None, table_size(value))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.origin} has the order {short(self.order)}"


@immutable
class TypeGuard(Guard):
    """The value has this exact type."""

    cls: Any = Held()

    def test(self, emit: Emit) -> str:
        return f"type({emit.ref(self.origin)}) is {emit.const(self.cls)}"

    def holds(self, value: object) -> bool:
        return type(value) is self.cls

    def __str__(self) -> str:
        return f"the type of {self.origin} is {getattr(self.cls, '__qualname__', self.cls)}"

    def seen(self, value: object) -> str:
        found = type(value).__qualname__
        same_name = found == getattr(self.cls, "__qualname__", None)
        return "another class of that name" if same_name else f"{short(value)}, of type {found}"


@immutable
class LengthGuard(Guard):
    """A list, tuple or set has this length."""

    length: int

    def test(self, emit: Emit) -> str:
        return f"{emit.const(length_of)}({emit.ref(self.origin)}) == {self.length}"

    def holds(self, value: object) -> bool:
        return length_of(value) == self.length  # type: ignore[arg-type]

    def seen(self, value: object) -> str:
        return str(length_of(value))    # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"len({self.origin}) == {self.length}"


@immutable
class KeysGuard(Guard):
    """A dict has these keys, in this order."""

    keys: tuple

    def test(self, emit: Emit) -> str:
        keys = f"{emit.const(keys_of)}({emit.ref(self.origin)})"
        return f"{emit.const(same_constant)}({keys}, {emit.const(self.keys, 'keys')})"

    def holds(self, value: object) -> bool:
        return same_constant(keys_of(value), self.keys)  # type: ignore[arg-type]

    def seen(self, value: object) -> str:
        return short(list(keys_of(value)))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"the keys of {self.origin} are {short(list(self.keys))}"

    def __hash__(self) -> int:
        return hash((self.origin, len(self.keys)))


@immutable
class HasKeyGuard(Guard):
    """A dict has a key, or does not have it."""

    key: object
    present: bool

    def test(self, emit: Emit) -> str:
        key = repr(self.key) if type(self.key) in (str, int) else emit.const(self.key)
        return f"{emit.const(has_key)}({emit.ref(self.origin)}, {key}) is {self.present}"

    def holds(self, value: object) -> bool:
        return has_key(value, self.key) is self.present  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{short(self.key)} is {'' if self.present else 'not '}in {self.origin}"

    def __hash__(self) -> int:
        return hash((self.origin, hash_of_key(self.key), self.present))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HasKeyGuard) and (self.origin, self.present) == (
            other.origin, other.present) and same_key(self.key, other.key)


def slot_is_empty(obj: object, name: str) -> bool:
    """Whether a slot of an object is empty, regardless of attribute access of its class."""
    try:
        object.__getattribute__(obj, name)
    except AttributeError:
        return True
    return False


EMPTY = plain(slot_is_empty)


@immutable
class EmptySlotGuard(Guard):
    """A slot of an object is empty."""

    name: str

    def test(self, emit: Emit) -> str:
        return f"{emit.const(EMPTY)}({emit.ref(self.origin)}, {self.name!r})"

    def holds(self, value: object) -> bool:
        return slot_is_empty(value, self.name)

    def __str__(self) -> str:
        return f"{self.origin}.{self.name} is not set"


@immutable
class CodeGuard(Guard):
    """A function has this code and these defaults. It may be another function; its closure is guarded cell by cell."""

    function: Any = Held()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.function.__qualname__)
        object.__setattr__(self, "parts", code_and_defaults(self.function))

    name: str = field(init=False, compare=False)
    parts: tuple = field(init=False, compare=False)

    def test(self, emit: Emit) -> str:
        ref = emit.ref(self.origin)
        parts = []
        for name, value in zip(("__code__", "__defaults__", "__kwdefaults__"), self.parts, strict=True):
            parts.append(f"{ref}.{name} is {'None' if value is None else emit.const(value)}")
        return " and ".join(parts)

    def holds(self, value: object) -> bool:
        return isinstance(value, FunctionType) and all(
            found is wanted for found, wanted in zip(code_and_defaults(value), self.parts, strict=True))

    def __str__(self) -> str:
        return f"the code of {self.origin} is that of {self.name}"

    def __hash__(self) -> int:
        return hash((self.origin, *map(id, self.parts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeGuard) and self.origin == other.origin and all(
            a is b for a, b in zip(self.parts, other.parts, strict=True))


@immutable
class NoHooksGuard(Guard):
    """A module has no forward or backward hooks."""

    def test(self, emit: Emit) -> str:
        ref = emit.ref(self.origin)
        return f"not ({' or '.join(f'{ref}.{name}' for name in NO_HOOK_DICTS)})"

    def holds(self, value: object) -> bool:
        return not any(getattr(value, name) for name in NO_HOOK_DICTS)

    def __str__(self) -> str:
        return f"{self.origin} has no hooks"


@immutable
class SameGuard(Guard):
    """Two origins hold the same object (``same``), or two different ones."""

    other: Origin
    same: bool = True

    def test(self, emit: Emit) -> str:
        return f"{emit.ref(self.origin)} {'is' if self.same else 'is not'} {emit.ref(self.other)}"

    def explain(self, inputs: Inputs) -> str | None:
        try:
            holds = (self.origin.read(inputs) is self.other.read(inputs)) is self.same
        except Exception as e:  # noqa: BLE001 - the value may be anything now
            return f"expected that {self}, but it is gone ({type(e).__name__}: {e})"
        return None if holds else f"expected that {self}, which no longer holds"

    def __str__(self) -> str:
        return f"{self.origin} and {self.other} are {'one object' if self.same else 'different objects'}"


@immutable
class DistinctGuard(Guard):
    """No two of these origins hold the same object, so a write to one is not visible in another."""

    others: tuple[Origin, ...]

    def test(self, emit: Emit) -> str:
        if len(self.others) == 1:
            return f"{emit.ref(self.origin)} is not {emit.ref(self.others[0])}"
        ids = ", ".join(f"id({emit.ref(o)})" for o in (self.origin, *self.others))
        return f"len({{{ids}}}) == {1 + len(self.others)}"

    def explain(self, inputs: Inputs) -> str | None:
        try:
            found = {id(o.read(inputs)) for o in (self.origin, *self.others)}
        except Exception as e:  # noqa: BLE001 - the value may be anything now
            return f"expected {self}, but it is gone ({type(e).__name__}: {e})"
        return None if len(found) == 1 + len(self.others) else f"expected that {self}, which no longer holds"

    def __str__(self) -> str:
        return f"{', '.join(map(str, (self.origin, *self.others)))} are different objects"


# ---- numbers that vary ------------------------------------------------------------------------------------
@immutable
class RelationGuard(Guard):
    """A comparison of varying numbers has this outcome. ``origin`` is one of the origins that it depends on.
    ``of_operator``: torch asked for it, to choose a kernel or to find the sizes of a result, and not the program.
    """

    symbol: str
    left: Term
    right: Term
    outcome: bool = True
    of_operator: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        of_tensors = any(isinstance(o, TensorPart | Element) for o in leaves((self.symbol, self.left, self.right)))
        object.__setattr__(self, "after_tensors", of_tensors)

    def test(self, emit: Emit) -> str:
        text = f"{term_code(self.left, emit)} {self.symbol} {term_code(self.right, emit)}"
        return text if self.outcome else f"not ({text})"

    def explain(self, inputs: Inputs) -> str | None:
        try:
            left, right = term_value(self.left, inputs), term_value(self.right, inputs)
            outcome = bool(function_of(self.symbol)(left, right))
        except Exception as e:  # noqa: BLE001 - what was a number may be anything now
            return f"expected {self}, but it cannot be computed ({type(e).__name__}: {e})"
        if outcome is self.outcome:
            return None
        got = [short(v) for v, term in ((left, self.left), (right, self.right)) if isinstance(term, (Origin, tuple))]
        return f"expected {self}, got {' and '.join(got)}"

    def __str__(self) -> str:
        text = term_text((self.symbol, self.left, self.right))
        return text if self.outcome else f"not {text}"

    def __hash__(self) -> int:
        return hash((self.origin, self.symbol, exact(self.left), exact(self.right), self.outcome))


@immutable
class StateGuard:
    """Grad mode, autocast, default dtype, deterministic flags and other global state are unchanged."""

    state: GlobalState

    def test(self, emit: Emit) -> str:
        return f"{emit.const(self.state.check, 'state')}()"

    def explain(self, inputs: Inputs) -> str | None:
        return None if self.state.check() else f"expected {self}; changed: {self.state.reason()}"

    def __str__(self) -> str:
        return f"torch's global state: {self.state}"
