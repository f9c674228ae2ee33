"""From records to the data of a report."""
from __future__ import annotations

import linecache
import platform
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from sot.reports import lines
from sot.reports.model import (
    Break,
    Compiled,
    Function,
    Graph,
    Guard,
    Line,
    Operation,
    Recompile,
    Report,
    SourceFile,
    SourceLine,
    Stage,
)
from sot.reports.recording import Recording, Runs, users_file
from sot.reports.records import BreakRecord, Capture, GraphRecord
from sot.reports.scopes import Scope, scope_of
from sot.support.errors import Reason
from sot.support.places import Place, is_installed
from sot.support.version import VERSION
from sot.torch_compat import native
from sot.torch_compat.global_state import LEAVING, STATE_PAIRS, STATE_SETTERS

FRAME = re.compile(r'\s*File "(?P<file>.*?)", line (?P<line>\d+), in (?P<function>.*)')
Captured = list[tuple[Capture, Runs]]
CHANGES_OF_STATE = {*STATE_SETTERS, *STATE_PAIRS, *LEAVING}
ALWAYS_TOLD = {Reason.TENSOR_TRUTH, Reason.TENSOR_VALUE, Reason.TENSOR_SHAPE, Reason.USER_BREAK}


def report_of(recording: Recording) -> Report:
    """All data of a recording."""
    captured = recording.captures
    graphs = [graph_of(c.graph, c, runs) for c, runs in captured if c.graph is not None]
    breaks = breaks_of(captured)
    return Report(
        program=recording.program,
        started=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(recording.clock)),
        elapsed=recording.elapsed,
        outcome=recording.outcome,
        versions={"sot": VERSION, "torch": torch.__version__, "python": platform.python_version(),
                  "tensor guards": native.state()},
        functions=functions_of(captured, breaks, recording.in_python),
        graphs=graphs,
        breaks=breaks,
        guards=guards_of(captured),
        recompiles=[recompile_of(c) for c, _ in captured if c.recompile_reasons and c.graph],
        stages=list(stages_of(captured, recording.started)),
        files=files_of(graphs, breaks, recording.in_python),
        left_out=[name for name, _ in recording.left_out.most_common()],
        gain=recording.gain() if recording.gain is not None else None,
    )


def line_of(place: Place) -> Line:
    return Line(place.file, place.line, place.function, place.source)


# ---- graphs and breaks ----------------------------------------------------------------------------------
def graph_of(record: GraphRecord, capture: Capture, runs: Runs) -> Graph:
    return Graph(
        name=record.name,
        function=line_of(record.place),
        operations=graph_operations(record),
        inputs=sum(node.op == "placeholder" for node in record.module.graph.nodes),
        runs=runs.times,
        seconds=sum(capture.seconds.values()),
        code=record.module.code.strip(),
        kernels=[Compiled(**made) for made in record.module.meta.get("kernels", ())],
        fallbacks=list(record.module.meta.get("fallbacks", ())),
    )


def operation_of(node: Any) -> Operation:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return Operation(name, innermost(node.meta.get("stack_trace") or ""))


def recompile_of(capture: Capture) -> Recompile:
    return Recompile(capture.name, line_of(capture.place), begins(capture),
                     [*lines.reason_lines(capture.recompile_reasons)])


def begins(capture: Capture) -> Line | None:
    """The line of the first operation of its graph."""
    operations = graph_operations(capture.graph) if capture.graph else []
    return next((line for o in operations if (line := o.line)), None)


def graph_operations(record: GraphRecord) -> list[Operation]:
    """The tensor operations. Changes of torch's state are nodes of the graph but not operations."""
    return [operation_of(node) for node in record.module.graph.nodes
            if node.op.startswith("call_") and node.target not in CHANGES_OF_STATE]


def innermost(trace: str) -> Line | None:
    """The last user line in a stack as fx keeps it. Lines of libraries count only if there is no other."""
    frames = [m for text in trace.splitlines() if (m := FRAME.match(text))]
    users = [f for f in frames if users_file(f["file"])]
    for frame in users[::-1] or frames[::-1]:
        return line_of(Place(frame["file"], int(frame["line"]), frame["function"]))
    return None


def breaks_of(captured: Captured) -> list[Break]:
    """Breaks and functions left to Python, the most frequent first. Equal breaks are counted together."""
    found: dict[tuple[BreakRecord, bool], list[Runs]] = defaultdict(list)
    for capture, runs in captured:
        if capture.stopped is not None and not is_idle(capture):
            found[capture.stopped, capture.fallback].append(runs)
    breaks = [
        Break(record.reason.name, record.message, record.hint, line_of(record.place),
              [line_of(place) for place in record.stack], len(all_runs), sum(r.times for r in all_runs), fallback)
        for (record, fallback), all_runs in found.items()]
    return sorted(breaks, key=lambda b: (b.fallback, -b.runs, -b.captures))


