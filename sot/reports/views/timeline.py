"""The timelines of a page: one step of the program, and the captures."""
from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sot.reports.model import Event, Report, Stage

CAPTURES_SHOWN = 50
BARS = 400          # as many can be told apart
THIN = 1 / 2000     # of the width: shorter bars are not drawn
LARGE = 0.1         # of the time of the graph that takes most: a graph that marks steps takes at least this


@dataclass(frozen=True)
class Step:
    """A part of the run, and its bars by thread: event, left end and width in percent."""

    seconds: float
    whole: bool
    threads: list[list[tuple[Event, float, float]]]


def step(report: Report) -> Step | None:
    """The last step: from one run of the graph that marks steps to its next run. Without one, all that is known."""
    if not report.events:
        return None
    steps = whole_steps(marks(report.events))
    first, last = steps[-1] if steps else (
        report.events[0].start, max(event.start + event.seconds for event in report.events))
    length = max(last - first, 1e-9)
    threads: dict[int, list[tuple[Event, float, float]]] = defaultdict(list)
    for event in report.events:
        start, end = max(event.start, first), min(event.start + event.seconds, last)
        if end - start > THIN * length:
            threads[event.thread].append((event, 100 * (start - first) / length, 100 * (end - start) / length))
    return Step(length, not steps, [longest(bars, BARS // len(threads)) for bars in threads.values()])


def whole_steps(starts: list[float]) -> list[tuple[float, float]]:
    """The steps between marks. Of short graphs not all runs are measured, so a much longer pause is several steps."""
    steps = list(itertools.pairwise(starts))
    longest = 1.5 * statistics.median(b - a for a, b in steps) if steps else 0.0
    return [(a, b) for a, b in steps if b - a <= longest]


def marks(events: list[Event]) -> list[float]:
    """The starts of the graph that marks steps: of the graphs that take much time, the one that ran the least often
    but more than once.
    """
    runs: dict[tuple[str, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "graph":
            runs[event.name, event.line].append(event)
    several = [found for found in runs.values() if len(found) > 1]
    most = max((sum(e.seconds for e in found) for found in several), default=0.0)
    large = [found for found in several if sum(e.seconds for e in found) >= LARGE * most]
    return [event.start for event in min(large, key=len, default=[])]


def longest(bars: list[tuple[Event, float, float]], count: int) -> list[tuple[Event, float, float]]:
    """The ``count`` longest bars. Outer ones come first, so inner ones are drawn over them."""
    kept = sorted(bars, key=lambda bar: -bar[2])[:count]
    return sorted(kept, key=lambda bar: (bar[1], -bar[2]))


def captures(report: Report) -> tuple[list[dict[str, Any]], int]:
    """Bars with one row per capture: for each stage the shares of the total time at its start and in it. Shows the
    longest captures in the order in which they were made. Also returns the number of the others.
    """
    whole = max([report.elapsed, *(s.start + s.seconds for s in report.stages)], default=0.0) or 1.0
    rows: list[dict[str, Any]] = []
    for _, stages in itertools.groupby(report.stages, lambda stage: (stage.line, first_start(report.stages, stage))):
        several = list(stages)
        rows.append({"function": several[0].function, "line": several[0].line,
                     "seconds": sum(s.seconds for s in several),
                     "bars": [(s.stage, 100 * s.start / whole, max(100 * s.seconds / whole, 0.15), s.seconds)
                              for s in several]})
    shortest = sorted(rows, key=lambda row: -row["seconds"])[CAPTURES_SHOWN:]
    left_out = {id(row) for row in shortest}
    return [row for row in rows if id(row) not in left_out], len(shortest)


def first_start(stages: list[Stage], stage: Stage) -> float:
    """The start of the capture that a stage belongs to. Stages follow each other without gaps."""
    start = stage.start
    for other in reversed(stages[:stages.index(stage)]):
        if other.line != stage.line or abs(other.start + other.seconds - start) > 1e-9:
            break
        start = other.start
    return start
