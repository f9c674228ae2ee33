"""The data of a report: plain dataclasses, which convert to JSON and back.

The model has everything that a view shows, so a report can be kept, compared and shown on another machine. Times are
in seconds. ``start`` of a stage counts from the beginning of the report.
"""
from __future__ import annotations

import dataclasses
import json
import types
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sot.reports.gain import Gain
from sot.support.errors import SotError

VERSION = 4
T = TypeVar("T")


class ReportError(SotError, ValueError):
    """A file is not a report, or has an unknown version."""


@dataclass(frozen=True)
class Line:
    """A line of user code and its text."""

    file: str
    line: int
    function: str
    source: str = ""


@dataclass(frozen=True)
class Operation:
    """A node of a graph, and the innermost user line that it comes from."""

    name: str
    line: Line | None
    of_optimizer: bool = False


@dataclass(frozen=True)
class Compiled:
    """What a backend made of a graph, or of its backward graph. The backend reports it in
    ``graph_module.meta["kernels"]``, a
    list of dicts with these names.

    ``calls`` counts operators without a kernel; ``bytes`` are read and written in memory in one run. ``schedule`` has
    a line for each kernel and call, in order. ``cached``: an earlier process made it.
    """

    title: str
    kernels: int
    calls: int
    bytes: int
    schedule: list[str]
    source: str
    cached: bool


@dataclass(frozen=True)
class Graph:
    """A graph that went to the backend. ``runs`` counts its calls; ``kernels`` is what the backend reports.

    ``seconds`` is the time of its capture, ``running`` that of all runs, and ``checking`` that of all checks of its
    guards. ``fallbacks`` says, in one sentence each, why eager PyTorch runs it, or a part of it.
    """

    name: str
    function: Line
    operations: list[Operation]
    inputs: int
    runs: int
    seconds: float
    code: str
    kernels: list[Compiled] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    running: float = 0.0
    checking: float = 0.0


@dataclass(frozen=True)
class Break:
    """A place where capture stopped. ``fallback``: Python runs the whole function. ``runs``: how often it was
    reached. ``seconds``: what Python ran from there to the next graph or the end of the function; for a function that
    Python runs as a whole, its tensor operations. ``has_work``: a function of ``stack`` has tensor operations; if
    not, Python runs there what no capture would make faster. ``package`` and ``caller``: see ``Recompile``.
    """

    reason: str
    message: str
    hint: str
    line: Line
    stack: list[Line]
    captures: int
    runs: int
    fallback: bool
    seconds: float = 0.0
    has_work: bool = True
    package: str = ""
    caller: Line | None = None


@dataclass(frozen=True)
class Guard:
    """A condition for the reuse of a graph, the line that needed it, and how often it occurs."""

    sentence: str
    group: str
    function: str
    line: Line
    count: int


@dataclass(frozen=True)
class Recompile:
    """A function that was recompiled. ``causes`` has a sentence for each entry that did not fit. ``begins`` is the
    line of the first operation, because resume code is captured separately. ``seconds``: of the capture. ``remedy``:
    what to change so that the closest entry fits. ``package``: the installed package that can be excluded, so that no
    capture begins in the function; empty for the user's own code. ``caller``: the user's own line that led there.
    """

    name: str
    function: Line
    begins: Line | None
    causes: list[str]
    seconds: float = 0.0
    remedy: str = ""
    package: str = ""
    caller: Line | None = None


@dataclass(frozen=True)
class Stage:
    """A part of the time that capture took. ``line`` is that of the first operation, or of the function."""

    function: str
    line: Line
    stage: str
    start: float
    seconds: float


@dataclass(frozen=True)
class SourceLine:
    """A line of a source file. ``state``: graph, break, python, or nothing for a line without tensor operations."""

    number: int
    text: str
    state: str
    in_graphs: int
    in_python: int


@dataclass(frozen=True)
class Function:
    """The tensor operations of one function: those that ran in graphs, and those that Python ran, in ``seconds``."""

    name: str
    line: Line
    captures: int
    graphs: int
    breaks: int
    in_graphs: int
    in_python: int
    seconds: float = 0.0

    @property
    def coverage(self) -> float | None:
        return share(self.in_graphs, self.in_python)


@dataclass(frozen=True)
class SourceFile:
    """A file in which operations ran. ``library``: it belongs to an installed package."""

    path: str
    library: bool
    lines: list[SourceLine]


