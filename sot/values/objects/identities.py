"""Identity: ``is`` between constants, and the results of ``id`` and ``hash`` for an object that equals only itself.

Capture does not know the result of ``id``. It knows only whether two of them are equal. A new object may get the
number of a freed one, so two numbers are known to differ only if both objects exist at the same time: before the
frame, or now.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.guards.assumptions import Point
from sot.guards.guards import EqualsGuard, Guard, IsGuard, KeysGuard, RelationGuard, SameGuard
from sot.guards.origin import KeyAt, Origin, known
from sot.support.errors import Break, Reason
from sot.values import numbers
from sot.values.base import ABSENT, Const, LazyConst, Value
from sot.values.constants import is_nan, is_one_object
from sot.values.deferred_scalars import DeferredScalar

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine

HASH_OF_ALL = 0x5EED_1D     # one hash for all, so that a dict compares each key with each other key


class IdentityNumber(DeferredScalar):
    """``id(value)`` or ``hash(value)``; ``function`` says which."""

    def __init__(self, m: Machine, function: Any, value: Value, points: frozenset[Point]) -> None:
        super().__init__(int, points, self.expression)
        self.machine, self.function, self.value = m, function, value

    def expression(self, e: Emitter) -> str:
        return f"{e.const(self.function)}({e.value(self.value)})"

    def is_same(self, other: IdentityNumber) -> bool:
        """``self == other``"""
        a, b = self.value, other.value
        if self.function is not other.function:
            raise self.needed()
        if a is b:
            return True
        self.machine.compared.update((a.pytype, b.pytype))
        if a.real is not ABSENT and b.real is not ABSENT:
            return a.real is b.real
        if not is_alive(self.machine, a) or not is_alive(self.machine, b):
            raise self.needed()
        return False

    def key(self) -> IdentityKey:
        return IdentityKey(self)


class IdentityKey:
    """An IdentityNumber as a key of a dict, or a member of a set, that the captured program has made."""

    def __init__(self, number: IdentityNumber) -> None:
        self.value = number

    def __hash__(self) -> int:
        return HASH_OF_ALL

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value.is_same(other.value)


def is_alive(m: Machine, value: Value) -> bool:
    """Whether a variable, or the stack of a frame, holds the object now."""
    if isinstance(value, Const):
        return True
    return any(held is value for frame in m.frames for held in (*frame.locals.values(), *frame.stack))


def refuse_among_others(key: Any) -> None:
    """Break if an IdentityNumber is looked up among keys that existed before the frame: these may be numbers."""
    if isinstance(key, IdentityKey):
        raise key.value.needed()


def has_identity_number(value: Value) -> bool:
    """Whether ``id`` of it is an IdentityNumber. CPython may share numbers and text, so theirs is not known."""
    if isinstance(value, Const):
        return value.real is None or isinstance(value.real, type) or callable(value.real)
    return not isinstance(value, DeferredScalar) and value.pytype not in (int, float, complex, str, bytes, bool, tuple,
                                                                          frozenset)


# ---- ``is`` between constants
def is_same_constant(m: Machine, a: Const, b: Const) -> bool:
    """``a is b`` for numbers, text and the like of one type. Equal ones may be one object at one call and two objects
    at the next, so the answer is guarded.
    """
    left, right = a.unguarded, b.unguarded
    if is_one_object(left) and is_one_object(right):
        return a.real is b.real
    first, second = a.place, b.place
    if first is not None and second is not None and first != second:
        m.guard(SameGuard(first, second, left is right))
        return left is right
    if type(left) is torch.device and (first is None or second is None):
        return False        # reading an attribute makes one
    if left is not right:
        if is_nan(left) and is_nan(right) and (first is None or second is None):
            return differ_always(m, a, b)
        if equal_values(left, right):       # CPython may share them, or not
            raise Break(Reason.UNSUPPORTED, "the identity of equal constants")
        if numbers.operands(a, b) is None:
            return a.real is b.real
        return bool(numbers.compare(m, "==", a, b).real)
    fix_object(m, a)
    fix_object(m, b)
    return True


def equal_values(left: Any, right: Any) -> bool:
    return is_nan(left) and is_nan(right) or bool(left == right)


def differ_always(m: Machine, a: Const, b: Const) -> bool:
    """Two NaNs of which the frame has made one, or holds it, are different objects."""
    for value, other in ((a, b), (b, a)):
        if value.place is None:
            if isinstance(value, LazyConst) and value.is_unread:
                raise Break(Reason.UNSUPPORTED, "the identity of a NaN that is computed")
            fix_object(m, value)
        elif other.place is None:
            m.guard(SameGuard(value.place, known(other.unguarded, "a NaN"), same=False))
    return False


def fix_object(m: Machine, value: Const) -> None:
    """Guard that a constant is this object: where it is, and where a function has got it that returned it."""
    real = value.real
    places = [place for guard in m.guards for place in places_of(guard, real)]
    for place in (value.place, *places):
        if place is not None and place.is_place:
            m.guard(IsGuard(place, real))


def places_of(guard: Guard, real: Any) -> list[Origin]:
    """Where a guard has found an object, and any object that equals it would do."""
    if isinstance(guard, EqualsGuard):
        return [guard.origin] if guard.value is real else []
    if isinstance(guard, RelationGuard):
        return [guard.left] if guard.right is real and isinstance(guard.left, Origin) else []
    keys = guard.keys if isinstance(guard, KeysGuard) else ()
    return [KeyAt(guard.origin, i) for i, key in enumerate(keys) if key is real]


def fix_nan(m: Machine, value: Value) -> None:
    """A table finds a NaN only if it is this object."""
    if isinstance(value, Const) and is_nan(value.unguarded):
        fix_object(m, value)
