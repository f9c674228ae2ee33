"""State of code objects, kept as long as the code objects live.

The key is the identity of a code object, because two equal code objects may belong to different programs.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Generic, TypeVar

S = TypeVar("S")


class CodeTable(Generic[S]):
    """A value for each code object, by identity, as long as the code object lives. The value must not keep it alive.

    Arguments:
        make: makes the value when it is first needed.
    """

    def __init__(self, make: Callable[[CodeType], S]) -> None:
        self._make = make
        self._rows: dict[int, tuple[weakref.ref[CodeType], S]] = {}

    def of(self, code: CodeType) -> S:
        """The value of a code object. It is made if there is none yet."""
        row = self._rows.get(id(code))
        if row is None:
            made = self._make(code)
            # A new code object may get the same address. The callback is no Python function: one would run while a
            # frame is being cleared, and a profiler that looks at that frame's code would crash CPython 3.11.
            row = self._rows[id(code)] = weakref.ref(code, partial(self._rows.pop, id(code))), made
        return row[1]

    def take(self, code: CodeType) -> S | None:
        """What there is for a code object, which is from now on the caller's alone."""
        row = self._rows.pop(id(code), None)
        return row and row[1]

    def put(self, code: CodeType, state: S) -> None:
        """Take back what was taken."""
        self._rows[id(code)] = weakref.ref(code, partial(self._rows.pop, id(code))), state

    def has(self, code: CodeType) -> bool:
        """Whether there is a value for a code object already."""
        return id(code) in self._rows

    def codes(self) -> Iterator[CodeType]:
        """The code objects that are alive."""
        return (code for code in [reference() for reference, _ in [*self._rows.values()]] if code is not None)

    def clear(self) -> None:
        self._rows.clear()

    def __iter__(self) -> Iterator[S]:
        return (state for _, state in [*self._rows.values()])

    def __len__(self) -> int:
        return len(self._rows)
