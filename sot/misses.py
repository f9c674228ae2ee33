"""Why no entry fits a call: the guards that do not hold, entry by entry, and what to do where that never ends.

An entry is close if few of its guards fail. Those are evaluated one by one, in Python: the slow path beside the
guard program.
"""
from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from sot._hook import Entry
from sot.guards import (
    CodeGuard,
    EqualsGuard,
    Guard,
    HasKeyGuard,
    IsGuard,
    KeysGuard,
    LengthGuard,
    OrderGuard,
    RelationGuard,
    StateGuard,
    TypeGuard,
)
from sot.origin import Inputs, TensorPart
from sot.records import Miss
from sot.reports import wording
from sot.tensor_guards import TensorGuard, ValuesGuard
from sot.torch_compat import GlobalState
from sot.values.numbers import NUMBER_TYPES

ALIASED = "all guards hold one by one: tensors alias each other"


class RecaptureWarning(UserWarning):
    """A function was captured as often as is allowed; from now on Python runs it where no capture fits."""


@dataclass
class Cached:
    """An entry and what it takes to explain why it does not fit: its guards, and the user's lines that needed them."""

    function: Entry
    guards: dict[Guard, tuple[str, int]]
    state: GlobalState
    has_graph: bool = False

    def program(self) -> list[Guard]:
        """The guards that say which functions and classes the code works with: it is another program with others."""
        return [g for g in self.guards if isinstance(g, CodeGuard)
                or isinstance(g, IsGuard) and isinstance(g.value, (FunctionType, type))
                or type(g) is TypeGuard and "__module__" in vars(g.cls)]

    def miss(self, inputs: Inputs, most: float) -> Miss:
        """What does not hold for these inputs; failures are counted up to ``most``."""
        first, failed = None, 0
        guards: list[Any] = [StateGuard(self.state), *self.guards]
        for guard in guards:
            if failed > most:
                break
            if text := guard.explain(inputs):
                failed += 1
                first = first or Miss(text, guard, *self.guards.get(guard, ("", 0)))
        return first.counted(failed, len(guards)) if first else Miss(ALIASED, None, of=len(guards))


def misses(entries: Iterable[Cached], inputs: Inputs) -> list[Miss]:
    """The first guard of each entry that does not hold, the closest entry first; nothing for those of the rest of
    another function, which is the same code after a break in a call."""
    found: list[Miss] = []
    for cached in entries:
        if not any(wording.is_structure(g) and g.explain(inputs) for g in cached.guards):
            miss = cached.miss(inputs, min((m.failed for m in found), default=float("inf")))
            found.append(replace(miss, text=wording.said(miss.text, wording.names_in(cached.guards))))
    return sorted(found, key=lambda m: m.failed)


# ---- captured too often -------------------------------------------------------------------------------------
def tell_too_often(code: CodeType, name: str, found: list[Miss], inputs: Inputs, limit: int) -> None:
    """Warn that a function is captured no more, at its own line, and say which guard kept failing."""
    warnings.warn_explicit(too_often(name, found, inputs, limit), RecaptureWarning, code.co_filename,
                           code.co_firstlineno)


def too_often(name: str, found: list[Miss], inputs: Inputs, limit: int) -> str:
    """Which guard kept failing, with which values, and what to do about it."""
    start = f"{name} was captured {limit} times, and Python runs it from now on where none of these captures fits"
    failing = Counter((type(m.guard), m.guard.origin) for m in found if isinstance(m.guard, Guard))
    if not failing:
        return f"{start}: {found[0].text if found else 'nothing says why'}. Raise the limit with SOT_ENTRIES."
    kind, origin = failing.most_common(1)[0][0]
    of_kind = [m for m in found if isinstance(m.guard, kind) and m.guard.origin == origin]
    seen = ", ".join(dict.fromkeys(wanted(m.guard) for m in reversed(of_kind)))     # type: ignore[arg-type]
    place = next((f", needed at {m.file}:{m.line}" for m in of_kind if m.file), "")
    now = of_kind[0].text.rpartition(", got ")[2]
    return (f"{start}. What kept failing is the guard on {origin}{place}: it was {seen}, and is now {now}. "
            f"{remedy(of_kind[0].guard, inputs)} Or raise the limit with SOT_ENTRIES.")     # type: ignore[arg-type]


def wanted(guard: Guard) -> str:
    """The value with which a guard holds."""
    if isinstance(guard, RelationGuard):
        return f"with {guard}"
    text = str(guard)
    for between in (" == ", " is a ", " are ", " is "):
        if between in text:
            return text.partition(between)[2]
    return text


def remedy(guard: Guard, inputs: Inputs) -> str:
    """What a user can do about a guard that keeps failing."""
    if isinstance(guard, TensorGuard):
        return of_tensor(guard.differs(inputs))
    if isinstance(guard, EqualsGuard) and type(guard.value) in NUMBER_TYPES:
        return ("Leave out dynamic=False, or set dynamic=True; where the number itself is asked for (a list's index, "
                "a dict's key, a loop's length), pass a tensor, or do that before the call.")
    return REMEDIES.get(type(guard), "Move what changes out of the function.")


def of_tensor(parts: list[TensorPart]) -> str:
    if not parts:
        return "Call it with tensors of one kind: dtype, device, requires_grad and number of dimensions."
    dims = ", ".join(str(part) for part in parts)
    return (f"Let {dims} vary: to_static(..., dynamic=True), sot.mark_dynamic(tensor, dimension), or None in an "
            "InputSpec.")


REMEDIES: dict[type[Guard], str] = {
    EqualsGuard: "Move what is done with this value out of the function, or translate a function for each value.",
    RelationGuard: "The function takes another way for each of these sizes: pad to one size, or move the branch out.",
    ValuesGuard: "Compute what needs the tensor's values before the call, and pass it.",
    IsGuard: "Translate a function for each of these objects, in place of one that takes them all.",
    TypeGuard: "Translate a function for each of these classes, in place of one that takes them all.",
    CodeGuard: "Translate a function for each of these functions, in place of one that takes them all.",
    LengthGuard: "Pass a tensor in place of the container, or always as many items.",
    OrderGuard: "Iterate over sorted(...) of it, or pass a list.",
    KeysGuard: "Always pass the same keys, in the same order.",
    HasKeyGuard: "Always pass the same keys.",
}
