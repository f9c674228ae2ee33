"""Sets."""
from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.containers import table_size
from sot.guards.guards import OrderGuard
from sot.guards.origin import Origin
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Const, NotConstant, Value, constants
from sot.values.objects.identities import refuse_among_others
from sot.values.objects.instances import ObjectValue
from sot.values.objects.sequences import TupleValue
from sot.values.objects.set_history import Existing, History, Key, Listed, New, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


def has_other_address(key: Any, value: Value) -> bool:
    """Whether the hash of a member is its address, and the member need not be the same object at the next call."""
    if isinstance(key, tuple) and isinstance(value, TupleValue):
        return any(has_other_address(*part) for part in zip(key, value.items, strict=True))
    return isinstance(key, Value) or not (isinstance(value, Const) or isinstance(key, FunctionType)) and (
        type(key).__hash__ in (object.__hash__, torch.Tensor.__hash__))


class SetValue(ObjectValue):
    """A set or frozenset; ``items`` maps member keys to Values."""

    def __init__(self, items: dict[Any, Value], pytype: type = set, real: Any = ABSENT,
                 origin: Origin | None = None, history: History | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.items = items
        self.history = history      # None: the members were added one by one

    def own_history(self) -> History:
        """How the set came to be."""
        if self.real is not ABSENT and self.history is None:
            return Existing(self)
        return self.history or New(self.pytype, Listed(dict(self.items)))

    def history_now(self, m: Machine) -> History:
        """How the set came to be, for what depends on its order. The order of a set of the program is guarded."""
        # The guard is on the set as it was; what was done to it since is done again by the emitted code.
        if self.real is not ABSENT:
            self.guard_order(m, table_size(self.real))
        return self.own_history()

    def guard_order(self, m: Machine, size: int | None = None) -> None:
        if self.origin is not None and (size is not None or len(self.real) > 1):
            m.guard(OrderGuard(self.origin, tuple(self.real), size))

    def add(self, m: Machine, key: Any, value: Value) -> None:
        history = self.history
        longer = None
        if self.real is not ABSENT or history is not None:
            longer = Step(self.own_history(), "set.add", (Key(key, value),))

        def undo() -> None:
            self.history = history
            del self.items[key]
        m.touch(self, undo)
        self.items[key], self.history = value, longer

    def change(self, m: Machine, items: dict[Any, Value], name: str, *arguments: History) -> None:
        """Have other members, by a method or operator that changes the set."""
        history = Step(self.own_history(), name, arguments)
        m.touch(self)
        self.items, self.history = items, history

    def pop(self, m: Machine) -> Value:
        """Remove the member that CPython removes."""
        key = next(iter(self.items))
        if len(self.items) > 1:
            if self.real is not ABSENT:     # the search begins after the last member that was popped
                raise Break(Reason.UNSUPPORTED, "set.pop() of several members of a set that existed before")
            self.refuse_unknown_order()
            key = self.history_now(m).made().pop()
        rest = dict(self.items)
        value = rest.pop(key)
        self.change(m, rest, "set.pop")
        return value

    def refuse_unknown_order(self) -> None:
        """Break if the order depends on the address of an object, which is another one at the next call."""
        if len(self.items) > 1:
            for key, value in self.items.items():
                refuse_among_others(key)
                if has_other_address(key, value) and (self.real is ABSENT or key not in self.real):
                    raise Break(Reason.UNSUPPORTED, f"the order of a set that holds {value}")

    def constant(self) -> Any:
        if self.pytype is not frozenset:
            raise NotConstant(self)
        return frozenset(constants(list(self.items.values())))

    def host(self, m: Machine, depth: int = 0) -> Any:
        depth = self.deeper(depth)
        members = [v.host(m, depth) for v in self.items_list(m) or ()]
        made = self.pytype(members)
        if [*made] != members:      # in a different order
            raise NotConstant(self)
        return made

    def length(self, m: Machine) -> Value:
        return Const(len(self.items))

    def snapshot(self) -> Callable[[], None]:
        items, history = dict(self.items), self.history

        def undo() -> None:
            self.items, self.history = items, history
        return undo

    def truth(self, m: Machine) -> bool | None:
        return bool(self.items)

    def items_list(self, m: Machine) -> list[Value] | None:
        """The members in the order in which they are iterated."""
        if self.real is not ABSENT and self.history is None:
            self.guard_order(m)
            return [self.items[key] for key in self.real]
        self.refuse_unknown_order()
        return [self.items[key] for key in self.history_now(m).result]

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, self.own_history().rebuild(e))

    def replay(self, e: Emitter) -> None:
        super().replay(e)
        if isinstance(self.history, Step):
            for step in self.history.chain()[1]:
                e.line(step.call(e, e.value(self)))
