"""The recompile limit: how often a function is captured, and what happens after that.

After the limit Python runs every call that no entry fits, and a warning names the guard that kept failing. Several
programs may share one code object: a decorator's wrapper is a different program for each function that it wraps. The
limit holds for each program.
"""
from __future__ import annotations

import warnings
from types import CodeType
from typing import Any

from sot.codegen.entry import make_plain_entry
from sot.driver.code_state import CachedEntry, CodeState, is_of_program
from sot.guards.guard_program import GuardProgram
from sot.guards.guards import (
    CodeGuard,
    EqualsGuard,
    Guard,
    HasKeyGuard,
    IsGuard,
    KeysGuard,
    LengthGuard,
    OrderGuard,
    RelationGuard,
    TypeGuard,
)
from sot.guards.origin import Inputs, Length, TensorPart
from sot.guards.reading import readable
from sot.guards.tensor_guards import TensorGuard, ValuesGuard
from sot.guards.terms import leaves
from sot.reports.history import by_kind, history, kind_of, number_of_values
from sot.reports.records import RecompileReason
from sot.reports.wording import names_in, said
from sot.support.settings import Entries
from sot.torch_compat.global_state import GlobalState
from sot.values.numbers import NUMBER_TYPES


class RecompileWarning(UserWarning):
    """A function has reached its recompile limit. From now on Python runs each call that no entry fits."""


def is_reached(state: CodeState, inputs: Inputs, limit: Entries) -> bool:
    """Whether the program that these inputs select has enough entries."""
    count = len(state.entries)
    return count >= limit.of_code or count >= limit.of_function and (
        len(state.same_program(inputs)) >= limit.of_function)


def leave_program(state: CodeState, code: CodeType, inputs: Inputs, callback: Any, limit: Entries) -> bool:
    """Let Python run each call of this program that no entry fits. Returns False if the program cannot be told apart
    from the other programs of this code.
    """
    guards = [*dict.fromkeys(guard for entry in state.same_program(inputs) for guard in readable(entry.guards, inputs)
                             if is_of_program(guard))]
    if not guards or len(state.entries) >= limit.of_code:
        return False
    torch_state, lines = GlobalState(), dict.fromkeys(guards, (code.co_filename, code.co_firstlineno))
    entry = make_plain_entry(code, GuardProgram(inputs, guards), torch_state, callback)
    state.keep(CachedEntry(entry, lines, torch_state), last=True)
    return True


# ---- the warning --------------------------------------------------------------------------------
def warn(code: CodeType, name: str, reasons: list[RecompileReason], inputs: Inputs, entries: list[CachedEntry]) -> None:
    """Warn, at the function's own line, that it is no longer captured, and name the guard that kept failing."""
    names = names_in((guard for entry in entries for guard in entry.guards), code)
    warnings.warn_explicit(said(message(name, reasons, inputs, len(entries)), names), RecompileWarning,
                           code.co_filename, code.co_firstlineno)


def message(name: str, reasons: list[RecompileReason], inputs: Inputs, count: int) -> str:
    """The text of the warning: the guard that kept failing, the values that it saw, and what to do about it."""
    start = f"{name} was captured {count} times. From now on Python runs each call that none of these captures fits"
    groups = [group for group in by_kind(reasons) if kind_of(group[0]) is not None]
    if not groups:
        return f"{start}: {reasons[0].text if reasons else 'the reason is unknown'}. Raise the limit with SOT_ENTRIES."
    failing = max(groups, key=lambda group: (number_of_values(group), len(group)))
    what = "The value that kept changing" if number_of_values(failing) > 1 else "The value that differs in this call"
    return (f"{start}. {what}: {history(failing)}. "
            f"{remedy(failing[0].guard, inputs)} Or raise the limit with SOT_ENTRIES.")     # type: ignore[arg-type]


def remedy(guard: Guard, inputs: Inputs) -> str:
    """What a user can do about a guard that keeps failing."""
    if isinstance(guard, TensorGuard):
        return remedy_of_tensor(guard.differs(inputs))
    if isinstance(guard, RelationGuard) and not is_of_size(guard):
        return ("The function reads this number: it branches on it, or uses it as an index or a key. Do that "
                "outside of the function, or pass a tensor.")
    if isinstance(guard, EqualsGuard) and type(guard.value) in NUMBER_TYPES:
        return ("If dynamic=False is set, remove it or set dynamic=True. If the program needs the number (as a list "
                "index, a dict key or a loop length), pass a tensor, or do that step before the call.")
    return REMEDIES.get(type(guard), "Move the code that depends on the changing value out of the function.")


def is_of_size(guard: RelationGuard) -> bool:
    """Whether the guard is about the size of a tensor or the length of a container."""
    return any(isinstance(origin, TensorPart | Length) for origin in leaves((guard.symbol, guard.left, guard.right)))


def remedy_of_tensor(parts: list[TensorPart]) -> str:
    if not parts:
        return "Call the function with tensors of the same dtype, device, requires_grad and number of dimensions."
    dims = ", ".join(str(part) for part in parts)
    return (f"Let {dims} vary: to_static(..., dynamic=True), sot.mark_dynamic(tensor, dimension), or None in an "
            "InputSpec.")


REMEDIES: dict[type[Guard], str] = {
    EqualsGuard: "Move the code that uses this value out of the function, or use one translated function per value.",
    RelationGuard: "The function branches on these sizes. Pad to one size, or move the branch out of the function.",
    ValuesGuard: "Compute the result that needs the tensor's values before the call, and pass the result.",
    IsGuard: "Use one translated function per object instead of one function for all of them.",
    TypeGuard: "Use one translated function per class instead of one function for all of them.",
    CodeGuard: "Use one translated function per callee instead of one function for all of them.",
    LengthGuard: "Pass a tensor instead of the container, or always pass the same number of items.",
    OrderGuard: "Iterate over sorted(...) of the set, or pass a list.",
    KeysGuard: "Always pass the same keys, in the same order.",
    HasKeyGuard: "Always pass the same keys.",
}
