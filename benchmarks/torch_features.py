"""Programs that use one feature of torch or of Python each, by this translator and by torch.compile.

    python benchmarks/torch_features.py [--only REGEX] [--json FILE] [--reasons]

The programs are in ``features/``. Results, changed arguments, output, exceptions, gradients and random numbers of two
calls are compared with plain Python. Each program runs in a forked process. The first call is to take one graph
without a break; a generator or coroutine that is translated itself, one for each piece between two suspensions.
"""
from __future__ import annotations

import argparse
import importlib
import json
import logging
import multiprocessing
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from common import TRANSLATORS, markdown, reset
from features import PROGRAMS, Program

import sot

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
harness = importlib.import_module("harness")
SEEN = ("raised", "result", "printed", "args", "grads", "random")


class Translated:
    """A program under a translator, which counts graphs and breaks."""

    def __init__(self, program: Program, translator: str) -> None:
        self.program, self.translator, self.backend = program, translator, harness.Counter()
        self.functions: list[Any] = []
        self.call = program.run if program.drives else self.translate(program.run)
        reset(translator)
        torch._dynamo.utils.counters.clear()

    def translate(self, fn: Callable[..., Any]) -> Any:
        made = sot.to_static(fn, backend="eager") if self.translator == "sot" else torch.compile(
            fn, backend=self.backend)
        self.functions.append(made)
        return made

    @property
    def graphs(self) -> int:
        if self.translator == "sot":
            return sum(len(sot.translation_of(f).graphs) for f in self.functions)
        return len(self.backend.graphs)

    @property
    def breaks(self) -> list[str]:
        if self.translator == "sot":
            captures = [c for f in self.functions for c in sot.translation_of(f).captures]
            return [str(c.stopped) for c in captures if c.stopped is not None]
        return [reason for reason, n in torch._dynamo.utils.counters["graph_break"].items() for _ in range(n)]

    def difference(self) -> str | None:
        """Where a call differs from plain Python."""
        run, make = self.program.run, self.program.make
        driver = self.program.drives
        want, again, got = (harness.outcome(call, (*((by,) if driver else ()), *make()), {}) for call, by in (
            (run, lambda fn: fn), (run, lambda fn: fn), (self.call, self.translate)))
        for outcome in (want, again, got):
            outcome.args = outcome.args[0][driver:]
        # What differs between two plain calls as well is not compared: the numbers of hooks are counted in the process.
        return harness.first(harness.same(getattr(got, name), getattr(want, name), name) for name in SEEN
                             if not harness.same(getattr(again, name), getattr(want, name), name))


def verdict(program: Program, translator: str, calls: int = 2) -> tuple[str, str]:
    """``one graph``, how many graphs and breaks, or ``wrong``; and why."""
    translated = Translated(program, translator)
    try:
        differs = translated.difference()
        graphs, breaks = translated.graphs, translated.breaks
        for _ in range(calls - 1):
            differs = differs or translated.difference()
    except Exception as e:  # noqa: BLE001 - whatever a translator raises is its result
        return "wrong", f"{type(e).__name__}: {e}".partition("\n")[0]
    if differs:
        return "wrong", differs
    if graphs == program.pieces and not breaks:
        return "one graph", ""
    return f"{graphs} graphs, {len(breaks)} breaks", breaks[0].partition("\n")[0] if breaks else ""


def in_a_child(program: Program, translator: str) -> tuple[str, str]:
    """The verdict of a forked process, so that nothing is left behind and a crash is a result."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(verdict(program, translator)))
    child.start()
    theirs.close()
    try:
        return mine.recv()
    except EOFError:
        child.join(60)
        return "wrong", f"the process ended with {child.exitcode}"
    finally:
        child.join(60)


def by_group(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each group and in total: programs, and for each translator those that are right and those in one graph."""
    groups: dict[str, list] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    groups["all"] = rows
    return [{"group": group, "programs": len(members), **{
        f"{translator} {what}": sum(good(row[translator]) for row in members) for translator in TRANSLATORS
        for what, good in (("right", lambda v: v != "wrong"), ("one graph", lambda v: v == "one graph"))}}
        for group, members in groups.items()]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="a regular expression for names of programs")
    options.add_argument("--translators", nargs="+", default=TRANSLATORS)
    options.add_argument("--json", type=Path, help="a file for the rows")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    rows: list[dict[str, Any]] = []
    for program in [p for p in PROGRAMS if re.search(chosen.only, p.name)]:
        row: dict[str, Any] = {"group": program.group, "program": program.run.__name__}
        for translator in TRANSLATORS:
            row[translator], row[f"why {translator}"] = (
                in_a_child(program, translator) if translator in chosen.translators else ("", ""))
        rows.append(row)
        if any(row[t] not in ("", "one graph") for t in TRANSLATORS):
            print(row, file=sys.stderr)
    print(markdown(by_group(rows)))
    print(markdown([{k: row[k] for k in ("group", "program", *TRANSLATORS, "why sot")} for row in rows
                    if any(row[t] not in ("", "one graph") for t in TRANSLATORS)]))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
