"""enable() and disable(): they translate everything that a program runs, without a decorator.

Python runs functions of the standard library, of torch outside of its layers, and of excluded modules. It also runs
what is not worth a capture: see ``sot.driver.capture_policy``.
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
from sot.backends.selection import compile_time
from sot.driver.capture_policy import Policy
from sot.driver.scope import Scope
from sot.driver.translator import Translator
from sot.driver.whole_program import WholeProgram, program_of
from sot.frontend.api import Settings, everything, module_name
from sot.frontend.switch import Switch
from sot.guards.guards import short
from sot.reports import recording
from sot.reports.recording import Recording
from sot.support.settings import EVERYTHING, Budget, budget
from sot.support.tracebacks import public

Modules = ModuleType | str | Iterable[ModuleType | str]


@public()
def enable(*, backend: str | Backend = "auto", include: Modules = (), exclude: Modules = ()) -> Switch:
    """Translate all calls from now on that are worth it (see SOT_BUDGET). Also as ``with sot.enable():``.

    It applies to this thread. In the main thread it applies to all other threads, too, except those that have called
    enable or disable themselves.

    Arguments:
        backend: as for to_static.
        include: modules, or their dotted names: captures begin only in functions of these modules and packages.
        exclude: modules in whose functions no capture begins, even if they are in ``include``. A captured function
            of another module may call them, and they are part of that capture: see ``ignore_module``.

    Raises UnknownBackendError or another BackendError for the backend, TargetError for an invalid module.
    """
    return start(backend, include, exclude, budget())


def enable_all(*, backend: str | Backend = "auto", include: Modules = (), exclude: Modules = ()) -> Switch:
    """Like enable(), but capture everything, whether it pays or not, unless SOT_BUDGET is set."""
    return start(backend, include, exclude, budget() if os.environ.get("SOT_BUDGET") else EVERYTHING)


def start(backend: str | Backend, include: Modules, exclude: Modules, budget: Budget) -> Switch:
    scope = Scope(module_names("include", include), module_names("exclude", exclude))
    program = WholeProgram(translator_for(backend), Policy(budget), scope)
    program.load()
    return Switch(program.callback)


def translator_for(backend: str | Backend) -> Callable[[WholeProgram], Translator]:
    """A function that makes the translator of a whole program. Raises the errors of Settings."""
    compiler = Settings(backend).compiler()

    def make(program: WholeProgram) -> Translator:
        program.policy.compile_time = compile_time(compiler)
        return Translator(compiler, program=program, scope=program.scope)
    return make


def disable() -> Switch:
    """Undo enable(): translate only functions of to_static from now on. Also as ``with sot.disable():``."""
    return Switch(None)


class StaticSwitch:
    """The result of ``enable_to_static``. A ``with`` statement restores the previous setting at its end."""

    def __init__(self, on: bool) -> None:
        self.before = everything.on
        turn_everything(on)

    def __enter__(self) -> StaticSwitch:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        turn_everything(self.before)


@public()
def enable_to_static(on: bool) -> StaticSwitch:
    """Turn all translations off, or on again. Also as ``with sot.enable_to_static(False):``.

    While they are off, functions of ``to_static`` are plain Python, and so is everything that ``enable`` translates in
    this thread. Captures are kept. Raises ValueError unless ``on`` is True or False.
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


_paused: dict[str, Any] = {}    # the callbacks of this thread and of all others while all translations are off


def is_enabled() -> bool:
    """Whether calls of this thread are translated, if they are worth it."""
    return program_of(get_callback()) is not None


def module_names(argument: str, modules: Modules) -> tuple[str, ...]:
    several = [modules] if isinstance(modules, ModuleType | str) or not isinstance(modules, Iterable) else [*modules]
    return tuple(module_name(module, argument) for module in several)


# ---- SOT_REPORT -------------------------------------------------------------------------------------------
def record_from_environment() -> None:
    """Write a report at exit, if SOT_REPORT is set."""
    path = report_path()
    if path and recording.current is None and threading.current_thread() is threading.main_thread():
        recorded = Recording(" ".join(sys.argv) or "python").start()
        if (program := program_of(get_callback())) is not None:
            recorded.left_out, recorded.gain = program.policy.left_out, program.gain
        write_at_exit(recorded, path)


def report_path() -> Path | None:
    """The path of this process's report; None if another process has started it and writes the report. In a
    distributed program each process, as told by RANK, writes a report.
    """
    if not os.environ.get("SOT_REPORT") or multiprocessing.parent_process() is not None:
        return None
    path, rank = Path(os.environ["SOT_REPORT"]), os.environ.get("RANK", "0")
    return path if rank == "0" else path.with_stem(f"{path.stem}-rank{rank}")


def write_at_exit(recorded: Recording, path: Path) -> None:
    """Write the report when the program ends, also after an error."""
    process, hook = os.getpid(), sys.excepthook

    def remember(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        recorded.outcome = f"failed: {kind.__name__}: {error}"
        hook(kind, error, trace)

    def write() -> None:
        if os.getpid() != process:      # a forked worker
            return
        recorded.program = " ".join(sys.argv) or recorded.program
        recorded.stop()
        try:
            recorded.report.save(path)
        except OSError as e:
            print(f"SOT_REPORT: the report cannot be written: {e}", file=sys.stderr)

    sys.excepthook = remember
    atexit.register(write)
