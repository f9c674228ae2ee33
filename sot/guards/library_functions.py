"""Guards on what functions of libraries return, which have no side effects that the program sees."""
from __future__ import annotations

from typing import Any

from sot.guards.guards import Guard, short
from sot.guards.origin import Emit, immutable


@immutable
class ResultGuard(Guard):
    """A library function returns this object for this argument."""

    argument: object
    result: object

    def test(self, emit: Emit) -> str:
        return f"{emit.ref(self.origin)}({emit.const(self.argument)}) is {emit.const(self.result)}"

    def holds(self, value: Any) -> bool:
        return value(self.argument) is self.result

    def __str__(self) -> str:
        return f"{self.origin}({short(self.argument)}) is {short(self.result)}"

    def __hash__(self) -> int:
        return hash((self.origin, id(self.argument), id(self.result)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultGuard) and self.origin == other.origin and (
            self.argument is other.argument and self.result is other.result)


@immutable
class FlagGuard(Guard):
    """A flag that a library function reads has this value."""

    value: object

    def test(self, emit: Emit) -> str:
        return f"{emit.ref(self.origin)}() == {emit.const(self.value)}"

    def holds(self, value: Any) -> bool:
        return bool(value() == self.value)

    def __str__(self) -> str:
        return f"{self.origin}() is {short(self.value)}"

    def __hash__(self) -> int:
        return hash(self.origin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlagGuard) and self.origin == other.origin
