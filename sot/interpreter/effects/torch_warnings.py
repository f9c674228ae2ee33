"""Warnings of torch's operations. Capture shows none. Warnings of the graph name the user's line.

A fake operation warns like a real one, but names a line of the interpreter, and torch gives some warnings only once in
a process. So capture suppresses the warning and clears Python's and torch's record of it. The graph then warns as the
program does. A graph has no source lines, so ``naming_lines`` wraps the call of a graph in which an operation has
warned. The code of a backend that compiles may not warn, so there the warnings are shown before its first call.
"""
from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from sot.interpreter.effects.uncaptured_code import refuse_shower
from sot.support.errors import Break, Reason
from sot.support.own_code import is_own
from sot.torch_compat.graphs import lines_of, node_at

if TYPE_CHECKING:
    from types import FrameType

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


FOLDER_OF_TORCH = os.path.dirname(torch.__file__) + os.sep


class Shown(NamedTuple):
    """A warning that would have been shown."""

    message: Warning
    category: type[Warning]
    file: str
    line: int


class Where(NamedTuple):
    """A warning with the place that it names: the arguments of ``warnings.warn_explicit``. The text has the sizes of
    the captured call.
    """

    message: Any
    category: type[Warning]
    file: str
    line: int
    module: str
    registry: dict


@contextmanager
def put_down(note: Callable[[Shown], None]) -> Iterator[None]:
    """Record warnings instead of showing them. Filters are not changed, because that would clear Python's record of
    the warnings that it has shown.
    """
    def show(message: Any, category: type[Warning], filename: str, lineno: int, *others: Any) -> None:
        note(Shown(message, category, filename, lineno))
    before = warnings.showwarning
    warnings.showwarning = show     # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = before


@contextmanager
def without_warnings(m: Machine) -> Iterator[None]:
    """Suppress warnings during a capture. ``m.warned`` has those that would be shown."""
    def note(shown: Shown) -> None:
        forget(shown)
        if is_own(shown.file):
            m.warned.append((shown, place_of(m, shown)))
    m.shows_warning = warnings.showwarning
    always = m.warns_always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)     # without it, torch would not warn a second time
    try:
        with put_down(note):
            yield
    finally:
        torch.set_warn_always(always)


def forget(shown: Shown) -> None:
    """Remove a warning from Python's record, which is in the module that the warning names."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != shown.file:
        frame = frame.f_back    # type: ignore[assignment]
    if frame is not None:
        frame.f_globals.get("__warningregistry__", {}).pop((str(shown.message), shown.category, shown.line), None)


def place_of(m: Machine, shown: Shown) -> Where:
    """A warning at the user's line that is executed."""
    frame = next(iter(m.user_frames()), m.frames[0])
    registry = frame.namespace.setdefault("__warningregistry__", {})
    text = str(shown.message)
    text = m.symbols.torch.with_examples(text, m.symbols.env) if m.has_symbols else text
    module = str(frame.namespace.get("__name__"))
    return Where(text, shown.category, frame.native.co_filename, frame.line, module, registry)


def taken(m: Machine) -> dict[str, Where]:
    """The warnings of the operation that has just run, with the place that each names."""
    refuse_recorded(m)
    if m.warned:
        refuse_shower(m)
    found = {str(shown.message): place for shown, place in m.warned}
    m.warned.clear()
    return found


def warn_later(m: Machine) -> None:
    """The operation that has just run is not part of the graph, so its warnings are shown once, after the graph."""
    refuse_recorded(m)
    for shown, place in [*m.warned]:
        m.effect(told_once(shown, place))
    m.warned.clear()


def refuse_recorded(m: Machine) -> None:
    """Break if the program records the warning: the graph runs before emitted code enters the ``catch_warnings``."""
    if m.warned and any(catching.log is not None for catching in m.entered.catching):
        raise Break(Reason.SIDE_EFFECT, "an operation that warns, where warnings are recorded")


def told_once(shown: Shown, place: Where) -> Callable[[Emitter], None]:
    return lambda e: e.line(f"{e.const(warn_once)}({e.const(shown)}, {e.const(place)})")


_told: set[str] = set()


def warn_once(shown: Shown, place: Where) -> None:
    if str(shown.message) not in _told:
        _told.add(str(shown.message))
        warnings.warn_explicit(*place)


def warnings_of(module: torch.fx.GraphModule) -> dict[str, Where]:
    """The warnings of the operations of a graph, and the places that they name."""
    found: dict[str, Where] = {}
    for node in module.graph.nodes:
        found.update(node.meta.get("torch_warns", {}))
    return found


def is_of_torchs_code(shown: Shown) -> bool:
    """Whether a warning says that torch calls what will go, for example at an import of a part of its compiler."""
    return issubclass(shown.category, (DeprecationWarning, FutureWarning)) and shown.file.startswith(FOLDER_OF_TORCH)


@contextmanager
def unheard(places: Mapping[str, Where]) -> Iterator[None]:
    """Suppress these warnings while a backend compiles, because it may run the operations on fakes again, and those
    about torch's own code. All are suppressed if the backend fails, or the capture restarts without what it cannot
    compile.
    """
    others: list[Shown] = []

    def note(shown: Shown) -> None:
        if str(shown.message) in places or is_of_torchs_code(shown):
            forget(shown)
        else:
            others.append(shown)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(always or bool(places))
    try:
        with put_down(note):
            yield
    except Exception:
        while others:
            forget(others.pop())
        raise
    finally:
        torch.set_warn_always(always)
        for shown in others:
            warnings.showwarning(*shown)


def naming_lines(call: Callable[..., Any], places: Mapping[str, Where], is_compiled: bool) -> Callable[..., Any]:
    """A call of a graph whose warnings name the lines of their operations."""
    untold = {**places} if is_compiled else {}

    def run(*args: Any) -> Any:
        for text in [*untold]:
            warnings.warn_explicit(*untold[text])       # which may raise
            untold.pop(text, None)
        found: list[tuple[Shown, Where]] = []
        with put_down(lambda shown: found.append((shown, line_of(shown, places)))):
            results = call(*args)
        for shown, place in found:
            if not is_compiled or str(shown.message) not in places:
                warnings.warn_explicit(*place)
        return results
    return run


def line_of(shown: Shown, places: Mapping[str, Where]) -> Where:
    """The place that a warning of a graph names. The text of one may have sizes that capture did not know."""
    if not is_generated(shown.file):
        return Where(*shown, "", {})
    if (place := places.get(str(shown.message))) is not None:
        return place._replace(message=shown.message)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if (node := node_at(frame, frame.f_lineno)) is not None and (lines := lines_of(node)):
            file, line, _ = lines[-1]
            return Where(shown.message, shown.category, file, int(line), "", {})
        frame = frame.f_back
    return Where(*shown, "", {})


def is_generated(file: str) -> bool:
    """Whether this file is a graph's code, or code of this package that calls a graph."""
    return file.startswith("<") or is_own(file)
