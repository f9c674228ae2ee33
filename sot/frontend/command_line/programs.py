"""The program that a command runs, and errors in the use of a command. Nothing here needs torch."""
from __future__ import annotations

import builtins
import importlib.util
import os
import pkgutil
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand


class RunsProgram(TyperCommand):
    """A command that runs a program. All arguments after ``-m MODULE`` are the module's, as after ``python -m``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, options_ended(args))


def options_ended(args: list[str]) -> list[str]:
    """The arguments, with ``--`` after ``-m MODULE``: it ends the options of the command."""
    rest = iter(enumerate(args, 1))
    for after, arg in rest:
        if arg.startswith("-m"):
            after += arg == "-m"
            return [*args[:after], "--", *args[after:]] if after <= len(args) else args
        if not arg.startswith("-") or arg == "--":
            break
        if "=" not in arg and arg != "--help":
            next(rest, None)        # the option's value
    return args


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
        elif pkgutil.get_importer(self.name) is not None:      # of a folder, or of an archive
            runpy.run_path(self.name, run_name="__main__")
        else:
            run_file(os.path.abspath(self.name))

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


def run_file(path: str) -> None:
    """Run a file as ``python FILE`` does. ``runpy.run_path`` differs: it makes ``__file__`` a relative path, which is
    wrong after ``os.chdir``, and takes ``__main__`` away from threads that go on.
    """
    loader: SourceFileLoader | SourcelessFileLoader
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", path)
        code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __file__=path, __cached__=None, __loader__=loader, __annotations__={})
    exec(code, vars(main))      # type: ignore[arg-type]


def program_of(script: str | None, module: str | None, rest: list[str]) -> Program:
    """The program that the command line names."""
    if module is not None:
        if not has_module(module):
            fail(f"there is no module {module or 'without a name'}")
        return Program(module, tuple([script, *rest] if script is not None else rest), is_module=True)
    if not script:
        fail("which program? Give a file, or -m MODULE")
    if not Path(script).exists():
        fail(f"there is no {script}")
    if Path(script).is_dir() and not any(Path(script, f"__main__{suffix}").exists() for suffix in (".py", ".pyc")):
        fail(f"there is no __main__.py in the folder {script}")
    return Program(script, tuple(rest), is_module=False)


def has_module(name: str) -> bool:
    """Whether there is a module, or a package that may have it. Nothing is imported: that is part of the run."""
    package = name.partition(".")[0]
    sys.path.insert(1, os.getcwd())     # find_spec needs it before the program's own sys.path is set
    try:
        return bool(package) and importlib.util.find_spec(package) is not None
    finally:
        del sys.path[1]


def output_file(path: Path | None) -> None:
    """Fail before the program runs, for hours perhaps, if its results cannot be written there. The folder is made."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        fail(f"{path} cannot be written: there is no folder {path.parent}, and none can be made ({e.strerror})")
    if path.is_dir():
        fail(f"{path} cannot be written: it is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        fail(f"{path} cannot be written: permission denied")


def fail(message: str) -> NoReturn:
    """Exit with an error in the use of the command."""
    print(f"sot: {message}", file=sys.stderr)
    raise typer.Exit(2)
