"""Recompile reasons: the guards that failed in each entry, and what the next capture learns from them.

An entry is close if few of its guards fail. The guards are evaluated one by one in Python, which is slower than the
guard program.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

from sot.bytecode.frame_layout import CALL, SLOT
from sot.driver.code_state import CachedEntry
from sot.guards.assumptions import Assumptions
from sot.guards.guards import EqualsGuard, Guard, IsGuard, KeysGuard, LengthGuard, RelationGuard, SameGuard, StateGuard
from sot.guards.origin import Arg, Inputs, Length, Origin, root
from sot.guards.reading import readable
from sot.guards.remedies import remedy
from sot.guards.tensor_guards import ArrayGuard, TensorGuard, ValuesGuard
from sot.guards.terms import leaves
from sot.reports import wording
from sot.reports.records import RecompileReason
from sot.values.constants import NUMPY_SCALARS
from sot.values.numbers import NUMBER_TYPES, is_member_with_number

ALIASED = "each guard holds, but tensors alias each other"


class Read(NamedTuple):
    """An entry, and those of its guards that may be read for the inputs of a call."""

    entry: CachedEntry
    guards: list[Guard]


def read(entries: Iterable[CachedEntry], inputs: Inputs) -> list[Read]:
    return [Read(entry, [*readable(entry.guards, inputs)]) for entry in entries]


def reasons(entries: Iterable[Read], inputs: Inputs, code: CodeType) -> list[RecompileReason]:
    """The first failed guard of each entry, the closest entry first. Entries of composed code for a different function
    give no reason: the code is the same after a break in a call.
    """
    found: list[RecompileReason] = []
    for each in entries:
        if not any(wording.is_structure(g) and g.explain(inputs) for g in each.guards):
            reason = first_failure(each, inputs, min((r.failed for r in found), default=float("inf")))
            names = wording.names_in(each.entry.guards, code)
            found.append(replace(reason, text=wording.said(reason.text, names),
                                 remedy=wording.said(reason.remedy, names)))
    return sorted(found, key=lambda reason: reason.failed)


def first_failure(read: Read, inputs: Inputs, most: float) -> RecompileReason:
    """The first guard that does not hold for these inputs. At most ``most`` failures are counted."""
    first, failed, entry = None, 0, read.entry
    guards: list[Any] = [StateGuard(entry.state), *read.guards]
    for guard in guards:
        if failed > most:
            break
        if text := guard.explain(inputs):
            failed += 1
            first = first or RecompileReason(text, guard, *entry.guards.get(guard, ("", 0)),
                                             remedy=remedy(guard, inputs))
    return first.counted(failed, len(entry.guards) + 1) if first else RecompileReason(
        ALIASED, None, of=len(guards), remedy="pass tensors that do not alias each other")


def learnt_from(entries: Iterable[Read], inputs: Inputs) -> Assumptions:
    """The sizes, numbers and strings that differ from those of the entries. They may vary from now on.

    A length that differs for the second time, and a symbol that became a constant, are ``specialized``.
    """
    varying, specialized, lengths = set[Origin](), set[Origin](), Counter[Origin]()
    for _, guards in entries:
        for guard in guards:
            if isinstance(guard, TensorGuard):
                varying.update(guard.differs(inputs))
            elif isinstance(guard, LengthGuard | ArrayGuard):
                lengths.update({Length(guard.origin)} if guard.explain(inputs) else ())
            elif isinstance(guard, KeysGuard) and guard.explain(inputs):
                varying.add(Length(guard.origin))
            elif isinstance(guard, RelationGuard) and guard.symbol == "==" and guard.outcome:
                specialized.update(leaves(guard.left) if guard.explain(inputs) else ())
            elif is_of_value(guard) and guard.explain(inputs):
                varying.add(guard.origin)
    specialized.update(length for length, count in lengths.items() if count > 1)
    return Assumptions(varying=frozenset(varying | lengths.keys()), specialized=frozenset(specialized))


def has_varying_identity(entries: Iterable[Read], inputs: Inputs) -> bool:
    """Whether other parts of what was computed before the break are one object at each call: examples are drawn, and
    some are drawn twice, or share a part. No number of captures has all the ways in which that may be. One part alone
    may be one of two things.
    """
    failed = (guard for _, guards in entries for guard in guards
              if isinstance(guard, SameGuard) and is_of_break(guard.origin) and guard.explain(inputs))
    return len([*islice(failed, 2)]) > 1


def is_of_break(origin: Origin) -> bool:
    """Whether it is part of a value that was computed before the break after which the code continues."""
    start = root(origin)
    return isinstance(start, Arg) and start.name.startswith((SLOT, CALL))


def is_of_value(guard: Guard) -> bool:
    """Whether the guard is on the value of a number or a string, or on a member of an enum that has a number."""
    if isinstance(guard, IsGuard):
        return is_member_with_number(guard.value)
    return isinstance(guard, ValuesGuard) or isinstance(guard, EqualsGuard) and (
        type(guard.value) in (*NUMBER_TYPES, complex, str) or isinstance(guard.value, NUMPY_SCALARS))
