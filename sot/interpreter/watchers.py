"""Functions that watch the interpreter at work: frames in tracebacks, how long objects live, how large they are.

Captured code computes the program's values, with frames and objects of its own. So Python runs such a function, and
all that it calls, as if there were no capture.
"""
from __future__ import annotations

import inspect
from types import CodeType

from sot import _hook
from sot.support.errors import Break, Reason
from sot.values.callables import FunctionValue
from sot.values.constants import is_library

# Names of attributes and functions that a function has only for that purpose.
WATCHING = frozenset({"tb_frame", "__excepthook__", "getsizeof", "getrefcount", "get_referrers", "get_referents",
                      "setrecursionlimit"})
# An object that only the trace has made has no moment at which its last reference goes.
TOGETHER = (frozenset({"weakref", "ref"}), frozenset({"gc", "collect", "__subclasses__"}))


def watches(code: CodeType) -> str | None:
    """What tells that a function watches the interpreter, or None."""
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


def refuse_watcher(function: FunctionValue) -> None:
    """A break before a call of one."""
    if (what := watches(function.code)) and not is_library(function.namespace.get("__name__")):
        _hook.leave_alone(function.code)
        raise Break(Reason.WATCHES, f"{function.name} uses {what}, which")
