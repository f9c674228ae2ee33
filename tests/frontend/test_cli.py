"""The command line, the environment flags and the pytest plugin, as a user runs them: in processes of their own."""
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sot
from sot.frontend.command_line.commands import app
from sot.reports.model import VERSION, load

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = '''
import sys
import torch

def model(x):
    y = torch.sin(x) * 2
    if y.mean() > 0:
        y = y + 1
    return torch.relu(y)

for i in range(3):
    model(torch.ones(3))
print("arguments", sys.argv[1:])
if "fail" in sys.argv:
    raise ValueError("as asked")
if "exit" in sys.argv:
    sys.exit(7)
'''
BREAK = "if y.mean() > 0:"


@pytest.fixture(scope="session")
def metadata(tmp_path_factory):
    """A folder with what an installation writes: by it torch finds SOT_ENABLE's entry point, and pytest the plugin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("installed") / f"sot-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sot\nVersion: {project['version']}\n")
    (folder / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in points.items())
        for group, points in project["entry-points"].items()))
    return folder.parent


@pytest.fixture
def program(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    return "train.py"


@pytest.fixture
def python(tmp_path, metadata):
    return in_folder(tmp_path, metadata)


def in_folder(folder, metadata):
    def run(*args, **env):
        variables = os.environ | {"PYTHONPATH": f"{ROOT}:{metadata}", "COLUMNS": "200"} | env
        return subprocess.run([sys.executable, *args], cwd=folder, env=variables, capture_output=True, text=True,
                              timeout=300)
    return run


@pytest.fixture(scope="module")
def a_run(tmp_path_factory, metadata):
    """The program was run with a report: what it printed, and the report's file."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(PROGRAM)
    report = folder / "r.json"
    return in_folder(folder, metadata)(
        "-m", "sot", "run", "--report", str(report), "train.py", "--epochs", "3", "-v"), report


# ---- run, explain -----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_run_passes_arguments_on_and_sums_up(a_run):
    done, _ = a_run
    assert done.returncode == 0 and done.stdout == "arguments ['--epochs', '3', '-v']\n"
    assert "of tensor operations" not in done.stdout
    for wanted in ("SOT train.py --epochs 3 -v:", "2 graphs, 1 break", BREAK, "to fix it:", "a branch depends on"):
        assert wanted in done.stderr


@pytest.mark.slow
def test_a_program_that_fails_has_its_own_traceback_and_a_summary(python, program):
    done = python("-m", "sot", "run", program, "fail")
    assert done.returncode == 1 and "ValueError: as asked" in done.stderr and "2 graphs" in done.stderr
    assert "runpy" not in done.stderr and "cli.py" not in done.stderr


@pytest.mark.slow
def test_the_exit_status_is_the_programs(python, program):
    assert python("-m", "sot", "run", program, "exit").returncode == 7


@pytest.mark.slow
def test_explain_writes_a_page(python, program, tmp_path):
    done = python("-m", "sot", "explain", program)
    assert done.returncode == 0 and "report: sot-report.html" in done.stderr
    assert BREAK in (tmp_path / "sot-report.html").read_text().replace("&gt;", ">")


@pytest.mark.slow
def test_explain_shows_the_stages_of_one_function(python, program, tmp_path):
    (tmp_path / "double.py").write_text("def f(x):\n    return x * 2\n")
    done = python("-m", "sot", "explain", "--stages", "double.py::f", "--call", "f(torch.ones(3))")
    assert done.returncode == 0, done.stderr
    headings = [line for line in done.stdout.splitlines() if line[:4] in ("====", "----")]
    assert headings == ["==== f, at double.py:1 in f", *(f"---- {name}" for name in (
        "instructions", "trace", "graph", "guards", "guard program", "code"))]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["package/__init__.py", "package/__main__.py", "package/train.py"])
def test_a_module_or_package_is_run_as_python_does(python, tmp_path, file):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / file).write_text(PROGRAM + "print(__name__, __package__, sys.argv[0], sys.path[0])")
    name = {"__init__": "package", "__main__": "package", "train": "package.train"}[os.path.basename(file)[:-3]]
    if file.endswith("__init__.py"):
        (tmp_path / "package" / "__main__.py").write_text("")
    want = python("-m", name, "--epochs", "3")
    done = python("-m", "sot", "run", "-m", name, "--epochs", "3")
    assert done.returncode == 0 and done.stdout == want.stdout, done.stderr
    assert "1 break" in done.stderr


