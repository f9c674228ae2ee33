"""What a translator knows of code objects: a ``CodeState`` for each, which lives as long as both do."""
from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType

from sot import _hook
from sot.guards.assumptions import Assumptions
from sot.guards.guards import CodeGuard, Guard, IsGuard, TypeGuard
from sot.guards.origin import Inputs
from sot.interpreter.trace import Line
from sot.reports.records import Capture
from sot.torch_compat.global_state import GlobalState


@dataclass
class CachedEntry:
    """An entry, and what it takes to explain why it does not fit.

    Arguments:
        function: the entry.
        guards: its guards, each with the line of the user's that needed it.
        state: torch's global state that it is for.
        has_graph: does it call a graph?
    """

    function: _hook.Entry
    guards: dict[Guard, Line]
    state: GlobalState
    has_graph: bool = False

    def program(self) -> list[Guard]:
        """The guards that say which functions and classes the code works with: it is another program with others."""
        return [g for g in self.guards if isinstance(g, CodeGuard)
                or isinstance(g, IsGuard) and isinstance(g.value, (FunctionType, type))
                or type(g) is TypeGuard and "__module__" in vars(g.cls)]


@dataclass(eq=False)
class CodeState:
    """What a translator knows of one code object.

    Arguments:
        code: the code object, which keeps this and must not be kept by it.
        entries: those that the hook asks for this translator, the newest first.
        learnt: what captures of it assume from now on.
        handed_on: variables whose number differed where a graph of the function broke.
        captures: how often a capture of it was begun.
        misses: the calls since the last of these that no entry fits, if Python runs them because the program's budget
            says so.
        breaks: how often captures of the function have stopped, and of what is left of it after each of its breaks.
        has_operations: has one of these met an operation on a tensor?
        records: of its captures, in a whole program.
    """

    code: weakref.ref[CodeType]
    entries: list[CachedEntry] = field(default_factory=list)
    learnt: Assumptions = Assumptions()
    handed_on: set[str] = field(default_factory=set)
    captures: int = 0
    misses: int = 0
    breaks: int = 0
    has_operations: bool = False
    records: list[Capture] = field(default_factory=list)

    # ---- entries
    def keep(self, entry: CachedEntry, last: bool = False) -> _hook.Entry:
        """Have the hook ask this entry first, or last of all."""
        code = self.code()
        assert code is not None
        others = _hook.get_entries(code)
        if last:
            self.entries.append(entry)
            _hook.set_entries(code, (*others, entry.function))
        else:
            self.entries.insert(0, entry)
            _hook.set_entries(code, (entry.function, *others))
            entry.function.at_death = partial(_drop_dead, weakref.ref(self))
        return entry.function

    def drop(self, entries: list[CachedEntry]) -> None:
        """Have the hook ask none of these any more."""
        functions = {entry.function for entry in entries}
        if (code := self.code()) is not None and functions:
            _hook.set_entries(code, tuple(e for e in _hook.get_entries(code) if e not in functions))
        self.entries = [entry for entry in self.entries if entry.function not in functions]

    def fitting(self, inputs: Inputs) -> _hook.Entry | None:
        """The entry that answers a call."""
        return next((entry.function for entry in self.entries if entry.function.holds(inputs)), None)

    def same_program(self, inputs: Inputs) -> list[CachedEntry]:
        """The entries for the functions and classes that a call works with."""
        return [entry for entry in self.entries if not any(guard.explain(inputs) for guard in entry.program())]


def new_state(code: CodeType) -> CodeState:
    return CodeState(weakref.ref(code))


def _drop_dead(reference: weakref.ref[CodeState]) -> None:
    """Drop the entries that name a function or class which is gone."""
    if (state := reference()) is not None:
        state.drop([entry for entry in state.entries if entry.function.is_dead])
