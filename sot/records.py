"""What a report is made of: plain data about every frame that was translated.

The translator appends one ``Capture`` for each time it worked on a frame. ``explain`` shows them,
``SOT_LOG`` prints them as they happen, and tests read them.
"""
from __future__ import annotations

import linecache
import time
from dataclasses import dataclass, field, replace

from torch.fx import GraphModule

from sot.errors import Reason
from sot.guards import Guard, StateGuard
from sot.origin import Origin


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class BreakRecord:
    """Why and where capture stopped; ``stack`` is the user's stack, outermost first, ending at ``place``."""

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
class Miss:
    """Why an entry did not fit a call: the first guard that did not hold, as a sentence with the expected and the seen
    value, and the user's line that needed it. ``guard`` is None, and none has ``failed``, if only all together fail;
    ``of`` is how many guards the entry has."""

    text: str
    guard: Guard | StateGuard | None
    file: str = ""
    line: int = 0
    failed: int = 0
    of: int = 0

    def counted(self, failed: int, of: int) -> Miss:
        return replace(self, failed=failed, of=of)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class GraphRecord:
    """A graph that went to the backend. ``origins`` says, input by input, where it comes from."""

    name: str
    module: GraphModule
    operations: int
    place: Place
    origins: tuple[Origin | None, ...] = ()


@dataclass
class Capture:
    """One frame that the translator worked on.

    ``graph`` is None when no tensor operation was met. ``stopped`` is the break that ended the graph, or the
    reason for which the whole frame is run by Python (then ``fallback`` is true). ``seconds`` has the times of
    the stages: execute, backend, emit. ``misses`` says, entry by entry and the closest first, which guard of the
    entries that existed already did not hold: why this capture was needed. ``static`` says why sizes and numbers that
    vary are constants in it all the same. ``effects`` names what it changes or puts out beside its graph.
    """

    name: str
    place: Place
    graph: GraphRecord | None = None
    stopped: BreakRecord | None = None
    fallback: bool = False
    guards: list[GuardRecord] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    misses: list[Miss] = field(default_factory=list)
    code: str = ""
    static: str = ""
    effects: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    @property
    def missed(self) -> list[str]:
        """The misses as sentences."""
        return [miss.text for miss in self.misses]
