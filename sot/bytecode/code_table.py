"""What is known of code objects, for as long as they live.

Code objects are told by identity: two that are equal are two programs.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Generic, TypeVar

S = TypeVar("S")


class CodeTable(Generic[S]):
    """Something for each code object, by identity, as long as the code object lives. It must not keep the code object.

    Arguments:
        make: makes it when it is asked for.
    """

    def __init__(self, make: Callable[[CodeType], S]) -> None:
        self._make = make
        self._rows: dict[int, tuple[weakref.ref[CodeType], S]] = {}

    def of(self, code: CodeType) -> S:
        """What there is for a code object, made if there is nothing yet."""
        row = self._rows.get(id(code))
        if row is None:
            made = self._make(code)
            # Another code object may get the address. A callback in Python would run in the middle of clearing a frame,
            # whose code a profiler would then look at: CPython 3.11 crashes.
            row = self._rows[id(code)] = weakref.ref(code, partial(self._rows.pop, id(code))), made
        return row[1]

    def codes(self) -> Iterator[CodeType]:
        """The code objects that live."""
        return (code for code in [reference() for reference, _ in [*self._rows.values()]] if code is not None)

    def clear(self) -> None:
        self._rows.clear()

    def __iter__(self) -> Iterator[S]:
        return (state for _, state in [*self._rows.values()])

    def __len__(self) -> int:
        return len(self._rows)
