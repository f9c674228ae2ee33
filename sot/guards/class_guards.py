"""Guards that hold what they compare with weakly: the subclasses of a class, the object of a weak reference."""
from __future__ import annotations

import weakref
from typing import Any

from sot._hook import plain
from sot.guards.guards import Guard, short
from sot.guards.origin import ById, Emit, immutable


def subclasses_are(cls: Any, wanted: tuple[ById, ...]) -> bool:
    """Whether these are the direct subclasses of a class, in this order."""
    found = type.__subclasses__(cls)
    return len(found) == len(wanted) and all(a is b.value for a, b in zip(found, wanted, strict=True))


SUBCLASSES_ARE = plain(subclasses_are)


@immutable
class SubclassesGuard(Guard):
    """A class has these direct subclasses, which are held weakly."""

    subclasses: tuple[ById, ...]

    def test(self, emit: Emit) -> str:
        return f"{emit.const(SUBCLASSES_ARE)}({emit.ref(self.origin)}, {emit.const(self.subclasses)})"

    def holds(self, value: object) -> bool:
        return subclasses_are(value, self.subclasses)

    def __str__(self) -> str:
        return f"{self.origin} has {len(self.subclasses)} direct subclasses, which are those of the capture"


@immutable
class RefersGuard(Guard):
    """The value is the object that a weak reference refers to. Entries must not keep that object alive."""

    reference: weakref.ref[Any]

    def test(self, emit: Emit) -> str:
        return f"{emit.ref(self.origin)} is {emit.const(self.reference)}()"

    def holds(self, value: object) -> bool:
        return value is self.reference()

    def __str__(self) -> str:
        return f"{self.origin} is {short(self.reference())}"

    def __hash__(self) -> int:
        return hash((self.origin, id(self.reference)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefersGuard) and self.origin == other.origin and self.reference is other.reference
