"""enable() and disable(): the translator on for everything that a program runs, without a decorator.

Functions of the standard library, of torch outside of its layers, and of what is excluded are left to Python; so is
what does not pay: see ``sot.driver.capture_policy``.
"""
from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from sot._hook import PLAIN, get_callback, set_callback, set_default
from sot.backends import Backend
from sot.driver.capture_policy import Policy
from sot.driver.scope import Scope
from sot.driver.translator import Translator
from sot.driver.whole_program import WholeProgram, program_of
from sot.frontend.api import Settings, everything, module_name
from sot.frontend.switch import Switch
from sot.guards.guards import short
from sot.reports import recording
from sot.reports.build import report_of
from sot.reports.recording import Recording
from sot.support.limits import EVERYTHING, Budget, budget
from sot.support.tracebacks import public

Modules = ModuleType | str | Iterable[ModuleType | str]


@public()
def enable(*, backend: str | Backend = "auto", include: Modules = (), exclude: Modules = ()) -> Switch:
    """Translate what is called from now on, where that pays (see SOT_BUDGET); also as ``with sot.enable():``.

    It counts for this thread. In the main thread it counts for every other one, too, now or later, that has not called
    enable or disable itself.

    Arguments:
        backend: as for to_static.
        include: modules, or their dotted names: only functions of these, and of what is in them, are translated.
        exclude: modules whose functions are left to Python, even if they are in ``include``.

    Raises UnknownBackendError or another BackendError for the backend, TargetError for what is no module.
    """
    return start(backend, include, exclude, budget())


def enable_all(*, backend: str | Backend = "auto", include: Modules = (), exclude: Modules = ()) -> Switch:
    """The same, for who wants to see what can be captured: unless SOT_BUDGET says otherwise, whether it pays or not."""
    return start(backend, include, exclude, budget() if os.environ.get("SOT_BUDGET") else EVERYTHING)


def start(backend: str | Backend, include: Modules, exclude: Modules, budget: Budget) -> Switch:
    scope = Scope(module_names(include), module_names(exclude))
    program = WholeProgram(translator_for(backend), Policy(budget), scope)
    program.load()
    return Switch(program.callback)


def translator_for(backend: str | Backend) -> Callable[[WholeProgram], Translator]:
    """What makes the translator of a whole program. Raises what Settings raises."""
    compiler = Settings(backend).compiler()
    return lambda program: Translator(compiler, program=program, scope=program.scope)


def disable() -> Switch:
    """Translate nothing more but functions marked with to_static, where enable() would count; also as
    ``with sot.disable():``."""
    return Switch(None)


class StaticSwitch:
    """What ``enable_to_static`` answers: in a ``with`` statement, what was before comes back at its end."""

    def __init__(self, on: bool) -> None:
        self.before = everything.on
        turn_everything(on)

    def __enter__(self) -> StaticSwitch:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        turn_everything(self.before)


@public()
def enable_to_static(on: bool) -> StaticSwitch:
    """Switch every translation off, or on again; also as ``with sot.enable_to_static(False):``.

    While off, what ``to_static`` has translated, or translates then, is plain Python, and so is what ``enable`` asked
    for in this thread. What was captured is kept. Raises ValueError for what is neither True nor False.
    """
    if not isinstance(on, bool):
        raise ValueError(f"enable_to_static needs True or False, not {short(on)}")
    return StaticSwitch(on)


def turn_everything(on: bool) -> None:
    if on == everything.on:
        return
    everything.turn(on)
    if on:
        own, default = _paused.pop("callbacks", (None, None))
        set_callback(own), set_default(default)
    else:
        _paused["callbacks"] = set_callback(PLAIN), set_default(None)


_paused: dict[str, Any] = {}    # the callbacks of this thread and of all others while everything is off


def is_enabled() -> bool:
    """Is every function that this thread calls translated, if that pays?"""
    return program_of(get_callback()) is not None


def module_names(modules: Modules) -> tuple[str, ...]:
    several = [modules] if isinstance(modules, ModuleType | str) or not isinstance(modules, Iterable) else [*modules]
    return tuple(map(module_name, several))


# ---- SOT_REPORT -------------------------------------------------------------------------------------------
def record_from_environment() -> None:
    """Write a report at exit, if SOT_REPORT asks for one."""
    path = report_path()
    if path and recording.current is None and threading.current_thread() is threading.main_thread():
        recorded = Recording(" ".join(sys.argv) or "python").start()
        if (program := program_of(get_callback())) is not None:
            recorded.left_out, recorded.gain = program.policy.left_out, program.gain
        write_at_exit(recorded, path)


def report_path() -> Path | None:
    """Where this process writes its report: nowhere if another has started it, which writes its own; of the processes
    of a distributed program, which are told by RANK, each has one."""
    if not os.environ.get("SOT_REPORT") or multiprocessing.parent_process() is not None:
        return None
    path, rank = Path(os.environ["SOT_REPORT"]), os.environ.get("RANK", "0")
    return path if rank == "0" else path.with_stem(f"{path.stem}-rank{rank}")


def write_at_exit(recorded: Recording, path: Path) -> None:
    """Write the report when the program ends, whatever ends it."""
    process, hook = os.getpid(), sys.excepthook

    def remember(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        recorded.outcome = f"failed: {kind.__name__}: {error}"
        hook(kind, error, trace)

    def write() -> None:
        if os.getpid() != process:      # a worker that was forked
            return
        recorded.program = " ".join(sys.argv) or recorded.program
        recorded.stop()
        try:
            report_of(recorded).save(path)
        except OSError as e:
            print(f"SOT_REPORT: the report cannot be written: {e}", file=sys.stderr)

    sys.excepthook = remember
    atexit.register(write)
