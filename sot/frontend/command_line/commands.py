"""The command line: run, explain, check, diff, cache."""
from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from sot.frontend.command_line import cache
from sot.frontend.command_line.programs import RunsProgram, fail, output_file, program_of
from sot.support.collector import import_large
from sot.support.version import VERSION

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(cache.app, name="cache")
PASS_ON = {"allow_extra_args": True, "allow_interspersed_args": False}

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


def running() -> Any:
    """What runs programs. It takes seconds to load, with torch."""
    return import_large("sot.frontend.command_line.running")


def print_version(asked: bool) -> None:
    if asked:
        print(f"sot {VERSION}, torch {metadata.version('torch')}, Python {platform.python_version()}")
        raise typer.Exit()


@app.callback()
def options(version: Annotated[bool, typer.Option(
        "--version", help="Print the versions of sot, torch and Python.", callback=print_version,
        is_eager=True)] = False) -> None:
    """Run PyTorch programs with their tensor operations captured as graphs."""


@app.command(cls=RunsProgram, context_settings=PASS_ON)
def run(context: typer.Context, script: Script = None, module: AsModule = None, backend: BackendName = "auto",
        include: Names = "", exclude: Names = "", report: Output = None) -> None:
    """Run a program with the translator on, and print a summary of the captures at its end."""
    program = program_of(script, module, context.args)
    output_file(report)
    raise typer.Exit(running().run(program, backend, include, exclude, report))


@app.command(cls=RunsProgram, context_settings=PASS_ON)
def explain(context: typer.Context, script: Script = None, module: AsModule = None, backend: BackendName = "eager",
            include: Names = "", exclude: Names = "", report: Output = None,
            stages: StagesOf = None, call: CallText = None, why: WhyName = None) -> None:
    """Run a program and write a page about it: graphs, breaks, guards, times, and the source line by line."""
    if stages is not None:
        raise typer.Exit(running().print_stages(stages, call, backend))
    if call is not None:
        fail("--call needs --stages FILE.py::NAME, the function that it calls")
    program, report = program_of(script, module, context.args), report or Path("sot-report.html")
    output_file(report)
    raise typer.Exit(running().explain(program, backend, include, exclude, report, why))


@app.command(cls=RunsProgram, context_settings=PASS_ON)
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
    for path in report, sarif_file, baseline if baseline is not None and not baseline.exists() else None:
        output_file(path)
    limits = running().limits_of(max_breaks, max_recompiles, min_coverage, module_coverage or [])
    raise typer.Exit(running().check(program, backend, include, exclude, report, limits, baseline, sarif_file))


@app.command()
def diff(before: Json, after: Json, markdown: Annotated[bool, typer.Option(
        "--markdown", help="Print Markdown, for a comment on a pull request.")] = False) -> None:
    """Show the differences between two reports. The exit status is 1 if anything became worse."""
    raise typer.Exit(running().diff(before, after, markdown))
