"""Frees functions that only their own cache entries keep alive.

An entry that reads globals holds their dict, the dict holds the function, and the function's code holds the entry.
CPython's collector does not look into code objects, so a program that makes functions and drops them (``exec``,
templates, ``torch.fx``) would keep them all. ``collect`` lets the collector see the cycle: during one
collection, functions hold the states of such code, and code objects do not.
"""
from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import CodeType, FunctionType

from sot import _hook
from sot.bytecode.code_table import CodeTable
from sot.bytecode.resume_origin import whole_code
from sot.driver.code_state import CachedEntry, CodeState

HELD = "__sot_states__"     # in the dict of a function, only while the collector runs
MOST = 128


class Owners:
    """The functions of captured code that no module holds."""

    def __init__(self) -> None:
        self.of_code: CodeTable[list[weakref.ref[FunctionType]]] = CodeTable(lambda code: [])
        self.most = MOST

    def note(self, function: FunctionType) -> bool:
        """Record a captured function. Returns whether it is time to collect."""
        if not is_of_module(function):
            known = self.of_code.of(function.__code__)
            known[:] = [weakref.ref(owner) for owner in owners(function)]
        return len(self.of_code) >= self.most and gc.isenabled()

    def collect(self, states: CodeTable[CodeState]) -> None:
        """Drop the entries of functions that only these entries keep alive."""
        holders = [weakref.ref(owner) for owner in self.lend(states)]
        gc.collect()
        for holder in holders:
            if (owner := holder()) is not None:
                for code, state, entries in owner.__dict__.pop(HELD, ()):
                    give_back(states, code, state, entries)
        self.most = max(MOST, 2 * len(self.of_code))

    def lend(self, states: CodeTable[CodeState]) -> Iterator[FunctionType]:
        """Move the states from code objects to functions, and yield these functions."""
        for code in [*self.of_code.codes()]:
            known = [*self.of_code.of(code), *self.of_code.of(whole_code(code))]
            owner = next((f for f in [reference() for reference in known] if f is not None), None)
            state = states.take(code)
            if owner is None or state is None:
                if state is not None:
                    states.put(code, state)
                continue
            entries, state.entries = state.entries, []
            functions = {entry.function for entry in entries}
            _hook.set_entries(code, tuple(e for e in _hook.get_entries(code) if e not in functions))
            owner.__dict__.setdefault(HELD, []).append((code, state, entries))
            yield owner


def give_back(states: CodeTable[CodeState], code: CodeType, state: CodeState, entries: list[CachedEntry]) -> None:
    state.entries = entries
    _hook.set_entries(code, (*(entry.function for entry in entries), *_hook.get_entries(code)))
    states.put(code, state)


def is_of_module(function: FunctionType) -> bool:
    """Whether a module of ``sys.modules`` has the function's globals."""
    module = sys.modules.get(str(function.__globals__.get("__name__")))
    return getattr(module, "__dict__", None) is function.__globals__


def owners(function: FunctionType) -> Iterator[FunctionType]:
    """The function, and one function among its globals, which outlives a closure or a resume function."""
    yield function
    yield from [value for value in [*function.__globals__.values()]
                if type(value) is FunctionType and value.__globals__ is function.__globals__][:1]
