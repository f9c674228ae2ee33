"""What the commands do once torch and the translator are loaded. Commands that run a program or compare two reports
return the exit status.
"""
from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console

from sot.backends import BackendError, UnknownBackendError
from sot.driver.scope import Scope
from sot.frontend import stages
from sot.frontend.checks.baseline import BaselineError, ratchet
from sot.frontend.checks.limits import LimitError, Limits, counted, modules_of, violations
from sot.frontend.checks.sarif import sarif
from sot.frontend.command_line import programs
from sot.frontend.command_line.programs import Program, fail
from sot.frontend.global_mode import enable_all
from sot.reports import model
from sot.reports.model import Report, ReportError
from sot.reports.recording import Recording
from sot.reports.views import compare, marked_source
from sot.reports.views.terminal import show
from sot.support.errors import SotError

OWN_FILES = (__file__, programs.__file__, stages.__file__, runpy.__file__, "<frozen runpy>")


# ---- commands -----------------------------------------------------------------------------------------------------
def run(program: Program, backend: str, include: str, exclude: str, report: Path | None) -> int:
    status, done = run_program(program, backend, include, exclude)
    show(done, Console(stderr=True))
    save(done, report)
    return status


def explain(program: Program, backend: str, include: str, exclude: str, report: Path, name: str | None) -> int:
    status, done = run_program(program, backend, include, exclude)
    save(done, report)
    if name is not None:
        print(*marked_source.why(done, name), sep="\n")
    return status


def limits_of(breaks: int | None, recompiles: int | None, coverage: float | None, modules: list[str]) -> Limits:
    try:
        return Limits(breaks, recompiles, coverage, modules_of(modules))
    except LimitError as e:
        fail(str(e))


def check(program: Program, backend: str, include: str, exclude: str, report: Path | None, limits: Limits,
          baseline: Path | None, sarif_file: Path | None) -> int:
    try:
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
    return status or int(bool(problems))


def diff(before: Path, after: Path, markdown: bool) -> int:
    try:
        differences = list(compare.compare(model.load(before), model.load(after)))
    except ReportError as e:
        fail(str(e))
    if markdown:
        print(compare.as_markdown(differences))
    else:
        show_differences(differences)
    return int(any(d.worse for d in differences))


def show_differences(differences: list[compare.Difference]) -> None:
    console, styles = Console(), {True: "red", False: "green", None: ""}
    for difference in differences:
        console.print(difference.text, style=styles[difference.worse], markup=False, highlight=False)
    if not differences:
        console.print("no difference")


def print_stages(target: str, call: str | None, backend: str) -> int:
    try:
        print(stages.stages(target, call, backend))
    except (SotError, BackendError, UnknownBackendError) as e:
        fail(str(e))
    except Exception as e:      # of the file, or of the call
        show_exception(e)
        return 1
    return 0


# ---- running a program --------------------------------------------------------------------------------------------
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
        if note := Scope((*words(include),)).note():
            print(f"--include: {note}", file=sys.stderr)
    return status, recording.report


def status_of(program: Program, recording: Recording) -> int:
    try:
        program.run()
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return e.code or 0
        print(e.code, file=sys.stderr)
        return 1
    except BaseException as e:
        recording.outcome = f"failed: {type(e).__name__}: {e}"
        show_exception(e)
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    return 0


def show_exception(error: BaseException) -> None:
    """Show the exception that ended the program as Python does, or as the program's sys.excepthook does."""
    error.__traceback__ = users_part(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback of the program, without the frames of runpy and of this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename in OWN_FILES:
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
