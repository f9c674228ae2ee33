"""Tuples, lists and deques."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.guards.origin import Origin
from sot.support.errors import article
from sot.values.base import ABSENT, Lazy, NotConstant, Value
from sot.values.objects import growing
from sot.values.objects.instances import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


class TupleValue(ObjectValue):
    """A tuple, torch.Size, named tuple or struct sequence. Immutable."""

    def __init__(self, items: list, pytype: type = tuple, real: Any = ABSENT, origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.items = items

    def constant(self) -> Any:
        if self.has_attrs:
            raise NotConstant(self)
        values = [v.real if isinstance(v, Lazy) else v.constant() for v in self.items]
        if any(isinstance(v, Lazy) for v in self.items):
            raise NotConstant(self)
        return make_tuple(self.pytype, values)

    def truth(self, m: Machine) -> bool | None:
        if self.pytype.__module__ in ("builtins", "torch") or not hasattr(self.pytype, "__bool__"):
            return bool(self.items)
        return None

    def items_list(self, m: Machine) -> list[Value] | None:
        return m.settle(self.items)

    def graph_contents(self, m: Machine, found: dict[int, Any]) -> Any:
        items = [v.graph_argument(m, found) for v in m.settle(self.items)]
        if self.pytype in (tuple, torch.Size) or not hasattr(self.pytype, "_fields"):
            return tuple(items)
        return tuple.__new__(self.pytype, items)

    def key(self) -> Any:
        return tuple(v.key() if isinstance(v, Value) else v.real for v in self.items)

    def rebuild(self, e: Emitter) -> str:
        parts = [e.value(v) for v in self.items]
        if self.pytype is tuple:
            return e.variable(self, e.tuple_display(parts))
        inner = "".join(f"{part}, " for part in parts)
        if takes_a_sequence(self.pytype):
            return e.variable(self, f"{e.const(self.pytype)}(({inner}))")
        made = e.variable(self, f"tuple.__new__({e.const(self.pytype)}, ({inner}))")
        if self.has_attrs:
            e.fill_attrs(made, self)
        return made

    def __str__(self) -> str:
        return str(self.origin) if self.origin else article(f"{self.pytype.__name__} of {len(self.items)}")


def takes_a_sequence(pytype: type) -> bool:
    """torch.Size and struct sequences such as ``torch.return_types.max``, which refuse ``tuple.__new__``."""
    return pytype.__module__.startswith("torch") and not hasattr(pytype, "_fields")


def make_tuple(pytype: type, values: list) -> Any:
    if pytype is tuple:
        return tuple(values)
    if takes_a_sequence(pytype):
        return pytype(values)
    return tuple.__new__(pytype, values)


class ListValue(ObjectValue):
    """A list, a deque, or an instance of a subclass of them."""

    def __init__(self, items: list, pytype: type = list, real: Any = ABSENT, origin: Origin | None = None,
                 load: Callable[[], list] | None = None) -> None:
        super().__init__(pytype, real, origin)
        self._items = items
        self._load = load           # of an existing list whose elements and length nobody has asked for
        self.maxlen: int | None = None      # of a deque
        self.changed = False

    @property
    def items(self) -> list:
        """The elements. Before they are asked for, an existing list can be appended to without a guard."""
        if self._load is not None:
            found = self._load()        # which may be refused
            self._load = None
            self._items[:0] = found
            self.drop_first()
        return self._items

    @items.setter
    def items(self, items: list) -> None:
        self._load = None
        self._items[:] = items

    @property
    def is_open(self) -> bool:
        """Is it an existing list that nobody has looked into?"""
        return self._load is not None

    @property
    def added(self) -> list:
        """What was appended to it before anybody has looked into it."""
        return self._items

    def drop_first(self) -> None:
        """Leave as many elements as a deque may have."""
        if self.maxlen is not None:
            del self._items[:max(0, len(self._items) - self.maxlen)]

    def extend(self, m: Machine, values: list[Value]) -> None:
        """Add elements at the end; undone without a copy of the rest, so that filling a list takes linear time."""
        if self.maxlen is not None:
            m.touch(self)
        else:
            changed, count = self.changed, len(values)

            def undo() -> None:
                self.changed = changed
                del self._items[len(self._items) - count:]
            m.touch(self, undo)
            self.changed = True
        self._items.extend(values)
        if self._load is None:
            self.drop_first()

    def set_item(self, m: Machine, index: int, value: Value) -> None:
        """Replace an element; undone without a copy of the rest."""
        changed, before = self.changed, self.items[index]

        def undo() -> None:
            self.changed, self._items[index] = changed, before
        m.touch(self, undo)
        self.changed, self.items[index] = True, value

    def snapshot(self) -> Callable[[], None]:
        changed, self.changed = self.changed, True
        load, items = self._load, list(self._items)

        def undo() -> None:
            self.changed, self._load = changed, load
            self._items[:] = items
        return undo

    def truth(self, m: Machine) -> bool | None:
        if hasattr(self.pytype, "__bool__"):
            return None
        length = growing.length(m, self)
        return bool(self.items) if length is None else length.truth(m)

    def items_list(self, m: Machine) -> list[Value] | None:
        return m.settle(self.items)

    def graph_contents(self, m: Machine, found: dict[int, Any]) -> Any:
        if self.pytype is not list:
            return super().graph_contents(m, found)
        return [v.graph_argument(m, found) for v in m.settle(self.items)]

    def elements(self, e: Emitter) -> str:
        return ", ".join(e.value(v) for v in self.items)

    def rebuild(self, e: Emitter) -> str:
        if self.pytype is not list:
            return e.new_object(self)
        made = e.variable(self, "[]")
        if self.items:
            e.later(lambda: e.line(f"{made}.extend([{self.elements(e)}])"))
        return made

    def fill(self, e: Emitter, name: str) -> None:
        if not issubclass(self.pytype, list):
            e.line(f"deque.__init__({name}, [], {self.maxlen})")
            e.later(lambda: e.line(f"deque.extend({name}, [{self.elements(e)}])"))
        elif self.items:
            e.later(lambda: e.line(f"list.extend({name}, [{self.elements(e)}])"))

    def replay(self, e: Emitter) -> None:
        super().replay(e)
        if not self.changed:
            return
        target = e.value(self)
        if self._load is not None:
            kind = "list" if issubclass(self.pytype, list) else "deque"
            e.line(f"{kind}.extend({target}, [{', '.join(e.value(v) for v in self._items)}])")
            return
        elements = self.elements(e)
        if issubclass(self.pytype, list):
            e.line(f"list.__setitem__({target}, slice(None), [{elements}])")
        else:
            e.line(f"deque.clear({target}), deque.extend({target}, [{elements}])")
