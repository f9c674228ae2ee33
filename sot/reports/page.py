"""The HTML page of a report. It needs no other file and no network."""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sot.reports.gain import gain_lines
from sot.reports.lines import count, milliseconds
from sot.reports.model import Guard, Line, Report, SourceFile, SourceLine, Stage
from sot.support.places import shortened

LONG_FOLD = 12  # so many lines in a row without tensor operations are folded
CAPTURES_SHOWN = 50     # in the timeline
AROUND = 2      # source lines shown before and after a marked line


def page(report: Report) -> str:
    """The page, as text."""
    return template().render(report=report, guards=guards_by_group(report.guards), timeline=timeline(report))


@functools.cache
def template() -> Any:
    environment = Environment(loader=PackageLoader("sot", "reports"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"count": count, "duration": milliseconds, "percent": percent, "short": shortened,
                            "at": at, "folds": folds}
    environment.globals |= {"excerpt": excerpt, "anchor": anchor, "gain_lines": gain_lines}
    return environment.get_template("page.html.j2")


def percent(part: float | None) -> str:
    """A percentage, rounded down so that 100 % means all. A dash stands for an undefined share."""
    return "–" if part is None else f"{int(part * 100)} %"


def at(line: Line) -> str:
    return f"{shortened(line.file)}:{line.line}"


def anchor(line: Line) -> str:
    return f"{line.file}:{line.line}"


def excerpt(report: Report, line: Line) -> list[tuple[int, str, bool]]:
    """The source around a line: number, text, and whether it is that line."""
    file = next((f for f in report.files if f.path == line.file), None)
    if file is None:
        return [(line.line, line.source, True)] if line.source else []
    first = max(line.line - AROUND, 1)
    return [(s.number, s.text, s.number == line.line) for s in file.lines[first - 1:line.line + AROUND]]


def folds(file: SourceFile) -> Iterator[tuple[bool, list[SourceLine]]]:
    """The lines of a file in pieces, and whether to fold each piece because nothing happened in it."""
    busy = [i for i, line in enumerate(file.lines) if line.state]
    near = {i for found in busy for i in range(found - AROUND, found + AROUND + 1)}
    for shown, piece in itertools.groupby(enumerate(file.lines), lambda pair: pair[0] in near):
        several = [line for _, line in piece]
        yield not shown and len(several) >= LONG_FOLD, several


def guards_by_group(guards: Iterable[Guard]) -> dict[str, list[Guard]]:
    """Guards by what they protect: the largest group first, and the most frequent guards first."""
    groups: dict[str, list[Guard]] = {}
    for guard in guards:
        groups.setdefault(guard.group, []).append(guard)
    return {group: sorted(groups[group], key=lambda g: -g.count)
            for group in sorted(groups, key=lambda g: -sum(guard.count for guard in groups[g]))}


def timeline(report: Report) -> tuple[list[dict[str, Any]], int]:
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
