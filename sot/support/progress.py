"""A line on the terminal while a step takes long: the capture of a large function, the tuning of a kernel.

If stderr is not a terminal, nothing is shown or watched. rich takes longer to import than the rest of what a program
that captures nothing loads, so it is imported when the first line is shown.
"""
from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

from sot.support.places import Place, shortened

PATIENCE = 2.0      # seconds before anything is shown


class Watch:
    """Work in progress, the innermost last. After ``PATIENCE`` its line is shown, and removed when all is done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.labels: list[tuple[str, Place | None]] = []
        self.began = 0.0
        self.timer: threading.Timer | None = None
        self.shown: Any = None      # a line of rich

    def enter(self, label: tuple[str, Place | None]) -> None:
        with self.lock:
            self.labels.append(label)
            if len(self.labels) == 1:
                self.began = monotonic()
                self.timer = threading.Timer(PATIENCE, self.show)
                self.timer.daemon = True
                self.timer.start()
            self.update()

    def leave(self, label: tuple[str, Place | None]) -> None:
        with self.lock:
            self.labels.remove(label)
            self.update()
            if not self.labels and self.timer is not None:
                self.timer.cancel()
                self.timer = None
                if self.shown is not None:
                    self.shown.stop()
                    self.shown = None

    def show(self) -> None:
        line = new_line()
        with self.lock:
            if self.labels and self.timer is threading.current_thread():
                self.shown = line
                self.shown.add_task("", start=False)
                self.shown.tasks[0].start_time = self.began
                self.update()
                self.shown.start()

    def update(self) -> None:
        if self.shown is not None and self.labels:
            what, place = self.labels[-1]
            where = f", at {shortened(place.file)}:{place.line}" if place else ""
            escape = import_module("rich.markup").escape
            self.shown.update(self.shown.task_ids[0], description=escape(what + where))


def new_line() -> Any:
    """A line on stderr that disappears at its end."""
    progress = import_module("rich.progress")
    return progress.Progress(
        progress.SpinnerColumn(), progress.TextColumn("SOT: {task.description}"), progress.TimeElapsedColumn(),
        transient=True, console=import_module("rich.console").Console(stderr=True), redirect_stdout=False,
        redirect_stderr=False)


watch = Watch()
os.register_at_fork(after_in_child=lambda: Watch.__init__(watch))      # its timer and lock are the parent's


def shows_lines() -> bool:
    """Whether stderr is a terminal. The program may have closed it, or set an object of its own, which is not asked."""
    stream = sys.stderr
    return type(stream) is io.TextIOWrapper and not stream.closed and stream.isatty()


@contextmanager
def working(what: str, place: Place | None = None) -> Iterator[None]:
    """Show a line on the terminal if the work inside takes long.

    Arguments:
        what: the work, for example "capturing train_step".
        place: the user's line that it is done for.
    """
    if not shows_lines():
        yield
        return
    label = what, place
    watch.enter(label)
    try:
        yield
    finally:
        watch.leave(label)
