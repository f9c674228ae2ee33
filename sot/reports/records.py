"""The records of reports: plain data about every frame that was translated.

The translator appends one ``Capture`` for each frame that it works on. ``explain`` shows them, ``SOT_LOG`` prints
them, and tests read them.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter

from torch.fx import GraphModule

from sot.guards.guards import Guard, StateGuard
from sot.guards.origin import Origin
from sot.reports.wording import said
from sot.support.errors import Reason
from sot.support.places import Place
from sot.support.progress import working

# The message on the terminal when a stage of a capture takes long.
STAGES = {"execute": "capturing", "backend": "compiling the graph of", "emit": "writing the entry of"}


@dataclass(frozen=True)
class BreakRecord:
    """Why and where capture stopped. ``stack`` is the user's stack, outermost first, ending at ``place``."""

    reason: Reason
    detail: str
    place: Place
    stack: tuple[Place, ...] = ()

    @property
    def message(self) -> str:
        return self.reason.describe(self.detail)

    @property
    def hint(self) -> str:
        return self.reason.hint

    def __str__(self) -> str:
        return f"{self.message} ({self.place})"


@dataclass(frozen=True)
class GuardRecord:
    """A guard, and the line of the user's code that needed it."""

    guard: Guard
    file: str
    line: int

    def __str__(self) -> str:
        return str(self.guard)


@dataclass(frozen=True)
class RecompileReason:
    """Why an entry did not fit a call: the first guard that did not hold, as a sentence with the expected and the
    actual value, and the user's line that needed it. ``guard`` is None, and ``failed`` is 0, if each guard holds on
    its own. ``of`` is the number of guards of the entry. ``remedy`` says what to change so that the guard holds.
    """

    text: str
    guard: Guard | StateGuard | None
    file: str = ""
    line: int = 0
    failed: int = 0
    of: int = 0
    remedy: str = ""

    def counted(self, failed: int, of: int) -> RecompileReason:
        return replace(self, failed=failed, of=of)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class GraphRecord:
    """A graph that went to the backend. ``origins`` are the origins of its inputs."""

    name: str
    module: GraphModule
    operations: int
    place: Place
    origins: tuple[Origin | None, ...] = ()


@dataclass
class Capture:
    """One frame that the translator worked on.

    Arguments:
        name: the name of the function.
        place: where the function begins.
        graph: the graph for the backend; None if there were no tensor operations.
        stopped: the break that ended the graph, or why Python runs the whole frame.
        fallback: whether Python runs the whole frame.
        reached: the user's stack where the last attempt ended without an exit; empty if it did not get so far.
        guards: the guards of the entry.
        seconds: the time of each of ``STAGES``.
        recompile_reasons: for each earlier entry, the closest first, the guards that did not hold.
        code: the emitted function.
        static: why varying sizes and numbers are constants in this capture, and the line.
        effects: the mutations and the output of the entry besides the graph.
        stages: the intermediate forms as text, by name, if they were requested.
        began: the start time, by ``time.perf_counter``.
        caller: the innermost line of the user's own code when the capture ended. Only recordings set it.
    """

    name: str
    place: Place
    graph: GraphRecord | None = None
    stopped: BreakRecord | None = None
    fallback: bool = False
    reached: tuple[Place, ...] = ()
    guards: list[GuardRecord] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    recompile_reasons: list[RecompileReason] = field(default_factory=list)
    code: str = ""
    static: str = ""
    effects: list[str] = field(default_factory=list)
    stages: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=perf_counter)
    caller: Place | None = None

    @property
    def recompiled_because(self) -> list[str]:
        """The recompile reasons as sentences."""
        return [reason.text for reason in self.recompile_reasons]

    def left_to_python(self, reason: Reason, detail: str) -> None:
        """Note that Python runs the whole frame, and the line that was reached."""
        self.fallback = True
        at = self.reached[-1] if self.reached else self.place
        self.stopped = BreakRecord(reason, said(detail, {}), at, self.reached)

    def start_again(self, static: str) -> None:
        """Forget an attempt of the capture. ``static``: why it makes constants of sizes and numbers, or nothing."""
        if static:
            self.static = f"{static} ({self.reached[-1]})" if self.reached else static
        self.graph, self.stopped, self.reached = None, None, ()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of one of the ``STAGES``."""
        start = perf_counter()
        try:
            with working(f"{STAGES[stage]} {self.name}", self.place):
                yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - start
