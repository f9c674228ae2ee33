"""What a program can change so that a guard keeps holding: a row for each class of guards.

A remedy that begins with ``NOTHING`` asks for no action.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from sot.guards.guards import (
    CodeGuard,
    EqualsGuard,
    Guard,
    HasKeyGuard,
    IsGuard,
    KeysGuard,
    LengthGuard,
    NoHooksGuard,
    RelationGuard,
    StateGuard,
    TypeGuard,
)
from sot.guards.origin import Dim, Inputs, Origin
from sot.guards.tensor_guards import ArrayGuard, ConstantGuard, TensorGuard, ValuesGuard
from sot.support.errors import NOTHING

SAME_TYPE = "give {} the same type from the first call on"


def found(origin: Origin, inputs: Inputs) -> object:
    """The value at an origin; None if there is none any more."""
    with contextlib.suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
        return origin.read(inputs)
    return None


def of_tensor(guard: TensorGuard, inputs: Inputs) -> str:
    """Sizes can be marked. Everything else about a tensor has a graph of its own."""
    sizes = [part for part in guard.differs(inputs) if isinstance(part, Dim)]
    if not sizes:
        return f"pass {guard.origin} with the same dtype, device, strides and requires_grad"
    marks = " and ".join(f"sot.mark_dynamic({part.base}, {part.index})" for part in sizes)
    return f"mark the size that varies before the first call, with {marks}, or keep it the same"


def of_constant(guard: EqualsGuard, inputs: Inputs) -> str:
    if type(guard.value) is not type(found(guard.origin, inputs)):
        return SAME_TYPE.format(guard.origin)
    if isinstance(guard.value, int | float) and not isinstance(guard.value, bool):
        return f"{NOTHING} if it is recompiled once: from then on {guard.origin} may have any value"
    return f"keep {guard.origin} the same, or use a function for each of its values"


def of_identity(guard: IsGuard, inputs: Inputs) -> str:
    if guard.value is None:
        return f"{NOTHING} if it is recompiled once: later calls find {guard.origin} made"
    return f"make {guard.origin} once, before the first call"


ROWS: dict[type, str | Callable[[Any, Inputs], str]] = {
    StateGuard: f"{NOTHING}: each state of torch (grad mode, autocast) has a graph of its own",
    TensorGuard: of_tensor,
    EqualsGuard: of_constant,
    TypeGuard: SAME_TYPE,
    IsGuard: of_identity,
    CodeGuard: "define {} once, before the first call",
    ConstantGuard: f"{NOTHING}: the compiler has made a constant of a weight",
    NoHooksGuard: "register the hooks of {} before the first call",
    LengthGuard: "keep the length of {} the same",
    KeysGuard: "keep the keys of {} the same",
    HasKeyGuard: "fill {} before the first call",
    ArrayGuard: "keep dtype and shape of {} the same",
    ValuesGuard: "keep the values of {} the same, or compute with it as a tensor",
    RelationGuard: f"{NOTHING}: each outcome of this comparison of sizes has a graph of its own",
}


def remedy(guard: Guard | StateGuard, inputs: Inputs) -> str:
    """What to change so that the guard holds for inputs like these, for which it does not."""
    row = next((ROWS[cls] for cls in type(guard).__mro__ if cls in ROWS), "keep {} the same")
    if callable(row):
        return row(guard, inputs)
    return row.replace("{}", str(getattr(guard, "origin", "it")))