@dataclass(frozen=True)
class Times:
    """Where the time of the whole run went, in seconds.

    ``graphs``, ``breaks``, ``captures`` and ``elsewhere`` do not overlap and are the whole time. ``breaks`` is what
    Python ran after breaks. ``python`` is the time of the program's operations outside graphs, without those of
    optimizers, and ``guards`` that of checks; both pass in ``breaks`` and ``elsewhere``.
    """

    graphs: float = 0.0
    breaks: float = 0.0
    captures: float = 0.0
    elsewhere: float = 0.0
    python: float = 0.0
    guards: float = 0.0

    @property
    def share(self) -> float | None:
        """The share of tensor time that passed in graphs."""
        whole = self.graphs + self.python
        return self.graphs / whole if whole else None


@dataclass(frozen=True)
class Optimizers:
    """The operations of torch.optim, which count apart from the program's."""

    in_graphs: int = 0
    in_python: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Event:
    """Something that ran: a graph, what Python ran after a break, or a capture. ``name`` says which, ``line`` where.
    Times are seconds since the start of the report.
    """

    kind: str
    name: str
    line: Line
    thread: int
    start: float
    seconds: float


@dataclass(frozen=True, repr=False)
class Report:
    """One run of a program, or one call of a function, under the translator."""

    program: str
    started: str
    elapsed: float
    outcome: str
    versions: dict[str, str]
    functions: list[Function]
    graphs: list[Graph]
    breaks: list[Break]
    guards: list[Guard]
    recompiles: list[Recompile]
    stages: list[Stage]
    files: list[SourceFile]
    # functions that were not captured because SOT_BUDGET was used up
    left_out: list[str] = field(default_factory=list)
    gain: Gain | None = None    # of a whole program
    times: Times = field(default_factory=Times)
    optimizers: Optimizers = field(default_factory=Optimizers)
    events: list[Event] = field(default_factory=list)       # the last ones
    idle: list[Break] = field(default_factory=list)     # breaks before any operation: they cut no graph, but cost time
    version: int = VERSION

    @property
    def in_graphs(self) -> int:
        """Operations on tensors that ran in graphs."""
        return sum(function.in_graphs for function in self.functions)

    @property
    def in_python(self) -> int:
        """Operations on tensors that Python ran."""
        return sum(function.in_python for function in self.functions)

    @property
    def coverage(self) -> float | None:
        """The share of operations that ran in graphs, from 0 to 1; None when there was none at all."""
        return share(self.in_graphs, self.in_python)

    @property
    def capture_seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def stops(self) -> list[Break]:
        """Everything that stopped a capture, ordered by the time that it costs."""
        return sorted([*self.breaks, *self.idle], key=lambda b: (-b.seconds, b.fallback))

    @property
    def lost(self) -> float:
        """What Python ran after breaks of functions with tensor operations, in seconds."""
        return sum(b.seconds for b in self.stops if b.has_work and not b.fallback)

    @property
    def real_breaks(self) -> list[Break]:
        """The breaks, without the functions left to Python."""
        return [b for b in self.breaks if not b.fallback]

    def __repr__(self) -> str:
        return f"<Report of {self.program}; graphs: {len(self.graphs)}, breaks: {len(self.real_breaks)}>"

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        return str(import_module("sot.reports.views.page").frame(self))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    def save(self, path: str | Path) -> None:
        """Write the report: as a page if the name ends in .html, as a trace for Perfetto and chrome://tracing if it
        ends in .trace.json, and as JSON otherwise.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._text(path), encoding="utf-8")

    def _text(self, path: Path) -> str:
        if path.suffix in (".html", ".htm"):
            return str(import_module("sot.reports.views.page").page(self))     # late: it needs jinja2, and this module
        if path.name.endswith(".trace.json"):
            return str(import_module("sot.reports.views.trace_file").trace_file(self))
        return self.to_json()


def share(part: int, rest: int) -> float | None:
    return part / (part + rest) if part + rest else None


# ---- from JSON --------------------------------------------------------------------------------------------
def load(path: str | Path) -> Report:
    """The report in a JSON file. Raises ReportError, which names the file, if the file has no report."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise ReportError(f"{path} cannot be read: {e}") from e
    except json.JSONDecodeError as e:
        raise ReportError(f"{path} is not JSON (line {e.lineno}): a report ends in .json and is written by "
                          f"SOT_REPORT or Report.save") from e
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise ReportError(f"{path} is not a report of version {VERSION}" + (f", but of {version}" if version else ""))
    try:
        return build(Report, data)
    except (KeyError, TypeError) as e:
        raise ReportError(f"{path} is not a complete report: {e}") from e


def build(kind: Any, data: Any) -> Any:
    """``data`` from JSON as a value of type ``kind``. Fields that ``kind`` does not have are ignored."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: build(hints[name], value) for name, value in data.items() if name in hints})
    origin, args = get_origin(kind), get_args(kind)
    if origin is list:
        return [build(args[0], item) for item in data]
    if origin is types.UnionType:
        return None if data is None else build(next(a for a in args if a is not type(None)), data)
    return data
