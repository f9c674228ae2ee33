"""One HTML page of a report, which needs no other file and no network."""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sot.reports.lines import count, milliseconds, shortened
from sot.reports.model import Guard, Line, Report, Stage

AROUND = 2      # lines of source shown before and after one that is marked


def page(report: Report) -> str:
    """The page, as text."""
    return template().render(report=report, guards=guards_by_group(report.guards), timeline=timeline(report))


@functools.cache
def template() -> Any:
    environment = Environment(loader=PackageLoader("sot", "reports"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"count": count, "duration": milliseconds, "percent": percent, "short": shortened,
                            "at": at}
    environment.globals |= {"excerpt": excerpt, "anchor": anchor}
    return environment.get_template("page.html.j2")


def percent(part: float | None) -> str:
    """Rounded down, so that 100 % means all; nothing to have a share of is a dash."""
    return "–" if part is None else f"{int(part * 100)} %"


def at(line: Line) -> str:
    return f"{shortened(line.file)}:{line.line}"


def anchor(line: Line) -> str:
    return f"{line.file}:{line.line}"


def excerpt(report: Report, line: Line) -> list[tuple[int, str, bool]]:
    """The source around a line: number, text, and whether it is the one."""
    file = next((f for f in report.files if f.path == line.file), None)
    if file is None:
        return [(line.line, line.source, True)] if line.source else []
    first = max(line.line - AROUND, 1)
    return [(s.number, s.text, s.number == line.line) for s in file.lines[first - 1:line.line + AROUND]]


def guards_by_group(guards: Iterable[Guard]) -> dict[str, list[Guard]]:
    """Guards by what they protect; the largest group first, and in it what is there most often."""
    groups: dict[str, list[Guard]] = {}
    for guard in guards:
        groups.setdefault(guard.group, []).append(guard)
    return {group: sorted(groups[group], key=lambda g: -g.count)
            for group in sorted(groups, key=lambda g: -sum(guard.count for guard in groups[g]))}


def timeline(report: Report) -> Iterator[dict[str, Any]]:
    """Bars: a row a capture, with the share of the whole time at which each stage starts and that it takes."""
    whole = max([report.elapsed, *(s.start + s.seconds for s in report.stages)], default=0.0) or 1.0
    def of_one_capture(stage: Stage) -> tuple[str, float]:
        return stage.function, first_start(report.stages, stage)
    for (function, start), stages in itertools.groupby(report.stages, of_one_capture):
        several = list(stages)
        yield {"function": function, "start": start, "seconds": sum(s.seconds for s in several),
               "bars": [(s.stage, 100 * s.start / whole, max(100 * s.seconds / whole, 0.15), s.seconds)
                        for s in several]}


def first_start(stages: list[Stage], stage: Stage) -> float:
    """When the capture began that a stage belongs to: stages follow on each other without a gap."""
    start = stage.start
    for other in reversed(stages[:stages.index(stage)]):
        if other.function != stage.function or abs(other.start + other.seconds - start) > 1e-9:
            break
        start = other.start
    return start
