"""Iterators over known elements, and suspended generators."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.errors import NotRebuildable
from sot.values.base import ABSENT, Value
from sot.values.objects import ListValue, TupleValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.emit import Emitter
    from sot.execute.frame import Frame
    from sot.execute.machine import Machine


class IteratorValue(Value):
    """An iterator whose next element is known without running user code."""

    def step(self, m: Machine) -> Value | Any:
        """The next element, or ABSENT at the end. Journals its change of position."""
        raise NotImplementedError

    def snapshot(self) -> Callable[[], None]:
        raise NotImplementedError

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self


class SequenceIterator(IteratorValue):
    """Over a list (live), or over the elements that a container had when iteration began."""

    def __init__(self, source: Value | None, items: list, pytype: type) -> None:
        self.source, self.items, self.pytype, self.index = source, items, pytype, 0

    def step(self, m: Machine) -> Value | Any:
        if self.index >= len(self.items):
            return ABSENT
        m.touch(self)
        self.index += 1
        return m.settle_at(self.items, self.index - 1)

    def snapshot(self) -> Callable[[], None]:
        index = self.index

        def undo() -> None:
            self.index = index
        return undo

    def rebuild(self, e: Emitter) -> str:
        if isinstance(self.source, (ListValue, TupleValue)) and self.pytype is not reversed:
            made = e.variable(self, f"iter({e.value(self.source)})")
            if self.index:
                e.line(f"{made}.__setstate__({self.index})")
            return made
        rest = ", ".join(e.value(v) for v in self.items[self.index:])
        return e.variable(self, f"iter([{rest}])")


class CombinedIterator(IteratorValue):
    """zip and enumerate over iterators of this file."""

    def __init__(self, pytype: type, parts: list[IteratorValue], start: int = 0) -> None:
        self.pytype, self.parts, self.count = pytype, parts, start

    def step(self, m: Machine) -> Value | Any:
        m.touch(self)
        got = []
        for part in self.parts:
            value = part.step(m)
            if value is ABSENT:
                return ABSENT
            got.append(value)
        if not self.parts:
            return ABSENT
        self.count += 1
        if self.pytype is enumerate:
            got.insert(0, m.wrap_new(self.count - 1))
        return TupleValue(got)

    def snapshot(self) -> Callable[[], None]:
        count = self.count

        def undo() -> None:
            self.count = count
        return undo

    def rebuild(self, e: Emitter) -> str:
        parts = ", ".join(e.value(p) for p in self.parts)
        if self.pytype is enumerate:
            return e.variable(self, f"enumerate({parts}, {self.count})")
        return e.variable(self, f"zip({parts})")


class CountIterator(IteratorValue):
    """itertools.count and itertools.repeat over constants."""

    def __init__(self, pytype: type, value: Any, increment: Any = 0, limit: int | None = None) -> None:
        self.pytype, self.value, self.increment, self.limit = pytype, value, increment, limit

    def step(self, m: Machine) -> Value | Any:
        m.touch(self)
        if self.limit is not None:
            if self.limit <= 0:
                return ABSENT
            self.limit -= 1
        if isinstance(self.value, Value):
            return self.value
        self.value += self.increment
        return m.wrap_new(self.value - self.increment)

    def snapshot(self) -> Callable[[], None]:
        before = (self.value, self.limit)

        def undo() -> None:
            self.value, self.limit = before
        return undo

    def rebuild(self, e: Emitter) -> str:
        if isinstance(self.value, Value):
            limit = "" if self.limit is None else f", {self.limit}"
            return e.variable(self, f"{e.const(self.pytype)}({e.value(self.value)}{limit})")
        return e.variable(self, f"{e.const(self.pytype)}({e.literal(self.value)}, {e.literal(self.increment)})")


class GeneratorValue(Value):
    """A generator of the captured program: its frame, suspended, running or finished (None)."""

    def __init__(self, frame: Frame, pytype: type) -> None:
        self.frame: Frame | None = frame
        self.pytype = pytype
        self.started = self.running = False
        self.stands_for: str | None = None      # the expression that makes the builtin a polyfill stands for
        self.parts: list[Value] = []

    def snapshot(self) -> Callable[[], None]:
        frame, started, running = self.frame, self.started, self.running
        state = frame.snapshot() if frame is not None else None

        def undo() -> None:
            self.frame, self.started, self.running = frame, started, running
            if state is not None:
                state()
        return undo

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        if self.running:
            raise NotRebuildable("a generator that is running")
        return e.generator(self)
