"""The source of the functions of a report with a mark before each line: in a graph, a break, or run by Python."""
from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from sot.reports.scopes import scopes
from sot.support.places import shortened

if TYPE_CHECKING:
    from sot.reports.model import Function, Report

MARKS = {"graph": "│", "break": "✕", "python": "·", "": " "}
STYLES = {"graph": "green", "break": "bold red", "python": "yellow", "": "dim"}
LEGEND = "│ in a graph   ✕ a break   · run by Python"
FUNCTIONS_SHOWN = 8
LONGEST = 60    # lines of a function


@dataclass(frozen=True)
class Marked:
    """A line of the listing. ``state`` is that of a line of source; a heading has none."""

    text: str
    state: str | None = None

    @property
    def style(self) -> str:
        """How it looks on a terminal."""
        return "bold" if self.state is None else STYLES[self.state]


def marked_source(report: Report) -> Iterator[Marked]:
    """The listing of the outermost functions, in which the inner ones stand.

    These are the functions of the user's files. If only libraries were captured, it has their functions.
    """
    own = {file.path for file in report.files if not file.library} or {file.path for file in report.files}
    shown: list[tuple[str, int, int]] = []
    for function in report.functions:
        path = function.line.file
        first, last = extent(function)
        if path in own and not any(p == path and a <= first and last <= b for p, a, b in shown):
            shown.append((path, first, last))
    for path, first, last in shown[:FUNCTIONS_SHOWN]:
        yield from listing(report, path, first, last)
    if len(shown) > FUNCTIONS_SHOWN:
        yield Marked(f"... and {len(shown) - FUNCTIONS_SHOWN} more functions")


def print_marked(lines: Iterable[str], report: Report) -> None:
    """Print the lines of a text that contains the listing; on a terminal, the listing's in colour."""
    console, text = import_module("rich.console").Console(highlight=False), import_module("rich.text").Text
    styles = {line.text: line.style for line in marked_source(report)}
    for line in lines:
        console.print(text(line, style=styles.get(line, "")), soft_wrap=True)


def listing(report: Report, path: str, first: int, last: int) -> Iterator[Marked]:
    states = {line.number: line.state for file in report.files if file.path == path for line in file.lines}
    yield Marked(f"{shortened(path)}:{first}")
    for number in range(first, min(last, first + LONGEST - 1) + 1):
        state = states.get(number, "")
        yield Marked(f"{number:5} {MARKS[state]} {linecache.getline(path, number).rstrip()}", state)
    if last >= first + LONGEST:
        yield Marked(f"      ... and {last - first - LONGEST + 1} more lines")


def extent(function: Function) -> tuple[int, int]:
    """The first and the last line of a function. Code outside of functions is only the lines that ran."""
    path, line = function.line.file, function.line.line
    for first, last, scope in scopes("".join(linecache.getlines(path)), path):
        if scope.line == line and scope.name == function.name and scope.name != "<module>":
            return first, last
    return line, line


def why(report: Report, name: str) -> Iterator[str]:
    """Why a value is guarded: each guard on it, where the value comes from, and the line that needs it."""
    found = [guard for guard in report.guards if is_about(guard.sentence, name)]
    for guard in found:
        yield f"{guard.sentence}"
        yield f"    one of the {guard.group}, for {guard.function}"
        source = f": {guard.line.source}" if guard.line.source else ""
        yield f"    because of {shortened(guard.line.file)}:{guard.line.line}{source}"
    if not found:
        yield f"No guard is about {name}: captured code does not depend on its value."


def is_about(sentence: str, name: str) -> bool:
    """Whether a sentence names a value, or a part of it. A global may be behind the name of its module."""
    found = re.finditer(rf"(?<![\w.])(?:([\w.]+)\.)?{re.escape(name)}(?!\w)", sentence)
    return any(match[1] is None or match[1] in sys.modules for match in found)
