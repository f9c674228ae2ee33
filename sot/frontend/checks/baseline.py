"""A baseline: a file with the figures of the best run so far, which a later run must reach.

The file is JSON that a person can read and commit. A run that is worse in any figure fails. A run that is better in
some figure and worse in none replaces the file. So the figures only get better.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sot.frontend.checks.limits import failures
from sot.reports.model import Report
from sot.support.errors import SotError
from sot.support.places import shortened

Figures = dict[str, float]
LESS_IS_BETTER = ("breaks", "functions left to Python", "recompiled", "internal failures")
COVERAGE = "% in graphs: "      # of a file
ALL = COVERAGE + "all"


class BaselineError(SotError, ValueError):
    """A file is not a baseline."""


def figures_of(report: Report) -> Figures:
    """The figures of a run. Files of installed packages count in the sum only."""
    found: Figures = {
        "breaks": len(report.real_breaks), "functions left to Python": sum(b.fallback for b in report.breaks),
        "recompiled": len(report.recompiles), "internal failures": len(failures(report)),
        ALL: rounded(report.in_graphs, report.in_python)}
    for file in report.files:
        ran = [f for f in report.functions if f.line.file == file.path]
        if ran and not file.library:
            in_graphs, in_python = sum(f.in_graphs for f in ran), sum(f.in_python for f in ran)
            found[COVERAGE + shortened(file.path)] = rounded(in_graphs, in_python)
    return found


def rounded(in_graphs: int, in_python: int) -> float:
    """A percentage with one digit, rounded down."""
    return int(1000 * in_graphs / max(in_graphs + in_python, 1)) / 10


def worse(before: Figures, after: Figures) -> Iterator[str]:
    """A line for each figure that has become worse. A file that did not run has no figure."""
    for name in before.keys() & after.keys():
        if is_worse(name, before[name], after[name]):
            yield f"{name}: {before[name]:g} in the baseline, now {after[name]:g}"


def is_worse(name: str, before: float, after: float) -> bool:
    return after > before if name in LESS_IS_BETTER else after < before


def better(before: Figures, after: Figures) -> Figures:
    """The figures of a baseline after a run that was worse in none: the better of each."""
    return before | {name: value for name, value in after.items() if not is_worse(name, before.get(name, value), value)}


def ratchet(path: Path, report: Report) -> list[str]:
    """Compare a run with the baseline, and return what is worse. If nothing is, the file gets the figures of the run.

    Raises BaselineError, and OSError if the file cannot be written.
    """
    after = figures_of(report)
    before = read(path) if path.exists() else after
    problems = sorted(worse(before, after))
    if not problems and (new := better(before, after)) != (before if path.exists() else None):
        path.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return problems


def read(path: Path) -> Figures:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise BaselineError(f"{path} is not a baseline: {e}") from e
    if not isinstance(data, dict) or ALL not in data or not all(isinstance(v, int | float) for v in data.values()):
        raise BaselineError(f"{path} is not a baseline: it is written by sot check --baseline")
    return data
