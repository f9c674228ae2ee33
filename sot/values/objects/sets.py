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


class SetValue(ObjectValue):
    """A set or frozenset; ``items`` maps member keys to Values."""

    def __init__(self, items: dict[Any, Value], pytype: type = set, real: Any = ABSENT,
                 origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self.items = items
        self.changed = False

    def add(self, m: Machine, key: Any, value: Value) -> None:
        changed = self.changed

        def undo() -> None:
            self.changed = changed
            del self.items[key]
        m.touch(self, undo)
        self.changed = True
        self.items[key] = value

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
        items, changed = dict(self.items), self.changed

        def undo() -> None:
            self.items, self.changed = items, changed
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
        try:
            return [self.items[k] for k in set(list(self.items))]    # noqa: C414 (a dict would size the set ahead)
        except (TypeError, KeyError):
            return list(self.items.values())

    def elements(self, e: Emitter) -> str:
        for key in self.items:
            finish(e, key)
        return ", ".join(e.value(v) for v in self.items.values())

    def rebuild(self, e: Emitter) -> str:
        inner = self.elements(e)
        return e.variable(self, f"{e.const(self.pytype)}([{inner}])")

    def replay(self, e: Emitter) -> None:
        super().replay(e)
        if self.changed:
            name = e.value(self)
            inner = self.elements(e)
            e.line(f"set.clear({name}), set.update({name}, [{inner}])")
