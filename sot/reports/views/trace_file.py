"""A report as a trace file for Perfetto (ui.perfetto.dev) and chrome://tracing: the last events, and all captures."""
from __future__ import annotations

import json
from typing import Any

from sot.reports.model import Line, Report
from sot.support.places import shortened

KINDS = {"graph": "graph", "python": "Python after a break", "capture": "capture"}
MICROSECONDS = 1e6


def trace_file(report: Report) -> str:
    """The text of the file, in the Trace Event Format."""
    threads = {thread: i for i, thread in enumerate(dict.fromkeys(event.thread for event in report.events))}
    names = [{"ph": "M", "pid": 1, "tid": i, "name": "thread_name", "args": {"name": f"thread {i + 1}"}}
             for i in threads.values()]
    runs = [slice_of(event.name, KINDS[event.kind], threads[event.thread], event.start, event.seconds, event.line)
            for event in report.events]
    stages = [slice_of(stage.stage, "stage of a capture", len(threads), stage.start, stage.seconds, stage.line)
              for stage in report.stages]
    stages_name = {"ph": "M", "pid": 1, "tid": len(threads), "name": "thread_name", "args": {"name": "captures"}}
    program = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": report.program}}
    return json.dumps({"traceEvents": [program, *names, stages_name, *runs, *stages], "displayTimeUnit": "ms"})


def slice_of(name: str, kind: str, thread: int, start: float, seconds: float, line: Line) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": thread, "name": name, "cat": kind, "ts": start * MICROSECONDS,
            "dur": seconds * MICROSECONDS,
            "args": {"line": f"{shortened(line.file)}:{line.line}", "source": line.source}}