def is_idle(capture: Capture) -> bool:
    """Whether the stop costs no graph: it is before any tensor operation, and not at a tensor."""
    if capture.stopped is None:
        return False
    reason = capture.stopped.reason
    if capture.graph is not None or reason is Reason.OBSERVED:
        return reason is Reason.OBSERVED
    return reason is Reason.NOTHING_CAPTURED or not capture.fallback and reason not in ALWAYS_TOLD


def guards_of(captured: Captured) -> list[Guard]:
    counts: Counter[tuple[str, str, str, Line]] = Counter()
    for capture, _ in captured:
        for record, group, sentence in lines.told(capture.guards):
            place = Place(record.file, record.line, capture.place.function)
            counts[sentence, group, capture.name, line_of(place)] += 1
    return [Guard(*key, count) for key, count in counts.items()]


# ---- functions, times, sources ---------------------------------------------------------------------------
def functions_of(captured: Captured, breaks: Iterable[Break], in_python: Counter[Place]) -> list[Function]:
    """One entry per function in which operations ran or capture stopped, whether it was captured itself or inlined in
    its caller. Functions with the most operations come first.
    """
    captures, graphs, stops, ran, python = (Counter[Scope]() for _ in range(5))
    for capture, runs in captured:
        where = scope_of(capture.place.file, capture.place.line, capture.name)
        captures[where] += 1
        if capture.graph is not None:
            graphs[where] += 1
            for place, count in operations_by_line(capture.graph, runs.operations):
                ran[scope_of(place.file, place.line, place.function)] += count
    for b in breaks:
        stops[scope_of(b.line.file, b.line.line, b.line.function)] += not b.fallback
    for place, count in in_python.items():
        python[scope_of(place.file, place.line, place.function)] += count
    return sorted((Function(where.name, line_of(Place(where.file, where.line, where.name)), captures[where],
                            graphs[where], stops[where], ran[where], python[where])
                   for where in dict.fromkeys((*graphs, *stops, *ran, *python))),
                  key=lambda f: (-(f.in_graphs + f.in_python), f.line.file, f.line.line))


def operations_by_line(graph: GraphRecord, total: int) -> Iterator[tuple[Place, int]]:
    """Distributes ``total`` operations of a graph among the lines of its nodes."""
    operations = graph_operations(graph)
    for i, operation in enumerate(operations):
        line = operation.line
        place = graph.place if line is None else Place(line.file, line.line, line.function)
        yield place, total * (i + 1) // len(operations) - total * i // len(operations)


def stages_of(captured: Captured, started: float) -> Iterator[Stage]:
    for capture, _ in captured:
        start = capture.began - started
        line = begins(capture) or line_of(capture.place)
        for stage, seconds in capture.seconds.items():
            yield Stage(capture.name, line, stage, start, seconds)
            start += seconds


def files_of(graphs: Iterable[Graph], breaks: Iterable[Break], in_python: Counter[Place]) -> list[SourceFile]:
    """The files in which anything happened, line by line. The program's own files come first."""
    graph_runs: dict[str, Counter[int]] = defaultdict(Counter)
    python_runs: dict[str, Counter[int]] = defaultdict(Counter)
    broken: dict[str, set[int]] = defaultdict(set)
    for graph in graphs:
        for operation in graph.operations:
            if operation.line is not None:
                graph_runs[operation.line.file][operation.line.line] += max(graph.runs, 1)
    for b in breaks:
        if not b.fallback:
            broken[b.line.file].add(b.line.line)
    for place, count in in_python.items():
        python_runs[place.file][place.line] += count
    files = []
    for path in sorted({*graph_runs, *python_runs, *broken}, key=lambda path: (is_installed(path), path)):
        text = linecache.getlines(path)
        if text and users_file(path):
            files.append(SourceFile(path, is_installed(path), [
                source_line(i, line.rstrip("\n"), i in broken[path], graph_runs[path][i], python_runs[path][i])
                for i, line in enumerate(text, 1)]))
    return files


def source_line(number: int, text: str, broken: bool, in_graphs: int, in_python: int) -> SourceLine:
    state = "break" if broken else "graph" if in_graphs else "python" if in_python else ""
    return SourceLine(number, text, state, in_graphs, in_python)
