"""Iterators over ranges that existed before the frame: what they yield next is read without a step."""
from __future__ import annotations

from typing import Any

from sot.guards.guards import Guard
from sot.guards.origin import Emit, Inputs, Origin, immutable

RANGE_ITERATOR: Any = type(iter(range(0)))


def rest_of(iterator: Any) -> range:
    """What the iterator has not yielded yet."""
    _, (over,), *position = iterator.__reduce__()
    return over[position[0]:] if position and position[0] else over


def upcoming(iterator: Any, index: int) -> int:
    return rest_of(iterator)[index]


@immutable
class Upcoming(Origin):
    """What the iterator yields after ``index`` steps."""

    base: Origin
    index: int

    def expr(self, emit: Emit) -> str:
        return f"{emit.const(upcoming)}({emit.ref(self.base)}, {self.index})"

    def read(self, inputs: Inputs) -> object:
        return upcoming(self.base.read(inputs), self.index)

    def __str__(self) -> str:
        return f"what {self.base} yields" + (f" after {self.index} steps" if self.index else "")


def has_more(iterator: Any, index: int) -> bool:
    return len(rest_of(iterator)) > index


@immutable
class MoreGuard(Guard):
    """The iterator yields something after ``index`` steps, or has ended."""

    index: int
    more: bool

    def test(self, emit: Emit) -> str:
        return f"{emit.const(has_more)}({emit.ref(self.origin)}, {self.index}) is {self.more}"

    def holds(self, value: object) -> bool:
        return has_more(value, self.index) is self.more

    def __str__(self) -> str:
        return f"{self.origin} yields {'more' if self.more else 'no more'} than {self.index} numbers"
