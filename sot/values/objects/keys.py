"""Keys whose class defines ``__hash__`` and ``__eq__`` in Python.

Capture represents a dict by a dict, so CPython's own probing decides which keys are compared, and in which order. A
``PythonKey`` stands for such an object as a key, and calls the user's methods when the dict calls them.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import Value

if TYPE_CHECKING:
    from sot.values.protocols import Emitter


class PythonKey:
    """An object of the program as a key, with its hash at the time of the lookup.

    ``equal`` follows ``==`` of two values. ``state`` is the contents of the object, to detect later changes.
    """

    def __init__(self, value: Value, hashed: int, equal: Callable[[Value, Value], bool],
                 state: Callable[[Value], Any]) -> None:
        self.value, self.hash, self.equal = value, hashed, equal
        self.state, self.before = state, state(value)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PythonKey):
            return self.value is other.value or self.equal(other.value, self.value)
        raise Break(Reason.UNSUPPORTED, f"comparing {self.value} with a key of another type")

    def unchanged(self) -> Value:
        """The object, if nothing has been written to it since."""
        if self.before != self.state(self.value):
            raise NotRebuildable(f"{self.value}, which was changed after it became a key,")
        return self.value


def finish(e: Emitter, key: Any) -> None:
    """Let emitted code finish the objects that a key consists of, because the code that follows needs their hash."""
    if isinstance(key, PythonKey):
        e.complete(key.unchanged())
    elif isinstance(key, (tuple, frozenset)):
        for part in key:
            finish(e, part)
