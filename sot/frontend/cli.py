"""The command line: run, explain, check, diff, cache."""
from __future__ import annotations

import importlib.util
import os
import platform
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, NoReturn

import torch
import typer
from rich.console import Console

from sot.backends import BackendError, UnknownBackendError
from sot.frontend import cache_command
from sot.frontend.checks.baseline import BaselineError, ratchet
from sot.frontend.checks.limits import LimitError, Limits, counted, modules_of, violations
from sot.frontend.checks.sarif import sarif
from sot.frontend.global_mode import enable_all
from sot.frontend.stages import stages as stages_page
from sot.reports import model
from sot.reports.build import report_of
from sot.reports.model import Report, ReportError
from sot.reports.recording import Recording
from sot.reports.views import compare, marked_source
from sot.reports.views.terminal import show
from sot.support.errors import SotError
from sot.support.version import VERSION

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(cache_command.app, name="cache")
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

Script = Annotated[str | None, typer.Argument(
    metavar="PROGRAM", help="A file, or a folder with __main__.py, and its arguments.", show_default=False)]
AsModule = Annotated[str | None, typer.Option(
    "-m", metavar="MODULE", help="Run this module or package instead, as python -m does.", show_default=False)]
StagesOf = Annotated[str | None, typer.Option(
    metavar="FILE.py::NAME", help="Call this function, and print the result of each step of its capture.")]
CallText = Annotated[str | None, typer.Option(
    help="With --stages: the call, such as \"f(torch.ones(3))\"; default: example_inputs in the file.")]
WhyName = Annotated[str | None, typer.Option(
    metavar="NAME", help="Also print why this value of the program is guarded, and where it comes from.")]
BackendName = Annotated[str, typer.Option("--backend", help="The backend of the graphs.")]
Names = Annotated[str, typer.Option(help="Modules in which captures begin, or do not begin; with commas.")]
Output = Annotated[Path | None, typer.Option("--report", help="Also write the report here: .html or .json.")]
Json = Annotated[Path, typer.Argument(help="A report in JSON.", show_default=False)]


def print_version(asked: bool) -> None:
    if asked:
        print(f"sot {VERSION}, torch {torch.__version__}, Python {platform.python_version()}")
        raise typer.Exit()


@app.callback()
def options(version: Annotated[bool, typer.Option(
        "--version", help="Print the versions of sot, torch and Python.", callback=print_version,
        is_eager=True)] = False) -> None:
    """Run PyTorch programs with their tensor operations captured as graphs."""


@app.command(context_settings=PASS_ON)
def run(context: typer.Context, script: Script = None, module: AsModule = None, backend: BackendName = "auto",
        include: Names = "", exclude: Names = "", report: Output = None) -> None:
    """Run a program with the translator on, and print a summary of the captures at its end."""
    status, done = run_program(program_of(script, module, context.args), backend, include, exclude)
    show(done, Console(stderr=True))
    save(done, report)
    raise typer.Exit(status)


@app.command(context_settings=PASS_ON)
def explain(context: typer.Context, script: Script = None, module: AsModule = None, backend: BackendName = "eager",
            include: Names = "", exclude: Names = "", report: Output = None,
            stages: StagesOf = None, call: CallText = None, why: WhyName = None) -> None:
    """Run a program and write a page about it: graphs, breaks, guards, times, and the source line by line."""
    if stages is not None:
        print_stages(stages, call, backend)
        return
    status, done = run_program(program_of(script, module, context.args), backend, include, exclude)
    save(done, report or Path("sot-report.html"))
    if why is not None:
        print(*marked_source.why(done, why), sep="\n")
    raise typer.Exit(status)


