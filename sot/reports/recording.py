"""Records what a report needs beyond the captures: how often graphs ran, and the operations that Python ran.

A ``Recording`` is active during an ``explain`` call, or for a whole program under ``SOT_REPORT``. Then the translator
reports every capture to it. Without a recording nothing is counted, and nothing costs time.
"""
from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from sot import _hook
from sot.reports.gain import Gain
from sot.reports.records import Capture
from sot.support.own_code import FOLDERS
from sot.support.places import Place
from sot.torch_compat import native
from sot.torch_compat.global_state import in_backward

TORCH = str(Path(torch.__file__).parent) + "/"


@dataclass
class Runs:
    """How often the graph or break of one capture ran, and the operations that ran in the graph."""

    times: int = 0
    operations: int = 0

    def count(self) -> None:
        self.times += 1


class Recording:
    """All actions of the translator between ``start()`` and ``stop()``. Also a context manager."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.outcome = "finished"
        self.captures: list[tuple[Capture, Runs]] = []
        self.in_python: Counter[Place] = Counter()
        self.left_out: Counter[str] = Counter()     # functions that were not captured because the budget was used up
        self.gain: Callable[[], Gain] | None = None     # of a whole program
        self.clock, self.started, self.elapsed = time.time(), time.perf_counter(), 0.0
        self._open: dict[int, Runs] = {}

    def start(self) -> Recording:
        """Start recording. Raises RuntimeError while another recording is active."""
        global current
        if current is not None:
            raise RuntimeError(f"a recording of {current.program} is already active")
        current = self
        self.clock, self.started = time.time(), time.perf_counter()
        native.build("tally")   # needed by reports only; built once for each version of torch
        if (tally := native.module("tally")) is not None:
            tally.start(_hook.plain(self._python_runs))
        return self

    def stop(self) -> Recording:
        """Stop recording and keep the data. Stopping twice has no effect."""
        global current
        if current is self:
            current = None
            self.elapsed = time.perf_counter() - self.started
            if (tally := native.module("tally")) is not None:
                tally.stop()
        return self

    def pause(self) -> None:
        self.stop()

    def resume(self, inner: Recording) -> None:
        """Continue after ``inner``, and add its data."""
        clock, started = self.clock, self.started
        self.start()
        self.clock, self.started = clock, started
        self.captures += inner.captures
        self.in_python.update(inner.in_python)

    def _python_runs(self, name: str) -> None:
        if not in_backward() and (place := users_place(sys._getframe(1))) is not None:
            self.in_python[place] += 1

    # ---- calls of the translator -----------------------------------------------------------------------
    def runs_of(self, capture: Capture) -> Runs:
        """The counts of the current capture."""
        return self._open.setdefault(id(capture), Runs())

    def add(self, capture: Capture) -> None:
        """Add a finished capture."""
        self.captures.append((capture, self._open.pop(id(capture), Runs())))

    def counted(self, compiled: Callable[..., Any], capture: Capture) -> Callable[..., Any]:
        """A graph that counts its operations."""
        tally = native.module("tally")
        if tally is None:
            return compiled
        runs, enter, leave, graph = self.runs_of(capture), tally.enter, tally.leave, tally.GRAPH

        def run(*args: Any) -> Any:
            before = enter(graph)
            try:
                return compiled(*args)
            finally:
                runs.operations += leave(before)
        return run


current: Recording | None = None


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """Record what runs inside. A recording that is active already continues afterwards, and includes this data."""
    outer = current
    if outer is not None:
        outer.pause()
    recording.start()
    try:
        yield recording
    except BaseException as error:
        recording.outcome = f"failed: {type(error).__name__}: {error}"
        raise
    finally:
        recording.stop()
        if outer is not None:
            outer.resume(recording)


@contextmanager
def capturing() -> Iterator[None]:
    """Operations inside belong to capture, and are not counted."""
    tally = native.module("tally") if current is not None else None
    if tally is None:
        yield
        return
    before = tally.enter(tally.CAPTURE)
    try:
        yield
    finally:
        tally.leave(before)


def users_file(file: str) -> bool:
    """Whether the file belongs neither to torch nor to this package."""
    return not file.startswith((*FOLDERS, TORCH, "<frozen"))


def users_place(frame: FrameType | None) -> Place | None:
    """The innermost user line, or None."""
    while frame is not None:
        if users_file(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
