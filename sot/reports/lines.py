"""Plain text for records: the lines of ``explain`` and ``SOT_LOG``.

The functions take records and return lines, without trailing newlines. Items that differ only in how often they
happened are shown once, with a count. ``GROUPS`` selects the heading of each guard: the first that fits.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from sot.guards.guards import CodeGuard, Guard, HasKeyGuard, IsGuard, TypeGuard
from sot.guards.origin import Arg, CellContents, Global, Known, Origin
from sot.reports.history import by_kind, history
from sot.reports.records import BreakRecord, Capture, GraphRecord, GuardRecord, RecompileReason
from sot.reports.wording import is_call, is_structure, names_in, said
from sot.support.errors import NOTHING, Reason
from sot.support.places import Place, shortened
from sot.torch_compat.compilers import whole_stack
from sot.values.constants import is_library, module_of

INDENT = "    "
GUARDS_SHOWN = 8  # in each group, unless all are requested
FRAMES_SHOWN = 6
STACK_PREFIX = "__stack"  # of parameters of resume functions that are not variables of the program
Lines = Iterator[str]


# ---- small things ---------------------------------------------------------------------------------------
def count(number: int, noun: str) -> str:
    """``1 graph``, ``2 graphs``, ``no graphs``."""
    plural = noun if number == 1 else noun + "es" if noun.endswith(("s", "x", "sh")) else noun + "s"
    return f"{number or 'no'} {plural}"


def times(number: int) -> str:
    return f" (x{number})" if number > 1 else ""


def milliseconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def at(place: Place) -> str:
    return f"{shortened(place.file)}:{place.line} in {place.function}"


def indented(lines: Iterable[str], depth: int = 1) -> Lines:
    return (INDENT * depth + line for line in lines)


def items(lines: Iterable[Iterable[str]]) -> Lines:
    """Numbered items of several lines each."""
    for number, entry in enumerate(lines, 1):
        for i, line in enumerate(entry):
            yield f"{INDENT[2:]}{number}. {line}" if i == 0 else f"{INDENT}{' ' * len(str(number))}{line}"


def section(title: str, lines: Iterable[str]) -> Lines:
    """A heading and its lines; nothing if there are no lines."""
    found = list(lines)
    if found:
        yield from ("", title, *found)


# ---- breaks and fallbacks -------------------------------------------------------------------------------
def break_lines(record: BreakRecord, number: int = 1) -> Lines:
    """The reason, the place with its source line, the call stack, and the fix."""
    yield record.message + times(number)
    yield from place_lines(record)
    yield to_fix(record.hint)


def place_lines(record: BreakRecord) -> Lines:
    yield f"at {at(record.place)}"
    if record.place.source:
        yield INDENT + record.place.source
    if len(record.stack) > 1:
        yield "called from"
        yield from call_lines(record.stack[:-1])


def call_lines(stack: Sequence[Place]) -> Lines:
    """The callers, innermost first, each with its source line."""
    for place in stack[::-1][:FRAMES_SHOWN]:
        source = f": {place.source}" if place.source else ""
        yield f"{INDENT}{at(place)}{source}"
    if len(stack) > FRAMES_SHOWN:
        yield f"{INDENT}... and {len(stack) - FRAMES_SHOWN} more"


def breaks_lines(records: Iterable[BreakRecord]) -> Lines:
    return items(break_lines(record, number) for record, number in Counter(records).items())


def fallback_lines(capture: Capture) -> Lines:
    """A frame that Python runs, and why."""
    yield f"{capture.name}, at {at(capture.place)}"
    if capture.stopped:
        yield f"because {capture.stopped.message}"
        if capture.stopped.stack:
            yield from place_lines(capture.stopped)
        yield to_fix(capture.stopped.hint)


def fallbacks_lines(captures: Sequence[Capture]) -> Lines:
    """Frames that Python runs. Frames without tensor operations are only counted."""
    idle = [c for c in captures if c.stopped and c.stopped.reason is Reason.NOTHING_CAPTURED]
    yield from items(fallback_lines(c) for c in captures if c not in idle)
    if idle:
        names = ", ".join(dict.fromkeys(c.name for c in idle[:FRAMES_SHOWN]))
        yield f"  and {count(len(idle), 'function')} without a tensor operation: {names}"


def recompile_lines(capture: Capture) -> Lines:
    """A recompiled frame, and the guard of each earlier capture that did not hold."""
    yield f"{capture.name}, at {at(capture.place)}"
    yield from reason_lines(capture.recompile_reasons)


def reason_lines(reasons: Sequence[RecompileReason]) -> Lines:
    """A line for each value that kept changing, or for each capture that did not fit: the guard, the user's line that
    needed it, and the number of failed guards.
    """
    for group in by_kind(reasons):
        if len(group) > 1:
            yield history(group)
    alone = [group[0] for group in by_kind(reasons) if len(group) == 1]
    for reason in alone:
        is_first = reason is reasons[0]
        where = f" (needed at {shortened(reason.file)}:{reason.line})" if reason.file else ""
        closest = ", the closest capture" if is_first and len(reasons) > 1 else ""
        more = f"; {reason.failed - 1} more of its {reason.of} guards fail" if reason.failed > 1 and is_first else ""
        yield f"{reason.text}{where}{closest}{more}"


def to_fix(remedy: str) -> str:
    """A remedy with the words that introduce it, unless it says that there is nothing to do."""
    return remedy if remedy.startswith(NOTHING) else f"to fix it: {remedy}"


# ---- graphs ---------------------------------------------------------------------------------------------
OUTERMOST = re.compile(r'\s*File "(?P<file>.*?)", line (?P<line>\d+), in ')  # of the stack of a node


def lines_of(record: GraphRecord) -> list[int]:
    """The lines of the captured function that the graph's operations come from, in order."""
    frames = (OUTERMOST.match(whole_stack(node)) for node in record.module.graph.nodes)
    return sorted({int(f["line"]) for f in frames if f and f["file"] == record.place.file})


