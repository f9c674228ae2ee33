"""Sets."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.guards.guards import OrderGuard
from sot.guards.origin import Origin
from sot.values.base import ABSENT, Const, NotConstant, Value, constants
from sot.values.objects.identities import refuse_among_others
from sot.values.objects.instances import ObjectValue
from sot.values.objects.keys import finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


POP: Any = object()


def in_order_of(history: tuple[Any, ...]) -> set:
    """A set with the same history of keys. CPython's order of members, and so the next pop, depends on the history."""
    first, *steps = history
    made = set(list(first))     # noqa: C414 (a dict would size the set ahead)
    for step in steps:
        if step is POP:
            made.pop()
        else:
            made.add(step[0])
    return made


class SetValue(ObjectValue):
    """A set or frozenset; ``items`` maps member keys to Values."""

    def __init__(self, items: dict[Any, Value], pytype: type = set, real: Any = ABSENT,
                 origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.items = items
        self.changed = False
        self.history: tuple[Any, ...] | None = ()   # the members at the first pop, then the steps since; None: unknown

    def add(self, m: Machine, key: Any, value: Value) -> None:
        changed = self.changed

        def undo() -> None:
            self.changed = changed
            del self.items[key]
        m.touch(self, None if self.history else undo)
        self.changed = True
        self.items[key] = value
        if self.history:
            self.history += ((key, value),)

    def pop(self, m: Machine) -> Value | None:
        """Remove the member that CPython removes. None if that depends on more than what has been done in the trace."""
        if self.real is not ABSENT or self.history is None:
            return None
        self.items_list(m)      # refuses members whose order is unknown
        history = self.history or (dict(self.items),)
        key = in_order_of(history).pop()
        m.touch(self)
        self.history = (*history, POP)
        value = self.items[key]
        self.items = {k: v for k, v in self.items.items() if k != key}
        return value

    def become(self, m: Machine, items: dict[Any, Value]) -> None:
        """Have other members."""
        m.touch(self)
        self.items = items
        self.history = None if self.history else ()

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
        items, changed, history = dict(self.items), self.changed, self.history

        def undo() -> None:
            self.items, self.changed, self.history = items, changed, history
        self.changed = True
        return undo

    def truth(self, m: Machine) -> bool | None:
        return bool(self.items)

    def items_list(self, m: Machine) -> list[Value] | None:
        """The members in the order in which they are iterated."""
        if self.real is not ABSENT and not self.changed:
            if self.origin is not None and len(self.items) > 1:
                m.guard(OrderGuard(self.origin, tuple(self.real)))
            return [self.items[key] for key in self.real]
        if len(self.items) > 1:
            for key in self.items:
                refuse_among_others(key)        # of whose order nothing is known
        if self.history:
            return [self.items[k] for k in in_order_of(self.history)]
        try:
            return [self.items[k] for k in set(list(self.items))]    # noqa: C414 (a dict would size the set ahead)
        except (TypeError, KeyError):
            return list(self.items.values())

    def elements(self, e: Emitter) -> str:
        for key in self.items:
            finish(e, key)
        return ", ".join(e.value(v) for v in self.items.values())

    def rebuild(self, e: Emitter) -> str:
        if not self.history:
            return e.variable(self, f"{e.const(self.pytype)}([{self.elements(e)}])")
        first, *steps = self.history        # so that the next pop of Python's finds what the program's would
        made = e.variable(self, f"{e.const(self.pytype)}([{', '.join(map(e.value, first.values()))}])")
        for step in steps:
            e.line(f"{made}.pop()" if step is POP else f"{made}.add({e.value(step[1])})")
        return made

    def replay(self, e: Emitter) -> None:
        super().replay(e)
        if self.changed:
            name = e.value(self)
            inner = self.elements(e)
            e.line(f"set.clear({name}), set.update({name}, [{inner}])")
