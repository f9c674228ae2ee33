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
    Event,
    Function,
    Graph,
    Guard,
    Line,
    Operation,
    Optimizers,
    Recompile,
    Report,
    SourceFile,
    SourceLine,
    Stage,
    Times,
)
from sot.reports.packages import Packages
from sot.reports.recording import OPTIMIZERS, Recording, Runs, Work, users_file
from sot.reports.records import BreakRecord, Capture, GraphRecord
from sot.reports.scopes import Scope, scope_of
from sot.support.errors import Reason
from sot.support.places import Place, is_of_library
from sot.support.version import VERSION
from sot.torch_compat import native
from sot.torch_compat.compilers import whole_stack
from sot.torch_compat.global_state import LEAVING, STATE_PAIRS, STATE_SETTERS

FRAME = re.compile(r'\s*File "(?P<file>.*?)", line (?P<line>\d+), in (?P<function>.*)')
Captured = list[tuple[Capture, Runs]]
CHANGES_OF_STATE = {*STATE_SETTERS, *STATE_PAIRS, *LEAVING}
AROUND = 2      # lines shown before and after a marked line
WHOLE = 3000    # lines of a file that is shown as a whole
ALWAYS_TOLD = {Reason.TENSOR_TRUTH, Reason.TENSOR_VALUE, Reason.TENSOR_SHAPE, Reason.USER_BREAK}


def report_of(recording: Recording) -> Report:
    """All data of a recording."""
    captured = recording.captures
    graphs = [graph_of(c.graph, c, runs) for c, runs in captured if c.graph is not None]
    functions = functions_of(captured, recording.in_python)
    packages = Packages(functions)
    breaks = breaks_of(captured, functions, packages)
    idle = [b for b in breaks_of(captured, functions, packages, idle=True) if not b.fallback and b.seconds > 0]
    return Report(
        program=recording.program,
        started=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(recording.clock)),
        elapsed=recording.elapsed,
        outcome=recording.outcome,
        versions={"sot": VERSION, "torch": torch.__version__, "python": platform.python_version(),
                  "tensor guards": native.state()},
        functions=functions,
        graphs=graphs,
        breaks=breaks,
        guards=guards_of(captured),
        recompiles=[recompile_of(c, packages) for c, _ in captured if c.recompile_reasons and c.graph],
        stages=list(stages_of(captured, recording.started)),
        files=files_of(graphs, [*breaks, *idle], recording.in_python.operations),
        left_out=[name for name, _ in recording.left_out.most_common()],
        gain=recording.gain() if recording.gain is not None else None,
        times=times_of(recording),
        optimizers=optimizers_of(recording),
        events=[*events_of(recording)],
        idle=idle,
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
        running=runs.graph.total / 1e9,
        checking=runs.after.checking / 1e9,
    )


def operation_of(node: Any) -> Operation:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    trace = whole_stack(node)
    return Operation(name, innermost(trace), OPTIMIZERS in trace)


def recompile_of(capture: Capture, packages: Packages) -> Recompile:
    return Recompile(capture.name, line_of(capture.place), begins(capture),
                     [*lines.reason_lines(capture.recompile_reasons)], sum(capture.seconds.values()),
                     capture.recompile_reasons[0].remedy, packages.of(capture.name, capture.place), caller_of(capture))


def caller_of(capture: Capture) -> Line | None:
    return line_of(capture.caller) if capture.caller is not None else None


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


def breaks_of(captured: Captured, functions: Iterable[Function], packages: Packages, idle: bool = False) -> list[Break]:
    """Breaks and functions left to Python; those that cost the most time come first. Equal breaks are counted
    together. ``idle``: only those that cut no graph, which otherwise do not count.
    """
    python = {(f.line.file, f.line.line): f.seconds for f in functions}
    working = {(f.line.file, f.line.line, f.name) for f in functions if f.graphs or f.in_graphs or f.in_python}
    found: dict[tuple[BreakRecord, bool], list[Runs]] = defaultdict(list)
    first: dict[tuple[BreakRecord, bool], Capture] = {}
    for capture, runs in captured:
        if capture.stopped is not None and is_idle(capture) is idle:
            key = capture.stopped, capture.fallback
            found[key].append(runs)
            first.setdefault(key, capture)
    breaks = [
        Break(record.reason.name, record.message, record.hint, line_of(record.place),
              [line_of(place) for place in record.stack], len(all_runs), sum(r.times for r in all_runs), fallback,
              python.get(scope_of(begun.place.file, begun.place.line, begun.place.function)[:2], 0.0) if fallback
              else sum(r.after.own for r in all_runs) / 1e9,
              any(scope_of(p.file, p.line, p.function) in working for p in (*record.stack, record.place)),
              packages.of(begun.name, begun.place), caller_of(begun))
        for (record, fallback), all_runs in found.items() for begun in [first[record, fallback]]]
    return sorted(breaks, key=lambda b: (b.fallback, -b.seconds, -b.runs, -b.captures))


def is_idle(capture: Capture) -> bool:
    """Whether the stop costs no graph: it is before any tensor operation, and not at a tensor."""
    if capture.stopped is None:
        return False
    reason = capture.stopped.reason
    if capture.graph is not None or reason is Reason.OBSERVED:
        return reason is Reason.OBSERVED
    return reason in (Reason.NOTHING_CAPTURED, Reason.FIRST_CALL) or not capture.fallback and reason not in ALWAYS_TOLD


