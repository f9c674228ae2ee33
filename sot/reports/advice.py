"""What to change first: the losses of a run, the largest first.

A loss is time that a change of the program can win: what Python ran after a break, the tensor operations of a function
that Python runs or of code outside of functions, repeated captures of one function, the checks of guards. Losses below
``SMALL`` of the time need no action, and neither do those whose remedy is to do nothing.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sot.reports.lines import count
from sot.reports.model import Break, Line, Recompile, Report
from sot.reports.scopes import MODULE
from sot.support.errors import NOTHING

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
    for b in report.stops:
        yield Loss(b.message, b.hint, b.line, b.seconds, b)
    again: defaultdict[tuple[str, Line, str], list[Recompile]] = defaultdict(list)
    for recompile in report.recompiles:
        again[recompile.name, recompile.function, recompile.remedy].append(recompile)
    for (name, line, remedy), found in again.items():
        cause = f": {found[-1].causes[0]}" if found[-1].causes else ""
        times = f" {len(found)} times" if len(found) > 1 else ""
        yield Loss(f"{name} was recompiled{times}{cause}", remedy, found[-1].begins or line,
                   sum(r.seconds for r in found), found[-1])
    for f in report.functions:
        if f.name == MODULE:
            yield Loss(f"{count(f.in_python, 'tensor operation')} outside of functions, which Python runs",
                       "move them into a function: capture begins with a call", f.line, f.seconds)
    slowest = max(report.graphs, key=lambda graph: graph.checking, default=None)
    if slowest is not None:
        yield Loss(f"checking the guards of {slowest.name}", "capture a larger function, so that they are checked less "
                   "often", slowest.function, slowest.checking)


def is_small(report: Report, b: Break) -> bool:
    """Whether a break needs no action: it costs next to no time."""
    return b.seconds <= SMALL * running(report)
