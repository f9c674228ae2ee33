"""The results of ``id`` and ``hash`` for an object that equals only itself.

Capture does not know such a number. It knows only whether two of them are equal. A new object may get the number of a
freed one, so two numbers are known to differ only if both objects exist at the same time: before the frame, or now.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.guards.assumptions import Point
from sot.values.base import ABSENT, Const, Value
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
