"""Views of dicts: keys, values and items, and read-only ones."""
from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sot.values.base import NotConstant, Value
from sot.values.objects.instances import DictValue, written_by
from sot.values.objects.sequences import TupleValue

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine


class MappingProxy(Value):
    """Keys, values or items of a dict: a live view."""

    def __init__(self, kind: str, of: DictValue) -> None:
        self.kind, self.of = kind, of
        self.pytype = type(getattr({}, kind)())

    def items_list(self, m: Machine) -> list[Value] | None:
        if self.kind == "keys":
            return [self.of.key_value(m, k) for k in self.of.keys(m)]
        if self.kind == "values":
            return self.of.values(m)
        return [TupleValue([self.of.key_value(m, k), self.of.get(m, k)]) for k in self.of.keys(m)]

    def host(self, m: Machine, depth: int = 0) -> Any:
        if self.kind == "values":
            raise NotConstant(self)
        return getattr(self.of.host(m, self.deeper(depth)), self.kind)()

    def length(self, m: Machine) -> Value:
        return self.of.length(m)

    def truth(self, m: Machine) -> bool | None:
        return self.length(m).truth(m)

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, view_of(e, self.of, self.kind))


def view_of(e: Emitter, of: DictValue, kind: str) -> str:
    """``of.keys()`` and the like, of a dict or of the ``__dict__`` of a class."""
    if of.pytype is dict:
        return f"{e.value(of)}.{kind}()"
    base = e.const(written_by(of.pytype, kind))     # the override may use this view
    return f"{base}.{kind}({e.value(of)})"


class ReadOnlyDict(Value):
    """A mappingproxy of a dict, or the ``__dict__`` of a class."""

    pytype = MappingProxyType

    def __init__(self, of: DictValue, cls: type | None = None) -> None:
        self.of, self.cls = of, cls

    def host(self, m: Machine, depth: int = 0) -> Any:
        return MappingProxyType(self.of.host(m, self.deeper(depth)))

    def length(self, m: Machine) -> Value:
        return self.of.length(m)

    def truth(self, m: Machine) -> bool | None:
        return self.of.truth(m)

    def items_list(self, m: Machine) -> list[Value] | None:
        return self.of.items_list(m)

    def rebuild(self, e: Emitter) -> str:
        if self.cls is not None:
            return e.variable(self, f"{e.const(self.cls)}.__dict__")
        return e.variable(self, f"{e.const(MappingProxyType)}({e.value(self.of)})")
