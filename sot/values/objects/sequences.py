"""Tuples, lists and deques."""
from __future__ import annotations

from collections import deque
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.origin import Item, Length, Origin
from sot.support.errors import article
from sot.values.base import ABSENT, Const, Lazy, NotConstant, Value
from sot.values.numbers import arithmetic, compare, is_dynamic
from sot.values.objects.instances import ObjectValue
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


READING = ("__len__", "__iter__", "__getitem__", "__eq__", "__hash__", "__contains__")


def reads_itself(kind: type) -> bool:
    """Whether a subclass of tuple has code of its own that functions in C call to read a tuple."""
    return kind is not tuple and any(isinstance(getattr(kind, name), FunctionType) for name in READING)


class TupleValue(ObjectValue):
    """A tuple, torch.Size, named tuple or struct sequence. Immutable."""

    def __init__(self, items: list, pytype: type = tuple, real: Any = ABSENT, origin: Origin | None = None,
                 load: Callable[[], list] | None = None) -> None:
        super().__init__(pytype, real, origin)
        self._items = items
        self._load = load           # of an existing tuple of varying length whose elements have not been read

    @property
    def items(self) -> list:
        if self._load is not None:
            self._items = self._load()
            self._load = None
        return self._items

    def constant(self) -> Any:
        if self.has_attrs:
            raise NotConstant(self)
        values = [v.real if isinstance(v, Lazy) else v.constant() for v in self.items]
        if any(isinstance(v, Lazy) for v in self.items):
            raise NotConstant(self)
        return make_tuple(self.pytype, values)

    def truth(self, m: Machine) -> bool | None:
        if self.pytype.__module__ in ("builtins", "torch") or not hasattr(self.pytype, "__bool__"):
            return self.length(m).truth(m)
        return None

    def items_list(self, m: Machine) -> list[Value] | None:
        return m.settle(self.items)

    def host(self, m: Machine, depth: int = 0) -> Any:
        if self.has_attrs or reads_itself(self.pytype):
            raise NotConstant(self)
        depth = self.deeper(depth)
        return make_tuple(self.pytype, [v.host(m, depth) for v in m.settle(self.items)])

    def length(self, m: Machine) -> Value:
        return self.length_before(m) or Const(len(self.items))

    def length_before(self, m: Machine) -> Value | None:
        """The length, if it varies and the elements have not been read."""
        return m.varying_number(len(self.real), Length(self.origin)) if self._load is not None else None  # type: ignore

    def element(self, m: Machine, key: Value) -> Value | None:
        """``value[key]`` of such a tuple, if the key is a constant and the element exists."""
        before = self.length_before(m) if is_constant_index(key) else None
        return None if before is None else element_of(m, self, before, key.real)

    def array_argument(self, m: Machine) -> Any:
        if self.pytype not in (tuple, torch.Size):
            return super().array_argument(m)
        return tuple(v.array_argument(m) for v in m.settle(self.items))

    def graph_contents(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        items = [v.graph_argument(m, found, as_number) for v in m.settle(self.items)]
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


def is_constant_index(key: Value) -> bool:
    return isinstance(key, Const) and key.pytype is int and not is_dynamic(key)


def element_of(m: Machine, value: ListValue | TupleValue, length: Value, index: int) -> Value | None:
    """An element of an existing list or tuple of varying length, if it exists. The guard only requires that the
    sequence is long enough.
    """
    if not compare(m, ">=", length, Const(-index if index < 0 else index + 1)).real:
        return None
    assert value.origin is not None
    return wrap(m, value.real[index], Item(value.origin, index))


def takes_a_sequence(pytype: type) -> bool:
    """Whether the class refuses ``tuple.__new__``: torch.Size, and struct sequences such as
    ``torch.return_types.max``.
    """
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
        self._load = load           # of an existing list whose elements and length have not been read
        self.maxlen: int | None = None      # of a deque
        self.changed = False

    @property
    def items(self) -> list:
        """The elements. Until they are read, an existing list can be appended to without a guard."""
        if self._load is not None:
            found = self._load()        # this may be refused
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
        """Whether it is an existing list whose elements have not been read."""
        return self._load is not None

    @property
    def added(self) -> list:
        """The elements that were appended before any element was read."""
        return self._items

    def drop_first(self) -> None:
        """Drop elements from the start until the deque has its allowed length."""
        if self.maxlen is not None:
            del self._items[:max(0, len(self._items) - self.maxlen)]

    def extend(self, m: Machine, values: list[Value]) -> None:
        """Append elements. The undo keeps no copy of the rest, so filling a list takes linear time."""
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
        """Replace an element. The undo keeps no copy of the rest."""
        changed, before = self.changed, self.items[index]
        if before is value:     # ``sums[0] += x`` of a tensor changes the tensor, and no list
            return

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
        return self.length(m).truth(m)

    def items_list(self, m: Machine) -> list[Value] | None:
        return m.settle(self.items)

    def host(self, m: Machine, depth: int = 0) -> Any:
        if self.pytype not in (list, deque):
            raise NotConstant(self)
        depth = self.deeper(depth)
        items = [v.host(m, depth) for v in m.settle(self.items)]
        return items if self.pytype is list else deque(items, self.maxlen)

    def array_argument(self, m: Machine) -> Any:
        return [v.array_argument(m) for v in m.settle(self.items)] if self.pytype is list else super().array_argument(m)

    # ---- lists that grow from call to call
    def length(self, m: Machine) -> Value:
        """The length. Nothing of a list is guarded until it is read. Once a length guard has failed, the length is a
        varying number until the elements are read.
        """
        before = self.length_before(m)
        if before is None:
            return Const(len(self.items))
        return before if not self.added else arithmetic(m, "+", before, Const(len(self.added)))   # type: ignore

    def length_before(self, m: Machine) -> Value | None:
        """The length before the frame ran, if it varies and the elements have not been read."""
        open_ended = self.pytype is list or self.pytype is deque and not self.added
        if not (open_ended and self.is_open) or self.origin is None or not m.varies.number(Length(self.origin)):
            return None
        return m.varying_number(len(self.real), Length(self.origin))

    def element(self, m: Machine, key: Value) -> Value | None:
        """``value[key]`` of such a list, if the key is a constant and the element exists."""
        before = self.length_before(m) if is_constant_index(key) else None
        if before is None:
            return None
        index = key.real
        if -len(self.added) <= index < 0:
            return m.settle_at(self.added, index)
        if index < 0:
            index += len(self.added)
        return element_of(m, self, before, index)

    def graph_contents(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.pytype is not list:
            return super().graph_contents(m, found, as_number)
        return [v.graph_argument(m, found, as_number) for v in m.settle(self.items)]

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
