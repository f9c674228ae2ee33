"""What a translated function or module shows of its captures, and the result of ``explain``.

An ``Explanation`` is data (the records of sot.reports) and prints itself as a report. ``Inspected`` is the base class
of the translations of functions and of modules.
"""
from __future__ import annotations

import dis
import functools
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sot.driver.translator import Translator
from sot.reports import lines as report
from sot.reports.recording import Recording, Runs
from sot.reports.records import BreakRecord, Capture, GraphRecord, GuardRecord
from sot.reports.views.marked_source import LEGEND, marked_source, print_marked, why

if TYPE_CHECKING:
    from sot.reports.model import Report


@dataclass(frozen=True, repr=False)
class Explanation:
    """What was captured, in one call or so far.

    ``result`` is the result of the call. ``captures`` has one record for each frame that the translator worked on, in
    order. ``elapsed`` is the total time of the call in seconds, or None for all calls so far.
    """

    name: str
    result: Any
    captures: list[Capture]
    elapsed: float | None
    recording: Recording = field(default_factory=functools.partial(Recording, ""))

    @property
    def report(self) -> Report:
        """All data, which can be saved as JSON or as a page: ``report.save("report.html")``."""
        return self.recording.report

    @property
    def graphs(self) -> list[GraphRecord]:
        """The graphs that went to the backend."""
        return [c.graph for c in self.captures if c.graph is not None]

    @property
    def breaks(self) -> list[BreakRecord]:
        """The places where a graph ended before the function did."""
        return [c.stopped for c in self.captures if c.stopped is not None and not c.fallback]

    @property
    def fallbacks(self) -> list[Capture]:
        """Frames that Python runs as a whole. ``stopped`` of each says why."""
        return [c for c in self.captures if c.fallback]

    @property
    def guards(self) -> list[GuardRecord]:
        """The conditions for the reuse of the graphs."""
        return [guard for c in self.captures for guard in c.guards]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each stage of capture, and their ``total``."""
        stages: Counter[str] = Counter()
        for capture in self.captures:
            stages.update(capture.seconds)
        return {**stages, "total": sum(stages.values())}

    def text(self, verbose: bool = False) -> str:
        """The report. ``verbose`` adds the code of the graphs and all guards."""
        return "\n".join(self._lines(verbose))

    def summary(self) -> str:
        """The report in one line."""
        operations = sum(graph.operations for graph in self.graphs)
        counts = (report.count(len(self.graphs), "graph"), report.count(operations, "operation"),
                  report.count(len(self.breaks), "break"), report.count(len(self.guards), "guard"))
        return f"{self.name}: {', '.join(counts)}, captured in {report.milliseconds(self.seconds['total'])}"

    def _lines(self, verbose: bool) -> Iterator[str]:
        again = [c for c in self.captures if c.recompile_reasons]
        yield self.summary()
        if not self.captures:
            yield from ("", "It has not been called yet." if self.elapsed is None
                        else "No function of the program ran that can be captured.")
        if self.elapsed is not None:
            yield from report.section(f"Source ({LEGEND})", (line.text for line in marked_source(self.report)))
        yield from report.section("Graphs", report.items(report.graph_lines(g, verbose) for g in self.graphs))
        yield from report.section("Breaks", report.breaks_lines(self.breaks))
        yield from report.section("Run by Python", report.fallbacks_lines(self.fallbacks))
        yield from report.section("Recompiled", report.items(report.recompile_lines(c) for c in again))
        yield from report.section("Guards", report.guards_lines(self.guards, verbose))
        whole = {} if self.elapsed is None else {"the whole call": self.elapsed}
        if self.captures or whole:
            yield from report.section("Times", report.seconds_lines(self.seconds | whole))

    def why(self, name: str) -> str:
        """Why a value is guarded, where it comes from, and the lines that need it. ``name`` is its name in the program,
        such as ``x`` or ``self.layers.0.weight``.
        """
        return "\n".join(why(self.report, name))

    def show(self, verbose: bool = False) -> None:
        """Print the report; on a terminal in colour."""
        print_marked(self._lines(verbose), self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Explanation of {self.summary()}>"


class Inspected:
    """The captures of a translated function or module so far; none before the first call."""

    __slots__ = ()
    translator: Translator

    @property
    def _title(self) -> str:
        """Its name in reports."""
        raise NotImplementedError

    @property
    def captures(self) -> list[Capture]:
        """The captures so far, one per frame: a list of ``sot.reports.records.Capture``."""
        return self.translator.captures

    @property
    def graphs(self) -> list[GraphRecord]:
        """The graphs that went to the backend; ``module`` of each is its torch.fx.GraphModule."""
        return self.explain().graphs

    @property
    def guards(self) -> list[GuardRecord]:
        """The conditions for the reuse of the graphs; ``str`` of each is a sentence."""
        return self.explain().guards

    @property
    def code(self) -> str:
        """The Python source of the functions that run in place of the captured ones. Guards that C checks and values
        that C loads are not included. Comments say what the names stand for.
        """
        return "\n\n".join(self._sources())

    @property
    def bytecode(self) -> str:
        """The instructions of these functions, as ``dis`` prints them."""
        text = io.StringIO()
        for source in self._sources():
            heading = source.partition("\n")[0]
            emitted = next(c for c in compile(source, "<emitted>", "exec").co_consts if hasattr(c, "co_code"))
            print(heading, file=text)
            dis.dis(emitted, file=text)
        return text.getvalue()

    def _sources(self) -> list[str]:
        return [f"# {heading(c)}\n{c.code.rstrip()}" for c in self.captures if c.code]

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def explain(self) -> Explanation:
        """A report of the captures so far. ``sot.explain`` reports on a single call with a fresh capture."""
        recording = Recording(self._title)
        recording.captures = [(capture, Runs()) for capture in self.captures]
        recording.started = min((capture.began for capture in self.captures), default=recording.started)
        return Explanation(self._title, None, list(self.captures), None, recording)


def heading(capture: Capture) -> str:
    stop = capture.stopped
    then = f"; then Python runs line {stop.place.line}, because {stop.message}" if stop else ""
    return f"{capture.name}, at {report.at(capture.place)}{then}"