@pytest.mark.slow
def test_a_folder_with_a_main_file_is_run(python, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(PROGRAM)
    done = python("-m", "sot", "run", "folder", "-m", "3")
    assert done.returncode == 0 and done.stdout == "arguments ['-m', '3']\n"


def test_the_versions_are_printed(python):
    done = python("-X", "importtime", "-m", "sot", "--version")
    assert done.returncode == 0 and not re.search(r"\| +torch$", done.stderr, re.MULTILINE)      # which takes seconds
    assert done.stdout.startswith(f"sot {sot.__version__}, torch {importlib.metadata.version('torch')}, Python 3.")


@pytest.mark.parametrize(("args", "message"), [
    (("run",), "which program?"),
    (("run", "-m", "no_such.module"), "there is no module no_such.module"),
    (("run", "nowhere.py"), "there is no nowhere.py"),
    (("run", ""), "which program?"),
    (("run", "-m", ".train"), "there is no module .train"),
    (("run", "folder"), "there is no __main__.py in the folder folder"),
    (("run", "--backend", "eagre", "train.py"), "eagre"),
    (("run", "--include", "no such", "train.py"), "include needs a module or its dotted name, not 'no such'"),
    (("run", "--report", "folder", "train.py"), "folder cannot be written: it is a folder"),
    (("run", "--report", "train.py/r.html", "train.py"), "there is no folder train.py, and none can be made"),
    (("check", "--max-breaks", "-1", "train.py"), "the limit of breaks is a number from 0, not -1"),
    (("check", "--min-coverage", "nan", "train.py"), "a percentage from 0 to 100, not nan"),
    (("check", "--sarif", "folder", "train.py"), "folder cannot be written: it is a folder"),
    (("explain", "--call", "model(1)", "train.py"), "--call needs --stages"),
    (("explain", "--stages", "double.py::f"), "f was not called: missing a required argument: 'x'. Give the call"),
    (("explain", "--stages", "double.py::f", "--call", "f("), "--call takes an expression"),
    (("explain", "--stages", "double.py::f", "--call", "torch.ones(3)"), "the call did not reach f"),
    (("diff", "train.py", "train.py"), "train.py is not JSON"),
])
def test_bad_use_is_told_in_a_line(monkeypatch, tmp_path, program, args, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "double.py").write_text("def f(x):\n    return x * 2\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert done.stderr.startswith("sot: ") and message in done.stderr and done.stderr.count("\n") == 1


def test_an_option_that_does_not_exist_is_no_program(monkeypatch, tmp_path, program):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ("run", "--backnd", "eager", program))
    assert done.exit_code == 2 and "No such option: --backnd" in done.stderr and "--backend" in done.stderr


@pytest.mark.parametrize(("init", "error"), [
    ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
    ("raise ValueError('as asked')", "ValueError: as asked"),
])
def test_an_error_of_a_package_is_shown_as_python_does(monkeypatch, tmp_path, init, error):
    (tmp_path / "failing").mkdir()
    (tmp_path / "failing" / "__init__.py").write_text(init)
    (tmp_path / "failing" / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ("run", "-m", "failing.train"))
    file = tmp_path / "failing" / "__init__.py"
    assert done.exit_code == 1 and done.stderr.startswith(
        f'Traceback (most recent call last):\n  File "{file}", line 1, in <module>\n    {init}\n{error}\n')


def test_an_error_of_the_call_whose_stages_are_shown_has_the_users_frames_only(monkeypatch, tmp_path):
    (tmp_path / "double.py").write_text("def f(x):\n    return x.nothing\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ("explain", "--stages", "double.py::f", "--call", "f(torch.ones(3))"))
    assert done.exit_code == 1 and "has no attribute 'nothing'" in done.stderr and "/sot/" not in done.stderr


AS_MAIN = '''
import __main__, os, pickle, sys

def f(x):
    return x * 2

def hook(kind, error, trace):
    print("hook:", kind.__name__, error, trace.tb_frame.f_code.co_filename)

sys.excepthook = hook
os.chdir("/")
print(__file__, __package__, __spec__ and __spec__.name)
print(sys.argv, __main__.f is f, pickle.loads(pickle.dumps(f)) is f, os.path.exists(__file__))
if "-o" in sys.argv:
    sys.exit(("as", "asked"))
1 / 0
'''


@pytest.mark.slow
@pytest.mark.parametrize("args", [("as_main.py",), ("as_main.py", "-o", "--help"),
                                  ("-m", "as_main", "-o", "--backend", "gloo", "--help")])
def test_a_program_is_main_as_in_python(python, tmp_path, args):
    (tmp_path / "as_main.py").write_text(AS_MAIN)
    want, done = python(*args), python("-m", "sot", "run", *args)
    assert done.stdout == want.stdout and done.returncode == want.returncode == 1
    assert done.stderr.startswith(want.stderr + "SOT ")


@pytest.mark.slow
def test_excluded_modules_are_left_alone(python, program):
    done = python("-m", "sot", "run", "--exclude", "__main__", program)
    assert "no graphs, no breaks" in done.stderr


# ---- check, diff ------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_check_accepts_what_is_allowed(python, program):
    done = python("-m", "sot", "check", "--max-breaks", "1", "--max-recompiles", "0", program)
    assert done.returncode == 0 and "ok: train.py" in done.stderr


@pytest.mark.slow
def test_check_names_the_line_of_a_break(python, program):
    done = python("-m", "sot", "check", "--max-breaks", "0", program, GITHUB_ACTIONS="")
    assert done.returncode == 1 and "1 breaks, 0 allowed" in done.stderr and "train.py:7: a branch" in done.stderr


@pytest.mark.slow
def test_check_annotates_on_github_and_wants_a_share_in_graphs(python, program):
    done = python("-m", "sot", "check", "--max-breaks", "0", "--min-coverage", "99", program, GITHUB_ACTIONS="true")
    assert done.returncode == 1 and "99 % wanted" in done.stderr
    assert "::error file=train.py,line=7::a branch depends on the value of a tensor" in done.stderr


@pytest.mark.slow
def test_diff_of_two_reports(python, program, tmp_path, a_run):
    _, before = a_run
    (tmp_path / program).write_text(PROGRAM.replace(BREAK, "if x.shape[0] > 0:"))
    python("-m", "sot", "run", "--report", "after.json", program)
    better, worse = (CliRunner().invoke(app, ["diff", *map(str, both)]) for both in (
        (before, tmp_path / "after.json"), (tmp_path / "after.json", before)))
    assert (better.exit_code, worse.exit_code) == (0, 1)
    assert "breaks: 1 -> 0" in better.stdout and "new: a branch depends" in worse.stdout


# ---- SOT_ENABLE, SOT_REPORT -------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_program_is_translated_without_a_change(python, program):
    done = python(program, SOT_ENABLE="1", SOT_LOG="breaks")
    assert done.stdout == "arguments []\n" and BREAK in done.stderr
    assert python(program, SOT_ENABLE="0", SOT_LOG="breaks").stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("args", [(), ("fail",), ("exit",)])
def test_a_report_is_written_however_the_program_ends(python, program, tmp_path, args):
    done = python(program, *args, SOT_REPORT="out/report.json")
    report = load(tmp_path / "out" / "report.json")
    assert done.returncode == {(): 0, ("fail",): 1, ("exit",): 7}[args]
    assert len(report.graphs) == 2 and report.breaks[0].runs == 3
    assert report.outcome == ("failed: ValueError: as asked" if args == ("fail",) else "finished")


@pytest.mark.slow
def test_a_program_that_is_interrupted_has_a_report_too(python, program, tmp_path):
    (tmp_path / program).write_text(PROGRAM + "raise KeyboardInterrupt")
    assert python(program, SOT_REPORT="r.json").returncode != 0
    report = load(tmp_path / "r.json")
    assert report.outcome == "failed: KeyboardInterrupt: " and len(report.graphs) == 2


WITH_CHILDREN = '''
import multiprocessing
import torch

def double(x):
    return x * 2

def child(x):
    double(x)

if __name__ == "__main__":
    double(torch.ones(3))
    for method in "spawn", "fork":
        worker = multiprocessing.get_context(method).Process(target=child, args=(torch.ones(2, 2),))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
'''


@pytest.mark.slow
def test_the_children_of_a_program_write_no_report_over_its_own(python, tmp_path):
    (tmp_path / "train.py").write_text(WITH_CHILDREN)
    done = python("train.py", SOT_REPORT="r.json")
    assert done.returncode == 0, done.stderr
    report = load(tmp_path / "r.json")
    assert report.program == "train.py" and report.graphs[0].name == "double" and len(report.graphs) == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".json"] == ["r.json"]


@pytest.mark.slow
def test_each_rank_of_a_distributed_program_has_a_report(python, program, tmp_path):
    python(program, SOT_REPORT="r.json", RANK="0")
    python(program, SOT_REPORT="r.json", RANK="1")
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["r-rank1.json", "r.json"]


@pytest.mark.slow
def test_modules_can_be_left_out_by_the_environment(python, program):
    assert "a branch" not in python(program, SOT_ENABLE="1", SOT_LOG="breaks", SOT_EXCLUDE="__main__").stderr


@pytest.mark.slow
def test_a_backend_that_does_not_exist_is_a_warning_and_the_program_runs(python, program):
    done = python(program, SOT_ENABLE="1", SOT_BACKEND="nope")
    assert done.returncode == 0 and done.stdout and "SOT is not enabled" in done.stderr and "nope" in done.stderr


@pytest.mark.slow
def test_only_what_is_included_is_translated(python, program):
    done = python(program, SOT_ENABLE="1", SOT_LOG="all", SOT_INCLUDE="somebody.elses")
    assert done.returncode == 0 and "[sot.graphs]" not in done.stderr
    assert "SOT_INCLUDE: nothing was translated in somebody.elses: the program has imported no such" in done.stderr
    done = python("-m", "sot", "run", "--include", "__main__,somebody.elses", program)
    assert "--include: nothing was translated in somebody.elses: the program has imported no such" in done.stderr
    done = python(program, SOT_ENABLE="1", SOT_LOG="all", SOT_INCLUDE="__main__")
    assert "[sot.graphs]" in done.stderr and "nothing was translated" not in done.stderr


def test_importing_sot_does_not_import_the_translator(python):
    done = python("-c", "import sot, sys; print([m for m in sys.modules if m.startswith(('torch', 'sot.t'))])")
    assert done.stdout == "[]\n"


# ---- the pytest plugin ------------------------------------------------------------------------------------
TESTS = '''
import pytest
import torch
import sot

def broken(x):
    return x + 1 if x.sum() > 0 else x

class Branching(torch.nn.Module):
    def forward(self, x):
        return broken(x)

@pytest.mark.sot(max_breaks=0)
def test_whole():
    torch.sin(torch.ones(3)) + 1

@pytest.mark.sot(max_breaks=0)
def test_broken():
    broken(torch.ones(3))

@pytest.mark.sot(max_breaks=1)
def test_allowed():
    broken(torch.ones(3))

def test_report(sot_report):
    broken(torch.ones(3))
    assert len(sot_report().breaks) == 1

@pytest.mark.sot(max_breaks=0)
def test_module():
    Branching()(torch.ones(3))      # a constant of the test, and an input of the model

@pytest.mark.sot(max_breaks=0)
def test_assertions():
    assert torch.ones(3).add(1).sum() == 6

class TestMethods:
    @pytest.mark.sot(max_breaks=0)
    def test_method(self):
        Branching()(torch.ones(3))

@sot.to_static(backend="eager")
def translated(x):
    return x * 2

@pytest.mark.parametrize("turn", (1, 2))
def test_again(sot_report, turn):
    translated(torch.ones(3))
    assert len(sot_report().graphs) == 1

@pytest.mark.sot(max_brakes=0)
def test_misspelt():
    pass

def test_unmarked():
    assert broken(torch.ones(3)).sum() == 6
'''


@pytest.mark.slow
def test_the_mark_and_the_fixture(python, tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = python("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_it.py")
    assert "1 breaks, 0 allowed" in done.stdout and "max_brakes" in done.stdout
    for name in "whole", "allowed", "report", "unmarked", "assertions", "again[1]", "again[2]":
        assert f"PASSED test_it.py::test_{name}" in done.stdout
    for name in "test_broken", "test_module", "TestMethods::test_method":
        assert f"FAILED test_it.py::{name}" in done.stdout and f"PASSED test_it.py::{name}" not in done.stdout
    assert "ERROR test_it.py::test_misspelt" in done.stdout


@pytest.mark.slow
def test_reports_are_versioned_json(a_run):
    _, report = a_run
    assert json.loads(report.read_text())["version"] == VERSION
