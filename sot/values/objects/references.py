"""Weak references that are made during capture."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Value

if TYPE_CHECKING:
    from sot.values.protocols import Emitter


class WeakReference(Value):
    """A weak reference to an object that lives longer than the call. An object has one such reference, so the one that
    exists during capture stands for it.
    """

    pytype = weakref.ReferenceType

    def __init__(self, target: Value) -> None:
        self.target = target

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.target

    def truth(self, m: Any) -> bool | None:
        return True

    def key(self) -> Any:
        """References are equal if their objects are, and hash as they do."""
        target = self.target
        if target.real is ABSENT or target.pytype.__hash__ is not object.__hash__ or (
                target.pytype.__eq__ is not object.__eq__):
            raise Break(Reason.UNSUPPORTED, f"hashing a weak reference to {target}")
        return weakref.ref(target.real)

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(weakref.ref)}({e.value(self.target)})")