def guards_of(captured: Captured) -> list[Guard]:
    counts: Counter[tuple[str, str, str, Line]] = Counter()
    for capture, _ in captured:
        for record, group, sentence in lines.told(capture.guards):
            place = Place(record.file, record.line, capture.place.function)
            counts[sentence, group, capture.name, line_of(place)] += 1
    return [Guard(*key, count) for key, count in counts.items()]


# ---- functions, times, sources ---------------------------------------------------------------------------
def functions_of(captured: Captured, in_python: Work) -> list[Function]:
    """One entry per function in which operations ran or capture stopped, whether it was captured itself or inlined in
    its caller. Functions with the most operations come first.
    """
    captures, graphs, stops, ran, python = (Counter[Scope]() for _ in range(5))
    seconds: Counter[Scope] = Counter()
    for capture, runs in captured:
        where = scope_of(capture.place.file, capture.place.line, capture.name)
        captures[where] += 1
        if capture.graph is not None:
            graphs[where] += 1
            for operation, count in operations_of(capture.graph, runs):
                if not operation.of_optimizer:
                    line = operation.line or line_of(capture.graph.place)
                    ran[scope_of(line.file, line.line, line.function)] += count
    for stop in {c.stopped for c, _ in captured if c.stopped is not None and not c.fallback and not is_idle(c)}:
        stops[scope_of(stop.place.file, stop.place.line, stop.place.function)] += 1
    for place, count in in_python.operations.items():
        scope = scope_of(place.file, place.line, place.function)
        python[scope] += count
        seconds[scope] += in_python.seconds[place]
    return sorted((Function(where.name, line_of(Place(where.file, where.line, where.name)), captures[where],
                            graphs[where], stops[where], ran[where], python[where], seconds[where])
                   for where in dict.fromkeys((*graphs, *stops, *ran, *python))),
                  key=lambda f: (-(f.in_graphs + f.in_python), f.line.file, f.line.line))


def operations_of(graph: GraphRecord, runs: Runs) -> Iterator[tuple[Operation, int]]:
    """The operations of a graph, with the operations that ran distributed among them."""
    operations = graph_operations(graph)
    total = runs.operations(len(operations))
    for i, operation in enumerate(operations):
        yield operation, total * (i + 1) // len(operations) - total * i // len(operations)


def optimizers_of(recording: Recording) -> Optimizers:
    in_graphs = sum(count for c, runs in recording.captures if c.graph is not None
                    for operation, count in operations_of(c.graph, runs) if operation.of_optimizer)
    work = recording.in_optimizers
    return Optimizers(in_graphs, work.operations.total(), sum(work.seconds.values()))


# ---- times ----------------------------------------------------------------------------------------------
def times_of(recording: Recording) -> Times:
    runs = [runs for _, runs in recording.captures]
    graphs, breaks = sum(r.graph.own for r in runs) / 1e9, sum(r.after.own for r in runs) / 1e9
    captures = sum(r.capturing.own for r in runs) / 1e9
    return Times(graphs, breaks, captures, max(recording.elapsed - graphs - breaks - captures, 0.0),
                 sum(recording.in_python.seconds.values()), sum(r.after.checking for r in runs) / 1e9)


def events_of(recording: Recording) -> Iterator[Event]:
    """The last runs of graphs, of Python after breaks, and of captures, in the order in which they began."""
    known: dict[int, tuple[str, str, Line]] = {}
    for c, runs in recording.captures:
        line = begins(c) or line_of(c.place)
        known[runs.graph.id] = "graph", c.graph.name if c.graph else c.name, line
        known[runs.capturing.id] = "capture", c.name, line
        if c.stopped is not None:
            known[runs.after.id] = "python", c.stopped.message, line_of(c.stopped.place)
    start = recording.started + recording.offset
    for number, thread, began, end in sorted(recording.events, key=lambda event: event[2]):
        if number in known:
            kind, name, line = known[number]
            yield Event(kind, name, line, thread, began - start, end - began)


def stages_of(captured: Captured, started: float) -> Iterator[Stage]:
    for capture, _ in captured:
        start = capture.began - started
        line = begins(capture) or line_of(capture.place)
        for stage, seconds in capture.seconds.items():
            yield Stage(capture.name, line, stage, start, seconds)
            start += seconds


def files_of(graphs: Iterable[Graph], breaks: Iterable[Break], in_python: Counter[Place]) -> list[SourceFile]:
    """The files in which anything happened, line by line. The program's own files come first. Of libraries and of very
    long files there are only lines near those in which something happened.
    """
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
    for path in sorted({*graph_runs, *python_runs, *broken}, key=lambda path: (is_of_library(path), path)):
        text = linecache.getlines(path)
        if text and users_file(path):
            whole = not is_of_library(path) and len(text) <= WHOLE
            near = {i for found in (graph_runs, python_runs, broken) for n in found[path]
                    for i in range(n - AROUND, n + AROUND + 1)}
            files.append(SourceFile(path, is_of_library(path), [
                source_line(i, line.rstrip("\n"), i in broken[path], graph_runs[path][i], python_runs[path][i])
                for i, line in enumerate(text, 1) if whole or i in near]))
    return files


def source_line(number: int, text: str, broken: bool, in_graphs: int, in_python: int) -> SourceLine:
    state = "break" if broken else "graph" if in_graphs else "python" if in_python else ""
    return SourceLine(number, text, state, in_graphs, in_python)
