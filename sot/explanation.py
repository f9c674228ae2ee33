"""explain(fn)(*args): one call, captured afresh, and what came of it.

An ``Explanation`` is data, the records of sot.records, and prints itself as the report of the same.
"""
from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from sot import _hook
from sot.api import (
    Settings,
    StaticFunction,
    StaticModule,
    TargetError,
    original,
    refuse_unreachable,
    translation_of,
)
from sot.backends import lookup_backend
from sot.guards import short
from sot.marks import name_of
from sot.recording import Recording, recorded
from sot.records import BreakRecord, Capture, GraphRecord, GuardRecord
from sot.reports import lines as report
from sot.reports.build import report_of
from sot.reports.model import Report
from sot.translate import Translator


@dataclass(frozen=True, repr=False)
class Explanation:
    """What one call captured.

    ``result`` is what the call returned; ``captures`` has one record for each frame that the translator worked
    on, in order; ``elapsed`` is what the call took altogether, in seconds.
    """

    name: str
    result: Any
    captures: list[Capture]
    elapsed: float
    recording: Recording = field(default_factory=functools.partial(Recording, ""))

    @property
    def report(self) -> Report:
        """All of this as plain data, which can be saved as JSON or as a page: ``report.save("report.html")``."""
        return report_of(self.recording)

    @property
    def graphs(self) -> list[GraphRecord]:
        """The graphs that went to the backend."""
        return [c.graph for c in self.captures if c.graph is not None]

    @property
    def breaks(self) -> list[BreakRecord]:
        """Where a graph ended before the function did."""
        return [c.stopped for c in self.captures if c.stopped is not None and not c.fallback]

    @property
    def fallbacks(self) -> list[Capture]:
        """Frames that are run by Python altogether; ``stopped`` of each says why."""
        return [c for c in self.captures if c.fallback]

    @property
    def guards(self) -> list[GuardRecord]:
        """What must hold for the graphs to be used again."""
        return [guard for c in self.captures for guard in c.guards]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each stage of capture, and their ``total``."""
        stages: Counter[str] = Counter()
        for capture in self.captures:
            stages.update(capture.seconds)
        return {**stages, "total": sum(stages.values())}

    def text(self, verbose: bool = False) -> str:
        """The report. ``verbose``: with the code of the graphs and with all guards."""
        return "\n".join(self._lines(verbose))

    def summary(self) -> str:
        """The report in one line."""
        operations = sum(graph.operations for graph in self.graphs)
        counts = (report.count(len(self.graphs), "graph"), report.count(operations, "operation"),
                  report.count(len(self.breaks), "break"), report.count(len(self.guards), "guard"))
        return f"{self.name}: {', '.join(counts)}, captured in {report.milliseconds(self.seconds['total'])}"

    def _lines(self, verbose: bool) -> Iterator[str]:
        again = [c for c in self.captures if c.missed]
        yield self.summary()
        if not self.captures:
            yield from ("", "No function of the program was met that a translator looks at.")
        yield from report.section("Graphs", report.items(report.graph_lines(g, verbose) for g in self.graphs))
        yield from report.section("Breaks", report.breaks_lines(self.breaks))
        yield from report.section("Run by Python", report.fallbacks_lines(self.fallbacks))
        yield from report.section("Captured again", report.items(report.recapture_lines(c) for c in again))
        yield from report.section("Guards", report.guards_lines(self.guards, verbose))
        yield from report.section("Times", report.seconds_lines(self.seconds | {"the whole call": self.elapsed}))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Explanation of {self.summary()}>"


def explain(fn_or_module: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` calls ``fn(*args)`` once, captures it afresh, and answers what was captured.

    Arguments:
        fn_or_module: what to_static takes, but no class. If it is translated already, the backend and input_spec are
            those it was translated with, and breaks are shown even if its ``full_graph`` refuses them; otherwise the
            backend is eager. It is left as it was.

    What the call raises is raised here. Raises TargetError for what cannot be translated.
    """
    target = fn_or_module.__func__ if isinstance(fn_or_module, staticmethod) else fn_or_module
    translation = translation_of(target)
    settings = translation.settings if translation else Settings("eager")
    if isinstance(target, torch.nn.Module):
        refuse_unreachable(target)
        return functools.partial(explained, StaticModule, target, type(target).forward, settings)
    if isinstance(target, type | classmethod):
        raise TargetError(f"explain needs something to call, not {short(target)}: give it an instance or a method")
    fn = original(target, "explain")
    return functools.partial(explained, StaticFunction, fn, fn, settings)


def explained(kind: Callable[..., Any], target: Any, root: Any, settings: Settings, /, *args: Any,
              **kwargs: Any) -> Explanation:
    """Call ``kind(target)`` once under a translator of its own; ``root`` is the function that it runs."""
    translator = Translator(lookup_backend(settings.backend), full_graph=False, strict=False)
    call = kind(target, settings, translator)
    look_again(root)
    recording = Recording(name_of(target).removeprefix("a "))
    try:
        with recorded(recording):
            result = call(*args, **kwargs)
        return Explanation(recording.program, result, list(translator.captures), recording.elapsed, recording)
    finally:
        translator.forget()


def look_again(root: Any) -> None:
    """If Python runs a function ever since a capture failed: let the translator try once more, to hear why."""
    code = getattr(inspect.unwrap(root), "__code__", None)
    if code is not None and _hook.is_skipped(code):
        entries = _hook.get_entries(code)
        _hook.reset(code)
        _hook.set_entries(code, entries)
