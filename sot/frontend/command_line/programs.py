"""The program that a command runs, and errors in the use of a command. Nothing here needs torch."""
from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer


@dataclass(frozen=True)
class Program:
    """The program to run as ``__main__``: the path of a file or folder or, with ``is_module``, the name of a
    module.
    """

    name: str
    args: tuple[str, ...]
    is_module: bool

    def __str__(self) -> str:
        return " ".join(("-m", self.name, *self.args) if self.is_module else (self.name, *self.args))

    def run(self) -> None:
        if self.is_module:
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(self.name, run_name="__main__")

    @contextmanager
    def arguments(self) -> Iterator[None]:
        """Set sys.argv and sys.path to what the program expects."""
        before = sys.argv, sys.path[0]
        sys.argv = ["-m" if self.is_module else self.name, *self.args]
        sys.path[0] = os.getcwd() if self.is_module else str(Path(self.name).resolve().parent)
        try:
            yield
        finally:
            sys.argv, sys.path[0] = before


def program_of(script: str | None, module: str | None, rest: list[str]) -> Program:
    """The program that the command line names. After ``-m MODULE`` all arguments belong to the module."""
    if module is not None:
        sys.path.insert(1, os.getcwd())     # find_spec needs it before the program's own sys.path is set
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        finally:
            del sys.path[1]
        if found is None:
            fail(f"there is no module {module}")
        return Program(module, tuple([script, *rest] if script is not None else rest), is_module=True)
    if script is None:
        fail("which program? Give a file, or -m MODULE")
    if not Path(script).exists():
        fail(f"there is no {script}")
    return Program(script, tuple(rest), is_module=False)


def fail(message: str) -> NoReturn:
    """Exit with an error in the use of the command."""
    print(f"sot: {message}", file=sys.stderr)
    raise typer.Exit(2)
