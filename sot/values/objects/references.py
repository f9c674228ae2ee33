"""Weak references that are made during capture, and a dict of such."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sot.polyfills.functional import nothing
from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.callables import BoundMethod
from sot.values.objects.instances import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Container

    from sot.values.protocols import Emitter


class Clear(BoundMethod):
    """The method of such a dict."""

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.value(self.self_)}.clear")


class EmptyWeakDict(Value):
    """A ``WeakKeyDictionary`` that a library has made as a cache. Capture puts nothing into it."""

    pytype = weakref.WeakKeyDictionary

    def load_attr(self, m: Any, name: str) -> Value:
        if name != "clear":
            raise Break(Reason.UNSUPPORTED, f"{name} of a WeakKeyDictionary")
        return Clear(Const(nothing), self, name)

    def truth(self, m: Any) -> bool | None:
        return False

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(weakref.WeakKeyDictionary)}()")


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


class Pass:
    """A number that is known only to differ from all others."""


class PassNumber(ObjectValue):
    """The number of a backward pass that is part of the graph, and its ``nodes``. It cannot leave the graph.

    ``depth`` is the number of the program's frames when it began, and ``hidden`` that of torch's own frames between
    these and those of hooks.
    """

    def __init__(self, nodes: Container[Any], depth: int, hidden: int) -> None:
        super().__init__(Pass)
        self.nodes, self.depth, self.hidden = nodes, depth, hidden

    def rebuild(self, e: Emitter) -> str:
        raise NotRebuildable("the number of a backward pass")
