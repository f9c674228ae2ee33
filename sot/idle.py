"""Which functions of a whole program work on no tensors, and are left to Python.

What breaks costs a capture, and a little at each call that comes there, and gains nothing where no operation is met.
``main`` may break ten times before it trains, though; so each function has something to lose first, with all that goes
on after its breaks. Whatever it calls has its own turn.
"""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import CodeType

from sot.resume import origin

BUDGET = 100
COST_OF_CAPTURE = 17        # so six captures, or a hundred calls of what was captured


class Idle:
    """Counts, for each function by its code, what is captured without an operation on a tensor."""

    def __init__(self, leave: Callable[[CodeType], None]) -> None:
        self.leave = leave      # what has Python run the code from now on
        self.spent: dict[int, int] = {}
        self.codes: dict[int, list[weakref.ref[CodeType]]] = {}      # of the rests of a function, itself first
        self.busy: set[int] = set()

    def note(self, code: CodeType, operations: int) -> Callable[[], None] | None:
        """A capture of it is done: what to call whenever it runs, or None if there is nothing to count."""
        whole = whole_code(code)
        known = self.codes.setdefault(id(whole), [weakref.ref(whole)])
        if not any(code is one() for one in known):
            known.append(weakref.ref(code))
        if operations:
            self.busy.add(id(whole))
        if id(whole) in self.busy:
            return None
        self.spend(whole, COST_OF_CAPTURE)
        return functools.partial(self.spend_by, weakref.ref(whole))

    def is_over(self, code: CodeType) -> bool:
        """Has its function nothing left to lose?"""
        whole = id(whole_code(code))
        return whole not in self.busy and self.spent.get(whole, 0) >= BUDGET

    def spend_by(self, reference: weakref.ref[CodeType]) -> None:
        """An entry of the function has run: it does not keep the code alive that keeps it."""
        if (whole := reference()) is not None:
            self.spend(whole, 1)

    def spend(self, whole: CodeType, cost: int) -> None:
        if id(whole) not in self.busy:
            self.spent[id(whole)] = self.spent.get(id(whole), 0) + cost
            if self.is_over(whole):
                for code in [one() for one in self.codes.get(id(whole), ())]:
                    if code is not None:
                        self.leave(code)

    def forget(self, key: int) -> None:
        """A code object is gone."""
        self.spent.pop(key, None)
        self.codes.pop(key, None)
        self.busy.discard(key)

    def clear(self) -> None:
        self.spent.clear()
        self.codes.clear()
        self.busy.clear()


def whole_code(code: CodeType) -> CodeType:
    """The function's own code, if this is what is left of it after a break."""
    while (rest_of := origin(code)) is not None:
        code = rest_of.code
    return code
