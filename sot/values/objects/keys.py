"""Keys whose class says in Python what their hash is and what they are equal to.

A dict of capture is a dict: CPython's own probing decides which keys are compared, and in which order. A
``PythonKey`` stands in it for such an object, and asks the user's methods as the dict asks it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import Value

if TYPE_CHECKING:
    from sot.values.protocols import Emitter


class PythonKey:
    """An object of the program as a key, with the hash that it has when it is looked for.

    ``equal`` follows ``==`` of two values; ``state`` is what the object holds, to see whether it has changed since.
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
    """Let emitted code finish the objects that a key consists of: what follows asks for their hash."""
    if isinstance(key, PythonKey):
        e.complete(key.unchanged())
    elif isinstance(key, (tuple, frozenset)):
        for part in key:
            finish(e, part)
