"""The history of a value that kept changing: ``epoch == 3, then 4, then 5 (used in train, line 12 of train.py)``."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sot.guards.guards import EqualsGuard, Guard, RelationGuard
from sot.reports.records import RecompileReason
from sot.reports.scopes import scope_of
from sot.support.places import shortened

BETWEEN = (" == ", " is a ", " are ", " is ")
Kind = tuple[type, object]


def kind_of(reason: RecompileReason) -> Kind | None:
    """The key of reasons that concern the same value: the kind of the guard, and its subject."""
    guard = reason.guard
    if not isinstance(guard, Guard):
        return None
    is_value = isinstance(guard, RelationGuard) and guard.symbol == "==" and guard.left == guard.origin
    return (EqualsGuard if is_value else type(guard)), guard.origin


def by_kind(reasons: Iterable[RecompileReason]) -> list[list[RecompileReason]]:
    """Reasons grouped by the value that they concern, in the order of the first of each group."""
    found: dict[object, list[RecompileReason]] = defaultdict(list)
    for reason in reasons:
        found[kind_of(reason) or id(reason)].append(reason)
    return list(found.values())


def history(reasons: Sequence[RecompileReason]) -> str:
    """The values in the captures that do not fit (the newest is first in ``reasons``), and the current value."""
    found = [parts(reason) for reason in reversed(reasons)]
    subjects = list(dict.fromkeys(subject for subject, _, _ in found))
    if len(subjects) == 1:
        values = ", then ".join(dict.fromkeys(value for _, value, _ in found))
        text = f"{subjects[0]}{values}"
    else:
        text = ", then ".join(dict.fromkeys(f"{subject}{value}" for subject, value, _ in found))
    now = next((seen for _, _, seen in reversed(found) if seen), "")
    return text + (f", now {now}" if now else "") + used(reasons)


def number_of_values(reasons: Sequence[RecompileReason]) -> int:
    """How many values a value of the program has had in the captures that do not fit."""
    return len({value for _, value, _ in map(parts, reasons)})


def parts(reason: RecompileReason) -> tuple[str, str, str]:
    """The parts of a sentence such as ``expected n == 3, got 4``: the subject, the value, and the actual value."""
    expected, _, seen = reason.text.removeprefix("expected ").removeprefix("that ").rpartition(", got ")
    expected = expected or reason.text.removeprefix("expected ")
    for between in BETWEEN:
        if between in expected and not expected.startswith("not "):
            subject, _, value = expected.partition(between)
            return subject + between, value, seen
    return "", expected, seen


def used(reasons: Sequence[RecompileReason]) -> str:
    """The place where the program used the value."""
    for reason in reasons:
        if reason.file:
            where = scope_of(reason.file, reason.line, "")
            function = f"{where.name}, " if where.name and where.name != "<module>" else ""
            return f" (used in {function}line {reason.line} of {shortened(reason.file)})"
    return ""