def extent(record: GraphRecord) -> str:
    """The place of the graph: ``file:first-last in function``."""
    lines = lines_of(record)
    if not lines:
        return at(record.place)
    last = f"-{lines[-1]}" if len(lines) > 1 else ""
    return f"{shortened(record.place.file)}:{lines[0]}{last} in {record.place.function}"


def graph_lines(record: GraphRecord, verbose: bool = False) -> Lines:
    inputs = sum(node.op == "placeholder" for node in record.module.graph.nodes)
    yield f"{record.name}: {count(record.operations, 'operation')}, {count(inputs, 'input')}, from {extent(record)}"
    yield from (f"    eager PyTorch runs it: {reason}" for reason in record.module.meta.get("fallbacks", ()))
    for made in record.module.meta.get("kernels", ()):
        yield (f"    {made['title']}: {count(made['kernels'], 'kernel')}, {count(made['calls'], 'call')} of operators, "
               f"{made['bytes']:,} bytes moved")
    if verbose:
        yield from indented(record.module.code.strip().splitlines())


# ---- guards ---------------------------------------------------------------------------------------------
def chain(origin: Any) -> Iterator[Origin]:
    """An origin, the origin that it is an attribute or item of, and so on."""
    while isinstance(origin, Origin):
        yield origin
        origin = getattr(origin, "base", None) or getattr(origin, "namespace", None)


def any_in_chain(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda origin: any(map(fits, chain(origin)))


def is_argument(origin: Any) -> bool:
    return isinstance(origin, Arg)


def is_intermediate(origin: Any) -> bool:
    return isinstance(origin, Arg) and origin.name.startswith(STACK_PREFIX) or is_call(origin)


def is_global(origin: Any) -> bool:
    return isinstance(origin, Global) or isinstance(origin, Known) and isinstance(origin.held.value, dict)


# What guards protect, by the origin of the guarded value. The group of modules precedes these.
GROUPS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("values computed by a statement before it breaks", any_in_chain(is_intermediate)),
    ("arguments and variables", is_argument),
    ("closure variables", any_in_chain(lambda origin: isinstance(origin, CellContents))),
    ("contents of arguments and variables", any_in_chain(is_argument)),
    ("global variables", any_in_chain(is_global)),
    ("classes and libraries", any_in_chain(lambda origin: isinstance(origin, Known))),
    ("torch's state", lambda origin: True),
)


def modules_guarded(guards: Iterable[Guard]) -> set[Origin]:
    """Origins that a guard on their type shows to be torch.nn.Modules."""
    return {g.origin for g in guards if isinstance(g, TypeGuard) and isinstance(g.cls, type)
            and issubclass(g.cls, torch.nn.Module)}


def group_of(guard: Any, modules: set[Origin]) -> str:
    origin = getattr(guard, "origin", None)
    if any(o in modules for o in chain(origin)):
        return "modules, their parameters and attributes"
    return next(title for title, fits in GROUPS if fits(origin))


def grouped(records: Iterable[GuardRecord]) -> dict[str, Counter[str]]:
    """The sentences of guards with their counts, by what they protect."""
    groups: dict[str, Counter[str]] = {}
    for _, title, sentence in told(list(records)):
        groups.setdefault(title, Counter())[sentence] += 1
    return groups


def told(records: Sequence[GuardRecord]) -> Iterator[tuple[GuardRecord, str, str]]:
    """Each guard on the program itself, with its group and its sentence."""
    guards = [record.guard for record in records]
    modules, names = modules_guarded(guards), names_in(guards)
    for record in records:
        if not is_structure(record.guard):
            yield record, group_of(record.guard, modules), said(str(record), names)


def is_of_library(guard: Guard) -> bool:
    """Whether it only ensures that a name of a library's class or module is unchanged."""
    first = [*chain(getattr(guard, "origin", None))][-1:]
    if not isinstance(guard, IsGuard | HasKeyGuard | CodeGuard) or not first or not isinstance(first[0], Known):
        return False
    return is_library(module_of(first[0].held.value))


def guards_lines(records: Iterable[GuardRecord], verbose: bool = False) -> Lines:
    """The guards by what they protect. Unless all are requested, guards on names of libraries are only counted, and
    each other group shows its first guards.
    """
    records = list(records)
    folded = grouped(r for r in records if not verbose and is_of_library(r.guard))
    shown = grouped(r for r in records if verbose or not is_of_library(r.guard))
    for title in sorted({**shown, **folded}, key=[*grouped(records)].index):
        sentences, others = shown.get(title, Counter()), folded.get(title, Counter()).total()
        yield f"  {title} ({sentences.total() + others})"
        first = list(sentences.items())[: None if verbose else GUARDS_SHOWN]
        yield from indented(sentence + times(number) for sentence, number in first)
        if len(sentences) > len(first):
            yield f"{INDENT}... and {len(sentences) - len(first)} more"
        if others:
            yield f"{INDENT}{others} on names of libraries that could be replaced: text(verbose=True) lists them"


# ---- times ----------------------------------------------------------------------------------------------
def seconds_lines(seconds: dict[str, float]) -> Lines:
    yield "  " + ", ".join(f"{stage} {milliseconds(value)}" for stage, value in seconds.items())
