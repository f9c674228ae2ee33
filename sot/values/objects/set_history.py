"""How a set came to be. The order in which CPython iterates a set depends on that, not only on the members.

The table of a set grows when members are added, keeps the places of members that were removed, and is sized ahead for
members that come from a set or a dict. So capture does to a set of keys what the program does to its set, and reads
the order there; emitted code does the same again. A set that others are made of is made once, in both.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import Value
from sot.values.objects.keys import finish

if TYPE_CHECKING:
    from sot.values.objects.sets import SetValue
    from sot.values.protocols import Emitter

FUNCTIONS: dict[str, Any] = {
    "|": operator.or_, "&": operator.and_, "-": operator.sub, "^": operator.xor,
    "|=": operator.ior, "&=": operator.iand, "-=": operator.isub, "^=": operator.ixor,
    **{f"{cls.__name__}.{name}": method for cls in (set, frozenset) for name, method in vars(cls).items()}}
IN_PLACE = frozenset({
    "|=", "&=", "-=", "^=", "set.add", "set.discard", "set.pop", "set.clear", "set.update", "set.intersection_update",
    "set.difference_update", "set.symmetric_difference_update"})


class History:
    """How a set, or an object that a set is made of, came to be. The emitter takes it for a value without an origin."""

    origin = None

    @cached_property
    def result(self) -> Any:
        """The object, or one with the same layout, of keys. Nobody changes it."""
        return self.made()

    def made(self) -> Any:
        """The same, made anew unless it existed before the capture."""
        raise NotImplementedError

    def rebuild(self, e: Emitter) -> str:
        """An expression of the object."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Key(History):
    """A member, as an argument of ``set.add`` or ``set.discard``."""

    key: Any
    value: Value

    def made(self) -> Any:
        return self.key

    def rebuild(self, e: Emitter) -> str:
        finish(e, self.key)
        return e.value(self.value)


@dataclass(frozen=True, eq=False)
class Listed(History):
    """Members that come one by one, or as the keys of a dict."""

    members: dict[Any, Value]
    kind: type = list

    def made(self) -> Any:
        return list(self.members) if self.kind is list else dict.fromkeys(self.members)

    def rebuild(self, e: Emitter) -> str:
        for key in self.members:
            finish(e, key)
        listed = f"[{', '.join(map(e.value, self.members.values()))}]"
        return listed if self.kind is list else f"dict.fromkeys({listed})"


@dataclass(frozen=True, eq=False)
class View(History):
    """The view of a dict's keys or items."""

    kind: str
    members: dict[Any, Value]

    def made(self) -> Any:
        return dict.fromkeys(self.members).keys() if self.kind == "keys" else dict(list(self.members)).items()

    def rebuild(self, e: Emitter) -> str:
        listed = Listed(self.members).rebuild(e)
        return f"dict.fromkeys({listed}).keys()" if self.kind == "keys" else f"dict({listed}).items()"


@dataclass(frozen=True, eq=False)
class Known(History):
    """A constant frozenset."""

    real: frozenset

    def made(self) -> Any:
        return self.real

    def rebuild(self, e: Emitter) -> str:
        return e.const(self.real)


@dataclass(frozen=True, eq=False)
class Existing(History):
    """A set that existed before the capture, as it was then."""

    value: SetValue

    def made(self) -> Any:
        return self.value.real

    def rebuild(self, e: Emitter) -> str:
        if self.value.history is not None:
            raise NotRebuildable(f"a set that was made from {self.value}, which was changed afterwards,")
        return e.value(self.value)


@dataclass(frozen=True, eq=False)
class New(History):
    """``set(of)`` or ``frozenset(of)``. ``kind`` may be a subclass."""

    kind: type
    of: History

    def made(self) -> Any:
        return base_of(self.kind)(self.of.result)

    def rebuild(self, e: Emitter) -> str:
        return f"{e.const(self.kind)}({e.value(self.of)})"


@dataclass(frozen=True, eq=False)
class Step(History):
    """The result of a method or operator of a set, or that set after it was changed in place."""

    of: History
    name: str
    arguments: tuple[History, ...] = ()

    def chain(self) -> tuple[History, list[Step]]:
        """Where the steps begin, and the steps. They are many, so nothing here recurses over them."""
        steps, of = [self], self.of
        while isinstance(of, Step):
            steps.append(of)
            of = of.of
        return of, steps[::-1]

    def made(self) -> Any:
        begin, steps = self.chain()
        made = begin.made()
        if isinstance(begin, Existing) and steps[0].name in IN_PLACE:
            made = exact_copy(made)
        for step in steps:
            arguments = [argument.result for argument in step.arguments]
            result = FUNCTIONS[step.name](made, *arguments)
            if step.name not in IN_PLACE:
                made = result
        return made

    def rebuild(self, e: Emitter) -> str:
        begin, steps = self.chain()
        if isinstance(begin, Existing) and steps[0].name in IN_PLACE:
            raise NotRebuildable(f"a set that was made from {begin.value}, which was changed before,")
        text = begin.rebuild(e)
        for step in steps:
            if step.name in IN_PLACE and not text.isidentifier():
                text = e.variable(object(), text)
            change = step.call(e, text)
            if step.name in IN_PLACE:
                e.line(change)
            else:
                text = e.variable(object(), change)
        return text

    def call(self, e: Emitter, name: str) -> str:
        """The step, done to the set of this name."""
        arguments = [e.value(argument) for argument in self.arguments]
        if self.name.startswith(("set.", "frozenset.")):
            return f"{self.name}({', '.join([name, *arguments])})"
        return f"{name} {self.name} {arguments[0]}"


def base_of(kind: type) -> type:
    return frozenset if issubclass(kind, frozenset) else set


def exact_copy(real: set) -> set:
    """A copy with the same layout. A set out of which members were removed may have none."""
    made = set.copy(real)
    if [*made] != [*real] or set.__sizeof__(made) != set.__sizeof__(real):
        raise Break(Reason.UNSUPPORTED, "the order of a set that existed before and is changed")
    return made
