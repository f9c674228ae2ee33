"""Attributes that the program writes to a class that existed before. They are written after the graph."""
from __future__ import annotations

from typing import TYPE_CHECKING

from sot.guards.origin import Attr, ClassAttr, Origin, known
from sot.values.base import Value
from sot.values.objects.instances import DELETED, DictValue

if TYPE_CHECKING:
    from sot.values.protocols import Emitter


class Written:
    """What lookup finds under the name of a written attribute: no descriptor."""

    def __init__(self, value: Value) -> None:
        self.value = value


class ClassAttributes(DictValue):
    """The ``__dict__`` of a class, as far as the program writes to it."""

    def __init__(self, cls: type) -> None:
        self.of, self.place = cls, known(cls, cls.__qualname__)
        super().__init__(dict, dict(vars(cls)), Attr(self.place, "__dict__"))

    def item_origin(self, key: str) -> Origin:
        return ClassAttr(self.place, key)

    def replay(self, e: Emitter) -> None:
        cls = e.const(self.of)
        for name, value in self.overlay.items():
            if value is DELETED or name in self.moved:
                e.line(f"type.__delattr__({cls}, {name!r})")
            if value is not DELETED:
                e.line(f"type.__setattr__({cls}, {name!r}, {e.value(value)})")
