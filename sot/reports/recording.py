"""Records what a report needs beyond the captures: the runs and times of graphs, of Python after breaks, and of the
operations that Python ran.

A ``Recording`` is active during an ``explain`` call, or for a whole program under ``SOT_REPORT``. Then the translator
reports every capture to it. Without a recording nothing is counted, and nothing costs time.
"""
from __future__ import annotations

import functools
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from sot import _hook
from sot.reports.gain import Gain
from sot.reports.records import Capture
from sot.support.own_code import FOLDERS
from sot.support.places import STDLIB, Place, is_installed
from sot.torch_compat import native
from sot.torch_compat.global_state import in_backward

if TYPE_CHECKING:
    from sot.reports.model import Report

TORCH = str(Path(torch.__file__).parent) + "/"
SHOWING = TORCH + "_tensor_str.py"      # torch's code that makes the text of a tensor
OPTIMIZERS = TORCH + "optim/"
NOT_USERS = (*FOLDERS, TORCH, "<frozen")
EVENTS = 4096       # of a timeline: the last ones
NUMBERS = itertools.count()     # of clocks


def new_clock(counts: bool = False) -> _hook.Clock:
    return _hook.Clock(next(NUMBERS), counts)


@dataclass
class Runs:
    """The runs of one capture: of its graph, of what Python runs ``after`` its break, and of the capture itself."""

    graph: _hook.Clock = field(default_factory=functools.partial(new_clock, counts=True))
    after: _hook.Clock = field(default_factory=new_clock)
    capturing: _hook.Clock = field(default_factory=functools.partial(new_clock, counts=True))

    @property
    def times(self) -> int:
        return self.after.calls

    def operations(self, nodes: int) -> int:
        """The operations that ran in the graph, which has so many nodes. If only its first runs were counted, the
        others ran as many. If none was, a run is as many operations as the graph has nodes.
        """
        graph = self.graph
        if graph.counted_runs == graph.runs:
            return graph.operations
        return graph.operations * graph.runs // graph.counted_runs if graph.counted_runs else nodes * graph.runs


@dataclass
class Work:
    """Operations that Python ran, and their seconds, by line."""

    operations: Counter[Place] = field(default_factory=Counter)
    seconds: Counter[Place] = field(default_factory=Counter)

    def add(self, place: Place, operations: int, seconds: float) -> None:
        self.operations[place] += operations
        self.seconds[place] += seconds      # type: ignore[assignment]

    def update(self, other: Work) -> None:
        self.operations.update(other.operations)
        self.seconds.update(other.seconds)


def built_tally() -> Any:
    """What counts operations that Python runs. Only reports need it; it is built once for each version of torch."""
    native.build("tally")
    return native.module("tally")


class Recording:
    """All actions of the translator between ``start()`` and ``stop()``, or inside of ``recorded``."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.outcome = "finished"
        self.captures: list[tuple[Capture, Runs]] = []
        self.in_python, self.in_optimizers = Work(), Work()
        self.events: list[tuple[int, int, float, float]] = []      # of clocks: number, thread, start and end
        self.offset = 0.0       # of the clocks' time from time.perf_counter
        self.left_out: Counter[str] = Counter()     # functions that were not captured because the budget was used up
        self.gain: Callable[[], Gain] | None = None     # of a whole program
        self.clock, self.started, self.elapsed = time.time(), time.perf_counter(), 0.0
        self._open: dict[int, Runs] = {}
        self._last: tuple[Place | None, list[str]] = None, []

    def start(self) -> Recording:
        """Start recording. Raises RuntimeError while another recording is active."""
        global current
        if current is not None:
            raise RuntimeError(f"a recording of {current.program} is already active")
        current = self
        self.clock, self.started = time.time(), time.perf_counter()
        self.offset = _hook.clock_now() - time.perf_counter()
        _hook.keep_events(EVENTS)
        if (tally := _hook.plain(built_tally)()) is not None:
            tally.start(_hook.plain(self._python_runs), _hook.clock_api)
        return self

    def stop(self) -> Recording:
        """Stop recording and keep the data. Stopping twice has no effect."""
        global current
        if current is self:
            current = None
            self.elapsed = time.perf_counter() - self.started
            self.events += _hook.kept_events()
            _hook.keep_events(0)
            if (tally := native.module("tally")) is not None:
                operations, nanoseconds = tally.stop()
                self._python_ran(operations, nanoseconds, *self._last)
        return self

    @property
    def report(self) -> Report:
        """All data, which can be saved as JSON or as a page."""
        report: Report = import_module("sot.reports.build").report_of(self)
        return report

    def pause(self) -> None:
        self.stop()

    def resume(self, inner: Recording) -> None:
        """Continue after ``inner``, and add its data."""
        clock, started = self.clock, self.started
        self.start()
        self.clock, self.started = clock, started
        self.captures += inner.captures
        self.in_python.update(inner.in_python)
        self.in_optimizers.update(inner.in_optimizers)
        self.events += inner.events

    def _python_runs(self, operations: int, nanoseconds: int, here: bool) -> None:
        place, files = users_place(sys._getframe(1)) if not in_backward() else (None, [])
        before, self._last = self._last, (place, files)
        self._python_ran(operations, nanoseconds, *(self._last if here else before))

    def _python_ran(self, operations: int, nanoseconds: int, place: Place | None, files: list[str]) -> None:
        if place is not None and SHOWING not in files:
            work = self.in_optimizers if any(file.startswith(OPTIMIZERS) for file in files) else self.in_python
            work.add(place, operations, nanoseconds / 1e9)

    # ---- calls of the translator -----------------------------------------------------------------------
    def runs_of(self, capture: Capture) -> Runs:
        """The counts of the current capture."""
        return self._open.setdefault(id(capture), Runs())

    def add(self, capture: Capture) -> None:
        """Add a finished capture."""
        capture.caller = users_place(sys._getframe(1), libraries=False)[0]
        self.captures.append((capture, self._open.pop(id(capture), Runs())))

    def counted(self, compiled: Callable[..., Any], capture: Capture) -> Callable[..., Any]:
        """A graph that counts its operations and measures its time."""
        return functools.partial(self.runs_of(capture).graph.run, compiled)


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
def capturing(capture: Capture) -> Iterator[None]:
    """Time and operations inside belong to a capture, and are not the program's."""
    if current is None:
        yield
        return
    with current.runs_of(capture).capturing:
        yield


def users_file(file: str) -> bool:
    """Whether the file belongs neither to torch nor to this package nor to the standard library."""
    return not file.startswith(NOT_USERS) and (not file.startswith(STDLIB) or is_installed(file))


def users_place(frame: FrameType | None, libraries: bool = True) -> tuple[Place | None, list[str]]:
    """The innermost user line, and the files of the frames within it. ``libraries``: those installed count, too."""
    files: list[str] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if users_file(file) and (libraries or not is_installed(file)):
            return Place(file, frame.f_lineno, frame.f_code.co_name), files
        files.append(file)
        frame = frame.f_back
    return None, files
