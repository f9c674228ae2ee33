"""How often a function is captured, and what is done when that is enough.

From then on Python runs the function where none of its entries fits, and a warning says which guard kept failing. Code
that several programs share (a decorator's wrapper is another program for each function that it wraps) goes on being
captured for the others.
"""
from __future__ import annotations

import warnings
from types import CodeType
from typing import Any

from sot.codegen.entry import make_plain_entry
from sot.driver.code_state import CachedEntry, CodeState
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
from sot.guards.tensor_guards import TensorGuard, ValuesGuard
from sot.guards.terms import leaves
from sot.reports.history import by_kind, history, kind_of
from sot.reports.records import RecompileReason
from sot.support.limits import Entries
from sot.torch_compat.global_state import GlobalState
from sot.values.numbers import NUMBER_TYPES


class RecompileWarning(UserWarning):
    """A function was captured as often as is allowed; from now on Python runs it where no entry fits."""


def is_reached(state: CodeState, inputs: Inputs, limit: Entries) -> bool:
    """Are there enough entries for the program that these inputs ask for?"""
    count = len(state.entries)
    return count >= limit.of_code or count >= limit.of_function and (
        len(state.same_program(inputs)) >= limit.of_function)


def leave_program(state: CodeState, code: CodeType, inputs: Inputs, callback: Any, limit: Entries) -> bool:
    """Have Python run this program where none of its entries fits; false if it cannot be told from others."""
    guards = list(dict.fromkeys(g for entry in state.same_program(inputs) for g in entry.program()))
    if not guards or len(state.entries) >= limit.of_code:
        return False
    torch_state, lines = GlobalState(), dict.fromkeys(guards, (code.co_filename, code.co_firstlineno))
    entry = make_plain_entry(code, GuardProgram(inputs, guards), torch_state, callback)
    state.keep(CachedEntry(entry, lines, torch_state), last=True)
    return True


# ---- what the user is told --------------------------------------------------------------------------------
def warn(code: CodeType, name: str, reasons: list[RecompileReason], inputs: Inputs, count: int) -> None:
    """Say, at the function's own line, that it is captured no more, and which guard kept failing."""
    warnings.warn_explicit(message(name, reasons, inputs, count), RecompileWarning, code.co_filename,
                           code.co_firstlineno)


def message(name: str, reasons: list[RecompileReason], inputs: Inputs, count: int) -> str:
    """Which guard kept failing, with which values, and what to do about it."""
    start = f"{name} was captured {count} times. From now on Python runs it where none of these captures fits"
    groups = [group for group in by_kind(reasons) if kind_of(group[0]) is not None]
    if not groups:
        return f"{start}: {reasons[0].text if reasons else 'the reason is unknown'}. Raise the limit with SOT_ENTRIES."
    failing = max(groups, key=len)
    return (f"{start}. What kept changing: {history(failing)}. "
            f"{remedy(failing[0].guard, inputs)} Or raise the limit with SOT_ENTRIES.")     # type: ignore[arg-type]


def remedy(guard: Guard, inputs: Inputs) -> str:
    """What a user can do about a guard that keeps failing."""
    if isinstance(guard, TensorGuard):
        return remedy_of_tensor(guard.differs(inputs))
    if isinstance(guard, RelationGuard) and not is_of_size(guard):
        return ("The function asks for this number itself: it branches on it, or uses it as an index or a key. Do that "
                "outside of the function, or pass a tensor.")
    if isinstance(guard, EqualsGuard) and type(guard.value) in NUMBER_TYPES:
        return ("Leave out dynamic=False, or set dynamic=True. Where the program needs the number itself (as the index "
                "of a list, the key of a dict, the length of a loop), pass a tensor, or do that before the call.")
    return REMEDIES.get(type(guard), "Move what changes out of the function.")


def is_of_size(guard: RelationGuard) -> bool:
    """Is it about the size of a tensor, or the length of a container?"""
    return any(isinstance(origin, TensorPart | Length) for origin in leaves((guard.symbol, guard.left, guard.right)))


def remedy_of_tensor(parts: list[TensorPart]) -> str:
    if not parts:
        return "Call it with tensors of the same dtype, device, requires_grad and number of dimensions."
    dims = ", ".join(str(part) for part in parts)
    return (f"Let {dims} vary: to_static(..., dynamic=True), sot.mark_dynamic(tensor, dimension), or None in an "
            "InputSpec.")


REMEDIES: dict[type[Guard], str] = {
    EqualsGuard: "Move what depends on this value out of the function, or translate one function for each value.",
    RelationGuard: "The function branches on these sizes: pad to one size, or move the branch out.",
    ValuesGuard: "Compute what needs the tensor's values before the call, and pass it.",
    IsGuard: "Translate one function for each of these objects, in place of one for all.",
    TypeGuard: "Translate one function for each of these classes, in place of one for all.",
    CodeGuard: "Translate one function for each of these functions, in place of one for all.",
    LengthGuard: "Pass a tensor in place of the container, or always as many items.",
    OrderGuard: "Iterate over sorted(...) of it, or pass a list.",
    KeysGuard: "Always pass the same keys, in the same order.",
    HasKeyGuard: "Always pass the same keys.",
}
