"""The state that a translator keeps for a code object: one ``CodeState``, which lives as long as both of them."""
from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType

from sot import _hook
from sot.guards.assumptions import Assumptions
from sot.guards.guards import CodeGuard, Guard, IsGuard, TypeGuard
from sot.guards.origin import Inputs
from sot.guards.reading import readable
from sot.interpreter.trace import Line
from sot.reports.records import Capture, RecompileReason
from sot.torch_compat.global_state import GlobalState


@dataclass
class CachedEntry:
    """An entry, with what is needed to explain why it does not fit a call.

    Arguments:
        function: the entry.
        guards: its guards, each with the user's line that needed it.
        state: torch's global state that the entry was captured for.
        has_graph: whether the entry calls a graph.
    """

    function: _hook.Entry
    guards: dict[Guard, Line]
    state: GlobalState
    has_graph: bool = False

    def has_program_of(self, inputs: Inputs) -> bool:
        """Whether a call uses the functions and classes that the entry was captured for."""
        return not any(is_of_program(guard) and guard.explain(inputs) for guard in readable(self.guards, inputs))


def is_of_program(guard: Guard) -> bool:
    """Whether the guard is on a function or class that the code calls. With another one it is another program."""
    return (isinstance(guard, CodeGuard) or isinstance(guard, IsGuard) and isinstance(guard.value, (FunctionType, type))
            or type(guard) is TypeGuard and "__module__" in vars(guard.cls))


@dataclass(eq=False)
class CodeState:
    """The state of one code object in a translator.

    Arguments:
        code: the code object. It keeps this state alive, so the state must not keep the code object alive.
        entries: the entries that the hook asks for this translator, the newest first.
        learnt: the assumptions of later captures.
        handed_on: variables whose number differed where a graph of the function broke.
        captures: the number of captures that were begun.
        calls_before: the number of calls that Python had run when the last capture began, in a whole program.
        breaks: how often captures of the function, or of its resume code, have stopped.
        has_operations: whether one of these captures met an operation on a tensor.
        given_up: why entries have been dropped since the last capture.
        records: the records of its captures, in a whole program.
        left: the number of calls that were captured, but not compiled, because no later call is like them.
    """

    code: weakref.ref[CodeType]
    entries: list[CachedEntry] = field(default_factory=list)
    learnt: Assumptions = Assumptions()
    handed_on: set[str] = field(default_factory=set)
    captures: int = 0
    calls_before: int = 0
    breaks: int = 0
    has_operations: bool = False
    given_up: list[RecompileReason] = field(default_factory=list)
    records: list[Capture] = field(default_factory=list)
    left: int = 0

    # ---- entries
    def keep(self, entry: CachedEntry, last: bool = False) -> _hook.Entry:
        """Make the hook ask this entry first, or after all other entries."""
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
        """Remove these entries from the hook."""
        functions = {entry.function for entry in entries}
        if (code := self.code()) is not None and functions:
            _hook.set_entries(code, tuple(e for e in _hook.get_entries(code) if e not in functions))
        self.entries = [entry for entry in self.entries if entry.function not in functions]

    def fitting(self, inputs: Inputs) -> _hook.Entry | None:
        """The entry that answers a call."""
        return next((entry.function for entry in self.entries if entry.function.holds(inputs)), None)

    def same_program(self, inputs: Inputs) -> list[CachedEntry]:
        """The entries for the functions and classes that this call uses."""
        return [entry for entry in self.entries if entry.has_program_of(inputs)]


def new_state(code: CodeType) -> CodeState:
    return CodeState(weakref.ref(code))


def _drop_dead(reference: weakref.ref[CodeState]) -> None:
    """Drop the entries that refer to a function or class that no longer exists."""
    if (state := reference()) is not None:
        state.drop([entry for entry in state.entries if entry.function.is_dead])
