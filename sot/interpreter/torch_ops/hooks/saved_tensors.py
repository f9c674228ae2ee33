"""``saved_tensors_hooks``: nodes that push and pop the hooks. Autograd calls them while the graph runs.

Only hooks of which the program cannot tell when they run are in a graph (``quiet_functions.py``). A backend that
compiles would call them for the tensors of its own nodes, so there it is a break.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sot.interpreter.builtins.common import take
from sot.interpreter.torch_ops.hooks.quiet_functions import quiet_function
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat import functions
from sot.torch_compat.hooks import is_pushing, pop_saved_tensors_hooks, pushing_saved_tensors_hooks
from sot.values.base import NONE, Value

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(functions.push_saved_tensors_hooks)
def push(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    hooks = take("_push_saved_tensors_default_hooks", args, kwargs, "pack", "unpack", required=2)
    if m.assumptions.compiles or m.builder.region is not None or m.modes:
        raise Break(Reason.SIDE_EFFECT, "saved_tensors_hooks")
    if functions.refusal_of_saved_tensors_hooks() is not None:
        raise Break(Reason.OPERATION_FAILED, "saved_tensors_hooks, which are disabled")
    pack, unpack = (quiet_function(m, hook) for hook in hooks)
    if pack is None or unpack is None:
        raise Break(Reason.SIDE_EFFECT, f"saved_tensors_hooks with {hooks[0]}")
    note(m, pushing_saved_tensors_hooks(pack, unpack))
    return NONE


@handles(functions.pop_saved_tensors_hooks)
def pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    pushed = sum(is_pushing(setter) - (setter is pop_saved_tensors_hooks) for setter, *_ in m.state_log)
    if not pushed:
        raise Break(Reason.SIDE_EFFECT, "leaving saved_tensors_hooks that were entered before")
    note(m, pop_saved_tensors_hooks)
    return NONE


def note(m: Machine, setter: Callable[[], None]) -> None:
    """Record the change. It is not made during capture, whose operations save nothing for the program."""
    m.state_log.append((setter, (), (nothing, ())))
    m.undoable(m.undo_state)
    m.builder.record_state(setter, (), m.stack_trace())


def nothing() -> None:
    pass