@app.command(context_settings=PASS_ON)
def check(context: typer.Context, script: Script = None, module: AsModule = None,
          max_breaks: Annotated[int | None, typer.Option(help="Allowed breaks, and functions left to Python.")] = None,
          max_recompiles: Annotated[int | None, typer.Option(help="Allowed recompiles.")] = None,
          min_coverage: Annotated[float | None, typer.Option(help="Required % of operations in graphs.")] = None,
          module_coverage: Annotated[list[str] | None, typer.Option(
              metavar="MODULE=PERCENT", help="The same for the files of one module; may be repeated.")] = None,
          baseline: Annotated[Path | None, typer.Option(
              help="Figures that the run must reach. A better run replaces them; without the file it is made.")] = None,
          sarif_file: Annotated[Path | None, typer.Option(
              "--sarif", help="Write the findings here, for code hosts and editors.")] = None,
          backend: BackendName = "eager", include: Names = "", exclude: Names = "", report: Output = None) -> None:
    """Run a program, count its breaks and recompiles, and fail if there are more than allowed."""
    program = program_of(script, module, context.args)
    try:
        limits = Limits(max_breaks, max_recompiles, min_coverage, modules_of(module_coverage or []))
        status, done = run_program(program, backend, include, exclude)
        save(done, report)
        if sarif_file is not None:
            sarif_file.write_text(sarif(done), encoding="utf-8")
        problems = [*violations(done, limits), *(ratchet(baseline, done) if baseline is not None else ())]
    except (LimitError, BaselineError, OSError) as e:
        fail(str(e))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{'ok' if not problems and status == 0 else 'failed'}: {program.name}: {counted(done)}", file=sys.stderr)
    raise typer.Exit(status or int(bool(problems)))


@app.command()
def diff(before: Json, after: Json, markdown: Annotated[bool, typer.Option(
        "--markdown", help="Print Markdown, for a comment on a pull request.")] = False) -> None:
    """Show the differences between two reports. The exit status is 1 if anything became worse."""
    try:
        differences = list(compare.compare(model.load(before), model.load(after)))
    except ReportError as e:
        fail(str(e))
    if markdown:
        print(compare.as_markdown(differences))
        raise typer.Exit(int(any(d.worse for d in differences)))
    console, styles = Console(), {True: "red", False: "green", None: ""}
    for difference in differences:
        console.print(difference.text, style=styles[difference.worse], markup=False, highlight=False)
    if not differences:
        console.print("no difference")
    raise typer.Exit(int(any(d.worse for d in differences)))


def print_stages(target: str, call: str | None, backend: str) -> None:
    try:
        print(stages_page(target, call, backend))
    except (SotError, BackendError, UnknownBackendError) as e:
        fail(str(e))


# ---- running a program ------------------------------------------------------------------------------------
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


def run_program(program: Program, backend: str, include: str, exclude: str) -> tuple[int, Report]:
    """Run it as Python would; its exit status, and the report."""
    recording = Recording(str(program))
    with program.arguments():
        try:
            switch = enable_all(backend=backend, include=words(include), exclude=words(exclude))
        except (SotError, BackendError, UnknownBackendError) as e:
            fail(str(e))
        with switch:
            recording.start()
            try:
                status = status_of(program, recording)
            finally:
                recording.stop()
    return status, report_of(recording)


def status_of(program: Program, recording: Recording) -> int:
    try:
        program.run()
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException as e:
        recording.outcome = f"failed: {type(e).__name__}: {e}"
        traceback.print_exception(type(e), e, users_part(e.__traceback__))
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    return 0


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback of the program, without the frames of runpy and of this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def words(names: str) -> list[str]:
    return [word for name in names.split(",") if (word := name.strip())]


def save(report: Report, path: Path | None) -> None:
    if path is not None:
        try:
            report.save(path)
        except OSError as e:
            fail(f"the report cannot be written: {e}")
        print(f"report: {path}", file=sys.stderr)


def fail(message: str) -> NoReturn:
    """Exit with an error in the use of the command."""
    print(f"sot: {message}", file=sys.stderr)
    raise typer.Exit(2)

