"""Why no entry fits a call: the guards that do not hold, entry by entry, and what that teaches the next capture.

An entry is close if few of its guards fail. Those are evaluated one by one, in Python: the slow path beside the
guard program.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import CodeType
from typing import Any

from sot.driver.code_state import CachedEntry
from sot.guards.assumptions import Assumptions
from sot.guards.guards import EqualsGuard, Guard, LengthGuard, RelationGuard, StateGuard
from sot.guards.origin import Inputs, Length, Origin
from sot.guards.tensor_guards import ArrayGuard, TensorGuard, ValuesGuard
from sot.guards.terms import leaves
from sot.reports import wording
from sot.reports.records import RecompileReason
from sot.values.constants import NUMPY_SCALARS
from sot.values.numbers import NUMBER_TYPES

ALIASED = "all guards hold one by one: tensors alias each other"


def reasons(entries: Iterable[CachedEntry], inputs: Inputs, code: CodeType) -> list[RecompileReason]:
    """The first guard of each entry that does not hold, the closest entry first; nothing for entries of the rest of
    another function, which is the same code after a break in a call."""
    found: list[RecompileReason] = []
    for entry in entries:
        if not any(wording.is_structure(g) and g.explain(inputs) for g in entry.guards):
            reason = first_failure(entry, inputs, min((r.failed for r in found), default=float("inf")))
            found.append(replace(reason, text=wording.said(reason.text, wording.names_in(entry.guards, code))))
    return sorted(found, key=lambda reason: reason.failed)


def first_failure(entry: CachedEntry, inputs: Inputs, most: float) -> RecompileReason:
    """What does not hold for these inputs; failures are counted up to ``most``."""
    first, failed = None, 0
    guards: list[Any] = [StateGuard(entry.state), *entry.guards]
    for guard in guards:
        if failed > most:
            break
        if text := guard.explain(inputs):
            failed += 1
            first = first or RecompileReason(text, guard, *entry.guards.get(guard, ("", 0)))
    return first.counted(failed, len(guards)) if first else RecompileReason(ALIASED, None, of=len(guards))


def learnt_from(entries: Iterable[CachedEntry], inputs: Inputs) -> Assumptions:
    """The sizes, numbers and strings that are others than the entries were captured with: they may differ from now on.

    A length that differs for the second time, and a symbol that had become a constant, are ``specialized``.
    """
    varying, specialized, lengths = set[Origin](), set[Origin](), Counter[Origin]()
    for entry in entries:
        for guard in entry.guards:
            if isinstance(guard, TensorGuard):
                varying.update(guard.differs(inputs))
            elif isinstance(guard, LengthGuard | ArrayGuard):
                lengths.update({Length(guard.origin)} if guard.explain(inputs) else ())
            elif isinstance(guard, RelationGuard) and guard.symbol == "==":
                specialized.update(leaves(guard.left) if guard.explain(inputs) else ())
            elif is_of_value(guard) and guard.explain(inputs):
                varying.add(guard.origin)
    specialized.update(length for length, count in lengths.items() if count > 1)
    return Assumptions(varying=frozenset(varying | lengths.keys()), specialized=frozenset(specialized))


def is_of_value(guard: Guard) -> bool:
    """Does it say what a number or a string is?"""
    return isinstance(guard, ValuesGuard) or isinstance(guard, EqualsGuard) and (
        type(guard.value) in (*NUMBER_TYPES, str) or isinstance(guard.value, NUMPY_SCALARS))
