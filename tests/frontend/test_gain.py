"""What capture has given a whole program: counted by the hook, told at exit and in reports."""
import json
import os
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack

import pytest
import torch
from hooked import NET
from rich.console import Console
from whole_programs import enabled_program

import sot
from sot import _hook
from sot.driver.capture_policy import Policy, Work
from sot.driver.gain import tell
from sot.reports.build import report_of
from sot.reports.gain import Gain, LeftOut, Pace, gain_lines
from sot.reports.recording import Recording
from sot.reports.views.page import page
from sot.reports.views.terminal import show
from sot.support.settings import Budget

X = torch.ones(2, 3)


def net():
    """A new class of modules, whose code the hook has not seen."""
    space = {"torch": torch}
    exec(NET + textwrap.dedent("""
        def bookkeeping(x):
            return x + sum([one() for i in range(100)])
        def one():
            return 1
    """), space)
    return space


@pytest.fixture
def program():
    """Makes a whole program for a backend, whose clock stands still, and enables it until the test ends."""
    with ExitStack() as until:
        yield lambda backend: enabled_program(backend, Policy(Budget(), lambda: 0.0, lambda: 0.0, before=0.0), until)


def eager(module, inputs):
    return module.forward


def test_operations_and_times_are_counted(program):
    made, space = program(eager), net()
    before = _hook.operations()
    model = space["Net"]()
    for _ in range(50):
        model(X), space["bookkeeping"](X)
    gain = made.gain()
    operations, captured = (now - then for now, then in zip(_hook.operations(), before, strict=True))
    assert 0.5 < captured / operations < 1
    assert [pace.name.partition(" ")[0] for pace in gain.functions] == ["Net.forward"]
    assert gain.functions[0].calls > 30 and gain.functions[0].captured > 0 and gain.functions[0].plain > 0
    assert any("bookkeeping" in left.name and "mostly Python" in left.reason for left in gain.left_out)


def test_what_loses_is_run_by_python_again(program):
    def slow(module, inputs):
        def run(*args):
            time.sleep(0.01)
            return module.forward(*args)
        return run

    made, space = program(slow), net()
    model = space["Net"]()
    for _ in range(100):
        model(X)
    code = space["Net"].forward.__code__
    assert _hook.get_entries(code) and _hook.is_skipped(code, made.callback)
    assert any(left.reason == "Python ran it faster than the captured code" for left in made.gain().left_out)


def test_a_layer_that_is_translated_elsewhere_is_decided_on_like_any_other(program):
    layer = sot.to_static(torch.nn.Linear(3, 3), backend="eager")
    layer(X)
    assert _hook.get_entries(torch.nn.Linear.forward.__code__)
    made, model = program(eager), net()["Net"]()
    for _ in range(50):
        model(X)
    assert [capture.name for capture in made.translator.captures] == ["Net.forward"]


def test_calls_that_are_compared_are_calls_of_the_same_kind(program):
    made, space = program(eager), net()
    model, code = space["Net"](), space["Net"].forward.__code__
    with torch.no_grad():
        for _ in range(4):
            model(X)
    (before, _, _), _ = _hook.times_of(code)
    assert before == 3          # of the first call there is no time
    for _ in range(60):
        model(X)
    (plain, least, total), (captured, _, _) = _hook.times_of(code)
    assert _hook.get_entries(code) and plain == 4 and 0 < least <= total / 4    # Python ran four that an entry fitted
    assert captured >= 40 and captured in [pace.calls for pace in made.gain().functions]


GAIN = Gain(1000, 900, 1.5, 20.0, [Pace("Net.forward (a.py:3)", 100, 0.01, 0.03)],
            [LeftOut("collate (b.py:7)", 60, Work(4, 4, 0, 900, 0, False).why_poor)], ["f", "g", "h", "i"])
LINES = ["SOT: 90% of 1,000 tensor operations ran in captured code; capture took 1.5 s of 20.0 s",
         "  captured calls were 2.0 s faster than in Python:",
         "    Net.forward (a.py:3): 10.00 ms a call, 30.00 ms in Python, 100 calls",
         "  left to Python:",
         "    collate (b.py:7), 60 operations: mostly Python: 225 function calls for each tensor operation",
         "  not captured for want of budget (SOT_BUDGET): f, g, h and 1 more"]


def test_the_lines(capsys):
    assert [*gain_lines(GAIN)] == LINES
    tell(GAIN)
    assert capsys.readouterr().err.splitlines() == LINES
    tell(Gain(100, 0, 0.0, 3.0))
    assert capsys.readouterr().err == ""        # a program of which nothing was captured is told nothing


def test_reports_have_it():
    recording = Recording("a.py").start().stop()
    recording.gain = lambda: GAIN
    report = report_of(recording)
    console = Console(width=200)
    with console.capture() as shown:
        show(report, console)
    assert all(line.strip() in page(report) and line.strip() in shown.get() for line in LINES)
    assert json.loads(report.to_json())["gain"]["captured"] == 900


@pytest.mark.slow
def test_nothing_is_told_where_there_is_no_terminal():
    done = subprocess.run([sys.executable, "-c", "import torch; torch.ones(2) + 1"], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "SOT_ENABLE": "1", "SOT_BUDGET": ""})
    assert (done.stdout, done.stderr) == ("", "")
