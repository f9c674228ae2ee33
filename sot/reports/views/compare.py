"""Shows what has become better or worse between two reports."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sot.reports.model import Break, Report
from sot.reports.views.page import percent
from sot.support.places import shortened


@dataclass(frozen=True)
class Difference:
    """``worse`` is None for a difference that is neither better nor worse."""

    text: str
    worse: bool | None = None


FIGURES: tuple[tuple[str, Callable[[Report], Any]], ...] = (
    ("graphs", lambda r: len(r.graphs)),
    ("breaks", lambda r: len(r.real_breaks)),
    ("functions left to Python", lambda r: sum(b.fallback for b in r.breaks)),
    ("recompiled", lambda r: len(r.recompiles)),
    ("guards", lambda r: sum(g.count for g in r.guards)),
    ("kernels", lambda r: sum(made.kernels for g in r.graphs for made in g.kernels)),
    ("bytes that kernels move in a run of each graph",
     lambda r: sum(made.bytes for g in r.graphs for made in g.kernels)),
    ("graphs that eager PyTorch runs for the backend", lambda r: sum(bool(g.fallbacks) for g in r.graphs)),
)
NEUTRAL = ("graphs", "guards", "kernels")


def compare(before: Report, after: Report) -> Iterator[Difference]:
    """The coverage, the counts that differ, and each new or vanished break."""
    old, new = before.coverage, after.coverage
    if percent(old) != percent(new):
        worse = None if old is None or new is None else new < old
        yield Difference(f"operations in graphs: {percent(old)} -> {percent(new)}", worse)
    for name, figure in FIGURES:
        a, b = figure(before), figure(after)
        if a != b:
            yield Difference(f"{name}: {a} -> {b}", None if name in NEUTRAL else b > a)
    a_breaks, b_breaks = (Counter(map(identity, report.breaks)) for report in (before, after))
    for b in after.breaks:
        if identity(b) not in a_breaks:
            yield Difference(f"new: {described(b)}", True)
    for b in before.breaks:
        if identity(b) not in b_breaks:
            yield Difference(f"gone: {described(b)}", False)


def identity(b: Break) -> tuple[str, ...]:
    """What identifies a break after its lines have moved: its message and the text of its line."""
    return b.message, b.line.file, b.line.function, b.line.source


def described(b: Break) -> str:
    return f"{b.message} at {shortened(b.line.file)}:{b.line.line}: {b.line.source}"


MARKS = {True: "🔴", False: "🟢", None: "⚪"}


def as_markdown(differences: Iterable[Difference]) -> str:
    """The differences as a comment on a pull request."""
    found = list(differences)
    if not found:
        return "**SOT**: no difference in graphs, breaks and guards."
    worse, good = sum(bool(d.worse) for d in found), sum(d.worse is False for d in found)
    rows = (f"| {MARKS[d.worse]} | {escaped(d.text)} |" for d in sorted(found, key=lambda d: not d.worse))
    return "\n".join((f"**SOT**: {worse} worse, {good} better", "", "| | |", "| --- | --- |", *rows))


def escaped(text: str) -> str:
    """The text in a cell of a table."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~" else c for c in " ".join(text.split()))
