"""Which functions of a whole program work on no tensors, and are left to Python.

What breaks costs a capture, and a little at each call that comes there, and gains nothing where there are no
operations. ``main`` may break ten times before it trains, though; so each function has a budget, together with what is
left of it after its breaks. The functions that it calls have their own.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from types import CodeType

from sot.bytecode.resume_origin import origin
from sot.driver.code_state import CodeState, CodeTable
from sot.interpreter.trace import Trace
from sot.support.errors import Reason, Skip
from sot.support.places import is_installed

BUDGET = 100
COST_OF_CAPTURE = 17        # so six captures, or a hundred calls of what was captured
Leave = Callable[[CodeType], None]      # has Python run the code from now on
Counter = Callable[[], None]            # is called whenever an entry runs


def counters(states: CodeTable[CodeState], code: CodeType, trace: Trace, leave: Leave) -> list[Counter]:
    """Charge a function for a capture: what is to be called whenever the entry runs. Raises Skip if it is Python's."""
    operations = trace.operations - len(trace.graph.warnings)       # those of NumPy's are no reason to capture
    if operations == 0 and is_installed(code.co_filename):
        raise Skip(Reason.NOTHING_CAPTURED)
    whole = whole_code(code)
    state = states.of(whole)
    for part in (whole, code):
        if not any(part is known() for known in state.parts):
            state.parts.append(weakref.ref(part))
    state.has_operations = state.has_operations or operations > 0
    if state.has_operations:
        return []
    spend(state, COST_OF_CAPTURE, leave)
    if is_spent(state):
        raise Skip(Reason.NOTHING_CAPTURED)
    return [partial(entry_ran, weakref.ref(state), leave)]


def is_spent(state: CodeState) -> bool:
    return not state.has_operations and state.spent >= BUDGET


def entry_ran(reference: weakref.ref[CodeState], leave: Leave) -> None:
    """An entry of the function has run. It does not keep the function, which keeps it."""
    if (state := reference()) is not None:
        spend(state, 1, leave)


def spend(state: CodeState, cost: int, leave: Leave) -> None:
    """Charge a function without operations; when its budget is spent, Python runs all of its parts."""
    if not state.has_operations:
        state.spent += cost
        if is_spent(state):
            for code in [part() for part in state.parts]:
                if code is not None:
                    leave(code)


def whole_code(code: CodeType) -> CodeType:
    """The function's own code, if this is what is left of it after a break."""
    while (rest_of := origin(code)) is not None:
        code = rest_of.code
    return code
