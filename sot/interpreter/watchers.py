"""Watchers: functions that inspect the interpreter, such as tracebacks' frames, or the lifetime or size of objects.

Captured code computes the program's values with other frames and objects. So Python runs such a function, and
everything that it calls, without capture.
"""
from __future__ import annotations

import dis
import inspect
from types import CodeType

from sot import _hook
from sot.support.errors import Break, Reason
from sot.values.callables import FunctionValue
from sot.values.constants import is_library

# Names of attributes and functions that are used only for that purpose.
WATCHING = frozenset({"tb_frame", "__excepthook__", "getsizeof", "getrefcount", "get_referrers", "get_referents",
                      "setrecursionlimit"})
# An object that exists only in the trace has no moment at which its last reference goes.
TOGETHER = (frozenset({"weakref", "ref"}), frozenset({"gc", "collect", "__subclasses__"}))


def watches(code: CodeType) -> str | None:
    """The name that shows that a function inspects the interpreter, or None."""
    found = WATCHING.intersection(code.co_names)
    if found:
        return min(found)
    for names in TOGETHER:
        if names <= {*code.co_names}:
            return " and ".join(sorted(names))
    for const in code.co_consts:
        if isinstance(const, CodeType) and not const.co_flags & inspect.CO_NEWLOCALS and "__del__" in const.co_names:
            return "__del__"
    return None


def line_of_watch(code: CodeType) -> int:
    """The line that shows it, or the first line of the code."""
    names = WATCHING.intersection(code.co_names) or set().union(*(n for n in TOGETHER if n <= {*code.co_names}))
    for instruction in dis.get_instructions(code):
        if instruction.argval in names and instruction.positions and instruction.positions.lineno:
            return instruction.positions.lineno
    return code.co_firstlineno


def refuse_watcher(function: FunctionValue) -> None:
    """Break before a call of a watcher."""
    if (what := watches(function.code)) and not is_library(function.namespace.get("__name__")):
        _hook.leave_alone(function.code)
        raise Break(Reason.WATCHES, f"{function.name} uses {what}, which")
