"""SOT_ENABLE and related variables: they translate a whole program without a change to it.

This loads the translator only if the backend that is named may be missing, or if a report is requested.
"""
from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import warnings
from importlib import import_module
from typing import Any

from sot.driver.capture_policy import Policy
from sot.driver.gain import tell
from sot.driver.scope import Scope
from sot.driver.whole_program import WholeProgram
from sot.frontend.switch import Switch
from sot.support.errors import SotError
from sot.support.progress import shows_lines
from sot.support.settings import ALWAYS_THERE, CompileTime, SettingError, budget, check_settings

GLOBAL_MODE = "sot.frontend.global_mode"


def enable_from_environment() -> None:
    """Do what SOT_ENABLE, SOT_BACKEND, SOT_INCLUDE, SOT_EXCLUDE, SOT_BUDGET and SOT_REPORT request."""
    backend, report = os.environ.get("SOT_BACKEND") or "auto", bool(os.environ.get("SOT_REPORT"))
    try:
        check_settings()
        program = WholeProgram(make_translator, Policy(budget()), Scope(words("SOT_INCLUDE"), words("SOT_EXCLUDE")))
        program.policy.compile_time = ALWAYS_THERE.get(backend, CompileTime())
        if report or backend not in ALWAYS_THERE:
            program.load()
    except (SotError, RuntimeError, ValueError) as e:       # also of backends
        warnings.warn(f"SOT is not enabled: {e}", stacklevel=2)
        return
    Switch(program.callback)
    tell_at_exit(program)
    if report:
        import_module(GLOBAL_MODE).record_from_environment()


def tell_at_exit(program: WholeProgram) -> None:
    """Print at exit which included modules there were not and, if the output is a terminal, the gain."""
    process = os.getpid()

    def tell_result() -> None:
        if os.getpid() != process or multiprocessing.parent_process() is not None:
            return
        if note := program.scope.note():
            print(f"SOT_INCLUDE: {note}", file=sys.stderr)
        if shows_lines():
            tell(program.gain())
    atexit.register(tell_result)


def make_translator(program: WholeProgram) -> Any:
    return import_module(GLOBAL_MODE).translator_for(os.environ.get("SOT_BACKEND") or "auto")(program)


def words(name: str) -> tuple[str, ...]:
    """The module names in a variable. Raises SettingError."""
    found = tuple(word for text in os.environ.get(name, "").split(",") if (word := text.strip()))
    for word in found:
        if not all(part.isidentifier() for part in word.split(".")):
            raise SettingError(f"{name} needs the dotted names of modules, not {word!r}")
    return found
