"""The HTML page of a report. It needs no other file and no network, and has at most 500 KB (see ``room``)."""
from __future__ import annotations

import functools
import html
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from sot.reports.advice import first_change, is_small, losses
from sot.reports.gain import gain_lines
from sot.reports.lines import count, milliseconds, to_fix
from sot.reports.model import Graph, Guard, Line, Operation, Report, SourceFile, SourceLine
from sot.reports.views.room import LEFT_OUT, Room
from sot.reports.views.timeline import captures, step
from sot.support.places import shortened

LONG_FOLD = 12      # so many lines in a row without tensor operations are folded
AROUND = 2          # source lines shown before and after a marked line
GUARDS_SHOWN = 40   # of a group
LINES_SHOWN = 200   # of the table of a graph
ROWS = 100          # of other tables and lists
REASONS = Path(__file__).parent / "reasons"     # the pages of docs/breaks
INDEX = re.compile(r"\.\d+(?=\.)")      # of a block in the path of a module


def page(report: Report) -> str:
    """The page, as text."""
    listings = listings_of(report, Room(60_000, 60_000))
    return str(template("page.html.j2").render(
        report=report, guards=guards_by_group(report.guards), timeline=captures(report), step=step(report),
        first=first_change(report), losses=losses(report), overview=Room(60_000, 50_000).part,
        part=Room(40_000, 40_000).part, packed=Room(0, 50_000).packed, listings=listings,
        links=Links(report, listings),
        breaks=[b for b in report.stops if not is_small(report, b)],
        small=[b for b in report.stops if is_small(report, b)],
        reasons={reason: explained(reason) for reason in dict.fromkeys(b.reason for b in report.stops)}))


def frame(report: Report) -> str:
    """The page in a frame of its own, so that the styles of a notebook and of the page stay apart."""
    return (f'<iframe title="SOT: {html.escape(report.program)}" style="width: 100%; height: 40rem; border: 0" '
            f'srcdoc="{html.escape(page(report))}"></iframe>')


@functools.cache
def template(name: str) -> Any:
    environment = Environment(loader=PackageLoader("sot.reports.views", ""), autoescape=True,
                              undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"count": count, "duration": milliseconds, "percent": percent, "short": shortened,
                            "at": at, "to_fix": to_fix_sentence, "folds": folds, "lines_of": lines_of}
    environment.globals |= {"excerpt": excerpt, "gain_lines": gain_lines, "GUARDS_SHOWN": GUARDS_SHOWN,
                            "LINES_SHOWN": LINES_SHOWN, "ROWS": ROWS, "LEFT_OUT": LEFT_OUT}
    return environment.get_template(name)


# ---- small things ---------------------------------------------------------------------------------------
def percent(part: float | None) -> str:
    """A percentage, rounded down so that 100 % means all. A dash stands for an undefined share."""
    return "–" if part is None else f"{int(part * 100)} %"


def at(line: Line) -> str:
    return f"{shortened(line.file)}:{line.line}"


def to_fix_sentence(remedy: str) -> Markup:
    """What to change, as a sentence: the introduction is bold."""
    text = to_fix(remedy)
    lead, colon, rest = text.partition(": ") if text != remedy else ("", "", text)
    return Markup("<b>{}{}</b>{}").format(lead.capitalize(), colon, rest if colon else rest[:1].upper() + rest[1:])


class Links:
    """The anchors of the lines that the page shows."""

    def __init__(self, report: Report, listings: list[Markup | None]) -> None:
        self.anchors = {(file.path, line.number): f"f{i}-{line.number}"
                        for i, file in enumerate(report.files) if listings[i] is not None for line in file.lines}

    def to(self, file: str, line: int) -> str | None:
        return self.anchors.get((file, line))


def explained(reason: str) -> Markup:
    """The page of a reason, as HTML with its headings two levels lower."""
    path = REASONS / f"{reason.lower()}.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = MarkdownIt("commonmark", {"html": False}).render(text)
    return Markup(re.sub(r"(</?h)([1-4])>", lambda tag: f"{tag[1]}{int(tag[2]) + 2}>", found))


# ---- the parts of the page ------------------------------------------------------------------------------
def listings_of(report: Report, room: Room) -> list[Markup | None]:
    """The source of each file, the user's files first; None for a file for which there is no room."""
    return [room.fitted(template("listing.html.j2").render(file=file, number=i)) for i, file in enumerate(report.files)]


def excerpt(report: Report, line: Line) -> list[tuple[int, str, bool]]:
    """The source around a line: number, text, and whether it is that line."""
    file = next((f for f in report.files if f.path == line.file), None)
    near = [] if file is None else [s for s in file.lines if abs(s.number - line.line) <= AROUND]
    if not any(s.number == line.line for s in near):
        return [(line.line, line.source, True)] if line.source else []
    return [(s.number, s.text, s.number == line.line) for s in near]


def folds(file: SourceFile) -> Iterator[tuple[bool, list[SourceLine]]]:
    """The lines of a file in pieces, and whether to fold each piece because nothing happened in it."""
    busy = [line.number for line in file.lines if line.state]
    near = {i for found in busy for i in range(found - AROUND, found + AROUND + 1)}
    for shown, piece in itertools.groupby(file.lines, lambda line: line.number in near):
        several = list(piece)
        yield not shown and len(several) >= LONG_FOLD, several


def lines_of(graph: Graph) -> list[tuple[Operation, int]]:
    """The operations of a graph with their counts. A line that a repeated block executes again is one row."""
    return list(Counter(graph.operations).items())


def guards_by_group(guards: Iterable[Guard]) -> dict[str, list[Guard]]:
    """Guards by what they protect: the largest group first, and the most frequent guards first. Guards on the same
    part of each of several blocks are one.
    """
    groups: dict[str, Counter[Guard]] = {}
    for guard in guards:
        alike = replace(guard, sentence=INDEX.sub(".*", guard.sentence), count=0)
        groups.setdefault(guard.group, Counter())[alike] += guard.count
    return {group: [replace(guard, count=times) for guard, times in found.most_common()]
            for group, found in sorted(groups.items(), key=lambda item: -item[1].total())}
