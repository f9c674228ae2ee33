"""The limits of a run, and what exceeds them."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sot.reports.lines import count, to_fix
from sot.reports.model import Break, Line, Report, share
from sot.reports.views.page import percent
from sot.support.errors import Reason, SotError
from sot.support.places import shortened


class LimitError(SotError, ValueError):
    """A limit that cannot be understood."""


@dataclass(frozen=True)
class Limits:
    """What a run may have; None allows everything. ``coverage`` is the least percentage of operations in graphs, of the
    whole run and by module: ``{"models/encoder": 100}``. A module is a path or a dotted name. Failures of capture
    itself are never allowed.

    Raises LimitError for a number of breaks or recompiles below 0, and for a percentage that is not from 0 to 100.
    """

    breaks: int | None = None
    recompiles: int | None = None
    coverage: float | None = None
    modules: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, number in ("breaks", self.breaks), ("recompiles", self.recompiles):
            if number is not None and not number >= 0:
                raise LimitError(f"the limit of {what} is a number from 0, not {number}")
        for where, wanted in [("operations in graphs", self.coverage), *self.modules.items()]:
            if wanted is not None and not 0 <= wanted <= 100:
                raise LimitError(f"the limit of {where} is a percentage from 0 to 100, not {wanted:g}")


@dataclass(frozen=True)
class Finding:
    """Something at a line that a limit is about. ``kind`` is a reason of a break, or ``RECOMPILE``."""

    kind: str
    line: Line
    message: str
    seconds: float = 0.0


def modules_of(texts: Sequence[str]) -> dict[str, float]:
    """The limits ``MODULE=PERCENT`` of a command line."""
    found = {}
    for text in texts:
        module, _, wanted = text.rpartition("=")
        try:
            found[module] = float(wanted)
        except ValueError:
            module = ""
        if not module:
            raise LimitError(f"{text!r} is no limit of a module: write MODULE=PERCENT, such as models.encoder=100")
    return found


def counted(report: Report) -> str:
    """What a run had, in one line."""
    left = sum(b.fallback for b in report.breaks)
    return ", ".join((
        count(len(report.graphs), "graph"), count(len(report.real_breaks), "break"),
        f"{count(left, 'function')} left to Python", f"{len(report.recompiles) or 'none'} recompiled",
        f"{percent(report.coverage)} of {report.in_graphs + report.in_python} operations in graphs"))


def failures(report: Report) -> list[Break]:
    """The functions that Python runs because capture itself failed."""
    return [b for b in report.breaks if b.reason == Reason.INTERNAL.name]


def coverage_of(report: Report, module: str) -> float | None:
    """The share of operations in graphs in the files of a module: a file, or a folder."""
    path = module if "/" in module or module.endswith(".py") else module.replace(".", "/")
    path = path.removesuffix("/").removesuffix(".py")
    found = [f for f in report.functions if is_in(shortened(f.line.file), path)]
    return share(sum(f.in_graphs for f in found), sum(f.in_python for f in found))


def is_in(file: str, path: str) -> bool:
    """Whether a file is that path or below it, seen from the working directory or from any folder above it."""
    inside = "/" + file.removesuffix(".py")
    return f"/{path}/" in f"{inside}/" or inside.endswith(f"/{path}/__init__")


def violations(report: Report, limits: Limits) -> Iterator[str]:
    """A line for each thing that is not as it should be; on GitHub as annotations of the lines."""
    if broken := failures(report):
        yield f"{count(len(broken), 'internal failure')} of capture, none allowed"
        yield from (annotation(finding) for b in broken if (finding := finding_of(b)))
    if limits.breaks is not None and len(report.breaks) > limits.breaks:
        yield f"{len(report.breaks)} breaks, {limits.breaks} allowed"
        yield from (annotation(finding_of(b)) for b in report.breaks)
    if limits.recompiles is not None and len(report.recompiles) > limits.recompiles:
        yield f"{len(report.recompiles)} functions recompiled, {limits.recompiles} allowed"
        yield from (annotation(finding) for finding in findings(report) if finding.kind == "RECOMPILE")
    if limits.coverage is not None and 100 * (report.coverage or 0) < limits.coverage:
        yield f"{100 * (report.coverage or 0):.1f} % of operations in graphs, {limits.coverage:g} % wanted"
    for module, wanted in limits.modules.items():
        found = coverage_of(report, module)
        if found is None:
            yield f"no operation ran in {module}, of which {wanted:g} % are wanted in graphs: is the name right?"
        elif 100 * found < wanted:
            yield f"{100 * found:.1f} % of the operations of {module} in graphs, {wanted:g} % wanted"


def findings(report: Report) -> Iterator[Finding]:
    """Every break, function left to Python and recompile of a run."""
    yield from map(finding_of, report.breaks)
    for again in report.recompiles:
        remedy = f"; {to_fix(again.remedy)}" if again.remedy else ""
        yield Finding("RECOMPILE", again.begins or again.function,
                      f"{again.name} was recompiled: {'; '.join(again.causes)}{remedy}", again.seconds)


def finding_of(b: Break) -> Finding:
    return Finding(b.reason, b.line, f"{b.message}; {to_fix(b.hint)}", b.seconds)


def annotation(finding: Finding) -> str:
    file, line = shortened(finding.line.file), finding.line.line
    if os.environ.get("GITHUB_ACTIONS") == "true":
        return f"::error file={file},line={line}::{finding.message}".replace("\n", "%0A")
    return f"{file}:{line}: {finding.message}"
