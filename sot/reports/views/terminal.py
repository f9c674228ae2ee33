"""The terminal view of a report: the summary at the end of ``python -m sot run``."""
from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sot.reports.advice import first_change
from sot.reports.gain import gain_lines
from sot.reports.lines import count, milliseconds, to_fix
from sot.reports.model import Break, Line, Report
from sot.reports.views.page import percent
from sot.support.places import shortened

BREAKS_SHOWN = 10
FUNCTIONS_SHOWN = 10
RECOMPILES_SHOWN = 5


def show(report: Report, console: Console) -> None:
    """Print the summary: the share of operations in graphs, the breaks with their fixes, and the recompiles."""
    console.print(summary(report))


def summary(report: Report) -> Group:
    parts: list[RenderableType] = [headline(report)]
    if report.functions:
        parts.append(functions_table(report))
    if stops := report.stops:
        parts.append(Text("Breaks", style="bold"))
        parts += (break_text(b) for b in stops[:BREAKS_SHOWN])
        parts += more(len(stops) - BREAKS_SHOWN, "break")
    reasons = dict.fromkeys(reason for graph in report.graphs for reason in graph.fallbacks)
    if reasons:
        parts.append(Text("Run by eager PyTorch", style="bold"))
        parts += (Padding(Text(reason), (0, 2), expand=False) for reason in reasons)
    if report.recompiles:
        parts.append(Text("Recompiled", style="bold"))
        for again in report.recompiles[:RECOMPILES_SHOWN]:
            causes = "".join(f"\n  {cause}" for cause in again.causes)
            remedy = f"\n  {to_fix(again.remedy)}" if again.remedy else ""
            text = Text(f"{again.name}, at {at(again.begins or again.function)}{causes}{remedy}")
            parts.append(Padding(text, (0, 2), expand=False))
        parts += more(len(report.recompiles) - RECOMPILES_SHOWN, "function")
    if report.gain is not None:
        parts.append(Text("Gain", style="bold"))
        parts += (Padding(Text(line.strip()), (0, 2), expand=False) for line in gain_lines(report.gain))
    elif report.left_out:
        parts.append(Text("Not captured for lack of budget (SOT_BUDGET)", style="bold"))
        parts += (Padding(Text(name), (0, 2), expand=False) for name in report.left_out[:FUNCTIONS_SHOWN])
        parts += more(len(report.left_out) - FUNCTIONS_SHOWN, "function")
    return Group(*parts)


def headline(report: Report) -> Text:
    counts = (count(len(report.graphs), "graph"), count(len(report.real_breaks), "break"),
              f"{len(report.recompiles) or 'none'} recompiled")
    first = first_change(report)
    return Text.assemble(
        ("SOT ", "bold"), f"{report.program}: ", (percent(report.coverage), "bold green"),
        f" of {report.in_graphs + report.in_python} tensor operations in graphs, {percent(report.times.share)} of "
        f"their time; {', '.join(counts)}; capture took {milliseconds(report.capture_seconds)} of "
        f"{milliseconds(report.elapsed)}, Python after breaks {milliseconds(report.lost)}",
        *(("\nChange first: ", "bold"), f"{first.what}, at {at(first.line)} ({milliseconds(first.seconds)}). "
          f"{first.remedy}") if first is not None else ())


def functions_table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("function", "where"):
        table.add_column(name, overflow="fold")
    for name in ("in graphs", "in Python", "share", "graphs", "breaks"):
        table.add_column(name, justify="right")
    for f in report.functions[:FUNCTIONS_SHOWN]:
        table.add_row(f.name, at(f.line), str(f.in_graphs), str(f.in_python), percent(f.coverage), str(f.graphs),
                      str(f.breaks))
    return table


def break_text(b: Break) -> Padding:
    whole = f"Python runs all of {b.stack[0].function if b.stack else b.line.function}"
    whole = whole if b.fallback else f"{b.captures} ×"
    often = f"{b.runs} ×, {milliseconds(b.seconds)}" if b.runs else whole
    text = Text.assemble((b.message, "red"), f" ({often})\n", (f"at {at(b.line)} in {b.line.function}\n", "dim"))
    if b.line.source:
        text.append(f"    {b.line.source}\n")
    return Padding(text.append(to_fix(b.hint)), (0, 2), expand=False)


def more(number: int, noun: str) -> list[Text]:
    return [Text(f"  ... and {count(number, noun)} more", style="dim")] if number > 0 else []


def at(line: Line) -> str:
    return f"{shortened(line.file)}:{line.line}"
