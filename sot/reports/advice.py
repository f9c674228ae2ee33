"""What to change first: the losses of a run, the largest first.

A loss is time that a change of the program can win: what Python ran after a break of a function with tensor operations,
the tensor operations of a function that Python runs or of code outside of functions, repeated captures of one function,
the checks of guards. Losses below ``SMALL`` of the time need no action, and neither do those whose remedy is to do
nothing.

Advice is about the user's own code: a break in a library has the user's line that led there. What is lost where a
capture began in a library's own code is one loss for each package, because the user can exclude the package.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sot.reports.lines import count
from sot.reports.model import Break, Line, Recompile, Report
from sot.reports.scopes import MODULE
from sot.support.errors import NOTHING
from sot.support.places import is_of_library, shortened

SMALL = 0.01        # of the time outside of captures; of recompiles: of the whole time


@dataclass(frozen=True)
class Loss:
    """Time that a change could win. ``what`` names it, ``remedy`` says what to change, at ``line``. ``subject`` is the
    break or the recompiles that it is about, or None.
    """

    what: str
    remedy: str
    line: Line
    seconds: float
    subject: Break | Recompile | None = None


def losses(report: Report) -> list[Loss]:
    """All losses that are worth an action, the largest first."""
    return sorted((loss for loss in all_losses(report) if loss.seconds > SMALL * floor(report, loss)
                   and not loss.remedy.startswith(NOTHING)), key=lambda loss: -loss.seconds)


def first_change(report: Report) -> Loss | None:
    return next(iter(losses(report)), None)


def floor(report: Report, loss: Loss) -> float:
    """The time that a loss is compared with."""
    return report.elapsed if isinstance(loss.subject, Recompile) else running(report)


def running(report: Report) -> float:
    """The time of the run without captures, in seconds."""
    return max(report.elapsed - report.times.captures, 1e-9)


def all_losses(report: Report) -> Iterator[Loss]:
    yield from losses_of_packages(report)
    for b in report.stops:
        if b.has_work and not b.package:
            line = own_line(b.line, *b.stack[::-1], b.caller)
            where = "" if line is b.line else f", in {b.line.function} ({shortened(b.line.file)}:{b.line.line})"
            yield Loss(b.message + where, b.hint, line, b.seconds, b)
    again: defaultdict[tuple[str, Line, str], list[Recompile]] = defaultdict(list)
    for recompile in (r for r in report.recompiles if not r.package):
        again[recompile.name, recompile.function, recompile.remedy].append(recompile)
    for (name, line, remedy), found in again.items():
        cause = f": {found[-1].causes[0]}" if found[-1].causes else ""
        times = f" {len(found)} times" if len(found) > 1 else ""
        yield Loss(f"{name} was recompiled{times}{cause}", remedy, own_line(found[-1].begins or line, found[-1].caller),
                   sum(r.seconds for r in found), found[-1])
    for f in report.functions:
        if f.name == MODULE:
            yield Loss(f"{count(f.in_python, 'tensor operation')} outside of functions, which Python runs",
                       "move them into a function: capture begins with a call", f.line, f.seconds)
    slowest = max((graph for graph in report.graphs if graph.runs > 1), key=lambda graph: graph.checking, default=None)
    if slowest is not None:
        yield Loss(f"checking the guards of {slowest.name}", "capture a larger function, so that they are checked less "
                   "often", slowest.function, slowest.checking)


def losses_of_packages(report: Report) -> Iterator[Loss]:
    found: defaultdict[str, list[Break | Recompile]] = defaultdict(list)
    for recompile in report.recompiles:
        found[recompile.package].append(recompile)
    for b in report.stops:
        if b.has_work:
            found[b.package].append(b)
    found.pop("", None)
    for package, subjects in found.items():
        recompiles = sum(isinstance(s, Recompile) for s in subjects)
        largest = max(subjects, key=lambda s: s.seconds)
        line = largest.caller or (largest.line if isinstance(largest, Break) else largest.function)
        yield Loss(f"captures begin in {package}, a library: {count(recompiles, 'recompile')} and "
                   f"{count(len(subjects) - recompiles, 'break')}",
                   f"begin them in what it calls: leave {package} to Python with SOT_EXCLUDE={package}, --exclude "
                   f"{package} or sot.enable(exclude=[\"{package}\"])", line, sum(s.seconds for s in subjects),
                   largest)


def own_line(*lines: Line | None) -> Line:
    """The first of these lines that is in the user's own code; the first line if none is."""
    known = [line for line in lines if line is not None]
    return next((line for line in known if not is_of_library(line.file)), known[0])


def is_small(report: Report, b: Break) -> bool:
    """Whether a break needs no action: it costs next to no time that a change could win."""
    return not b.has_work or b.seconds <= SMALL * running(report)
