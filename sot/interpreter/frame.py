"""A symbolic frame: the state that CPython keeps for a running function, with Values in the slots."""
from __future__ import annotations

import enum
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from sot.bytecode import NO_POSITION, Code
from sot.support.tracebacks import Place
from sot.values.base import ABSENT, Value
from sot.values.callables import CellValue, FunctionValue, MadeGlobals

if TYPE_CHECKING:
    from sot.interpreter.unroll_limit import Rounds

# What the calling frame does with the result of a frame.
PUSH = "push"               # pushed on the caller's stack
DISCARD = "discard"         # dropped: the caller's instruction needs no result
FOR = "for"                 # a generator in a for loop: its return ends the loop
FOR_NEXT = "for_next"       # a __next__ method in a for loop: its StopIteration ends the loop
NEXT = "next"               # a generator driven by next() or send(): its return raises StopIteration
SEND = "send"               # a generator driven by `yield from`
NEXT_DEFAULT = "next_default"   # next(generator, default)
PUSH_BOOL, PUSH_NOT = "push_bool", "push_not"   # `in` and `not in`: the truth of the result is pushed
PUSH_THEN_NULL = "push_then_null"   # a method that user code found, with the NULL that a call needs after it
PUSH_ITERATOR = "push_iterator"     # `iter`: the result must have a __next__
PUSH_WHOLE = "push_whole"   # pushed; no break may be inside, because the caller replaces the function
OR_POP = "or_pop"         # `and` and `or` of 3.11: the result decides whether the value below stays, and the jump
CLOSING = "closing"       # a generator that is closed because its delegating generator is; ``default`` is the exception
TRIAL = "trial"     # a call that is executed to find its effects; its result ends the trial
CLASS = "class"     # the body of a class statement: its names become a class
BRANCH = "branch"   # one side of a branch on a tensor; the result ends it
RESUMABLE = frozenset({PUSH, DISCARD, PUSH_ITERATOR})

NOWHERE: frozenset[int] = frozenset()


def is_of_enum(frame: Frame) -> bool:
    """Whether it is the body of an enum, whose namespace replaces values and refuses names."""
    return frame.on_return == CLASS and any(isinstance(base, enum.EnumMeta) for base in frame.default[1])


class Frame:
    """One activation of a function. ``mark`` is the checkpoint at the start of the current instruction."""

    __slots__ = ("code", "instrs", "function", "namespace", "builtins", "locals", "cells", "stack", "pc", "last",
                 "on_return", "generator", "mark", "default", "rounds", "outer_handled", "stops", "loop", "names",
                 "variables")

    def __init__(self, code: Code, namespace: dict, function: FunctionValue | None = None) -> None:
        self.code = code
        self.instrs = self.code.instrs
        self.function = function
        self.namespace = namespace
        self.locals: dict[str, Any] = {}
        self.cells: dict[str, CellValue] = {}
        self.stack: list[Value] = []
        self.pc = self.last = 0
        self.on_return = PUSH
        self.generator: Any = None
        self.mark: Any = None
        self.default: Any = None
        self.rounds: dict[int, Rounds] = {}     # the iterations of each loop, by its first instruction
        self.outer_handled: Value | None = None     # of a running generator: the exception that its caller handles
        self.stops: frozenset[int] = NOWHERE    # where one side of a branch on a tensor ends
        self.names: Any = None      # of a class body or of executed text: the DictValue of its names
        self.variables: Any = None      # the DictValue that `locals()` returns, if it is one for all calls
        self.loop: Any = None                   # the loop whose end depends on a tensor, while its body is executed

    @property
    def native(self) -> CodeType:
        return self.code.code

    @property
    def line(self) -> int:
        return self.place[0] or self.native.co_firstlineno

    @property
    def place(self) -> Place:
        """The position of the current instruction (or of the nearest one before it that has a line)."""
        for i in range(min(self.last, len(self.instrs) - 1), -1, -1):
            if self.instrs[i].pos[0] is not None:
                return self.instrs[i].pos
        return NO_POSITION

    @property
    def resumable(self) -> bool:
        return self.on_return in RESUMABLE and self.generator is None and not isinstance(self.namespace, MadeGlobals)

    def make_cell(self, name: str) -> None:
        """Move a local variable into a cell."""
        self.cells[name] = CellValue(name, self.locals.pop(name, ABSENT))

    def snapshot(self) -> Callable[[], None]:
        """A function that restores everything that running this frame further may change (for suspended
        generators).
        """
        state = (dict(self.locals), list(self.stack), self.pc, self.last, self.on_return)

        def undo() -> None:
            locals_, stack, self.pc, self.last, self.on_return = state
            self.locals, self.stack = dict(locals_), list(stack)
        return undo
