"""The first advice: what to change so that a loss goes away, or nothing where no change would win time."""
import functools
import importlib
import sys
import time

import pytest
import torch

import sot
from sot.frontend.global_mode import enable_all
from sot.reports.advice import all_losses, first_change, is_small
from sot.reports.build import report_of
from sot.reports.model import Function, Line
from sot.reports.packages import Packages
from sot.reports.recording import Recording, recorded
from sot.support.errors import NOTHING
from sot.support.places import Place

pytestmark = pytest.mark.usefixtures("fresh")
X = torch.ones(4, 3)


def recompiled(f, *calls):
    """The report of several calls, and the remedy of its only recompile."""
    f, recording = sot.to_static(f, backend="eager"), Recording("calls")
    with recorded(recording):
        for args in calls:
            f(*args)
    report = report_of(recording)
    recompile, = report.recompiles
    return report, recompile.remedy


def test_a_size_that_varies_is_to_be_marked_and_then_the_loss_is_gone():
    def f(x, y):
        return x * 2 + y

    long = torch.ones(9, 3)
    report, remedy = recompiled(f, (X, 1), (long, 1))
    assert "sot.mark_dynamic(x, 0)" in remedy and "x, 1" not in remedy
    assert first_change(report).remedy == remedy

    marked = torch.ones(4, 3)
    sot.mark_dynamic(marked, 0)
    recording = Recording("marked")
    with recorded(recording):
        f = sot.to_static(lambda x, y: x * 2 + y, backend="eager")
        f(marked, 1), f(long, 1)
    assert report_of(recording).recompiles == []


class Holder:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize(("name", "f", "calls", "text"), [
    ("type", lambda x, n: x * n, [(X, 0), (X, 1.5)], "give n the same type"),
    ("string", lambda x, n: x * (2 if n == "a" else 3), [(X, "a"), (X, "b")], "keep n the same"),
    ("length", lambda x, n: x * len(n), [(X, [1]), (X, [1, 2, 3])], "keep the length of n the same"),
    ("keys", lambda x, n: x * sum(n.values()), [(X, {"a": 1}), (X, {"b": 1})], "keep the keys of n the same"),
    ("dtype", lambda x, n: x * 2, [(X, 0), (X.double(), 0)], "pass x with the same dtype"),
    ("key", lambda x, n: x * (2 if "a" in n else 3), [(X, {}), (X, {"a": 1})], "n"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_remedy_names_the_value_and_what_about_it_has_to_stay(name, f, calls, text):
    report, remedy = recompiled(f, *calls)
    assert text in remedy and not remedy.startswith(NOTHING)


@pytest.mark.parametrize(("name", "f", "calls"), [
    ("number", lambda x, n: x * n, [(X, 2), (X, 3)]),
    ("made by the first call", lambda x, h: x * 2 if h.value is None else x + h.value, [
        (X, Holder(None)), (X, Holder(torch.ones(3)))]),
    ("size one", lambda x, n: x * 2, [(X, 0), (torch.ones(7, 3), 0), (torch.ones(1, 3), 0)][1:]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_recompile_that_no_change_avoids_is_no_advice(name, f, calls):
    if name == "size one":
        sot.mark_dynamic(calls[0][0], 0)
    report, remedy = recompiled(f, *calls)
    assert any(loss.remedy == remedy for loss in all_losses(report))
    assert remedy.startswith(NOTHING) and getattr(first_change(report), "remedy", "") != remedy


def test_grad_mode_needs_a_graph_for_each_state():
    f, recording = sot.to_static(lambda x: x * 2, backend="eager"), Recording("modes")
    with recorded(recording):
        f(X)
        with torch.no_grad():
            f(X)
    recompile, = report_of(recording).recompiles
    assert recompile.remedy.startswith(NOTHING)


# ---- libraries --------------------------------------------------------------------------------------------
LIBRARY = """
import time

def trained(step, counts):
    for count in counts:
        held = Holder(count)
        step(held.x)
        for _ in range(2):
            time.sleep(0.02)
            held.x = held.x.sin()

class Holder:
    def __init__(self, count):
        import torch
        self.x = torch.ones(count, 3)

def slept(x):
    time.sleep(0.02)
    return x.cos()
"""


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """An installed library with a loop that calls the user's function, and that breaks and recompiles."""
    (tmp_path / "site-packages" / "trainer").mkdir(parents=True)
    (tmp_path / "site-packages" / "trainer" / "__init__.py").write_text("")
    (tmp_path / "site-packages" / "trainer" / "loops.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    yield importlib.import_module("trainer.loops")
    for name in ("trainer", "trainer.loops"):
        del sys.modules[name]


def users_step(x):
    return torch.sin(x) + 1


def report_of_program(run, exclude=()):
    recording = Recording("program")
    with enable_all(backend="eager", exclude=exclude), recorded(recording):
        run()
    return report_of(recording)


def test_a_library_in_which_captures_begin_is_to_be_excluded_and_then_its_loss_is_gone(trainer):
    run = functools.partial(trainer.trained, users_step, (2, 3, 4))
    first = first_change(report_of_program(run))
    assert "captures begin in trainer, a library" in first.what and "--exclude trainer " in first.remedy
    assert (first.line.file, first.line.function) == (__file__, "report_of_program")
    after = report_of_program(run, exclude=["trainer"])
    assert not [loss for loss in all_losses(after) if "library" in loss.what]
    assert {graph.name for graph in after.graphs} == {"users_step"}


def test_a_package_with_the_model_is_not_to_be_excluded(trainer):
    scope = Function(name="Model.forward", line=Line(trainer.__file__, 1, "Model.forward"), captures=1, graphs=1,
                     breaks=0, in_graphs=1, in_python=0)
    place = Place(trainer.__file__, 4, "trained")
    assert Packages([]).of("trained", place) == "trainer"
    assert Packages([scope]).of("trained", place) == ""
    assert Packages([]).of("Model.forward", place) == ""
    assert Packages([]).of("run", Place(__file__, 1, "run")) == ""


def test_a_break_in_a_library_that_the_users_function_calls_has_the_users_line(trainer):
    def run():
        y = trainer.slept(torch.sin(torch.ones(3)))
        return y * 2

    first = first_change(report_of_program(run))
    assert (first.line.file, first.line.source) == (__file__, "y = trainer.slept(torch.sin(torch.ones(3)))")
    assert "in slept (trainer/loops.py:" in first.what


def test_a_break_in_code_without_tensor_operations_is_no_loss():
    def prepare():
        time.sleep(0.05)

    def run():
        prepare()

    report = report_of_program(run)
    assert report.idle and report.lost == 0
    assert all(is_small(report, b) for b in report.idle) and first_change(report) is None


def test_operations_outside_of_functions_are_to_be_moved_into_one():
    recording = Recording("script")
    with recorded(recording):
        exec(compile("for _ in range(300):\n    x = x * 1.01 + 1\n", __file__, "exec"), {"x": torch.ones(300, 300)})
    first = first_change(report_of(recording))
    assert "600 tensor operations outside of functions" in first.what and "into a function" in first.remedy


def test_guards_that_were_checked_once_cannot_be_checked_less_often():
    def doubled(x):
        return x * 2

    def losses(calls):
        with recorded(Recording("calls")) as recording:
            translated = sot.to_static(doubled, backend="eager")
            for _ in range(calls):
                translated(torch.ones(3))
        return [loss.what for loss in all_losses(report_of(recording))]
    assert losses(1) == []
    assert [what.partition(" of ")[0] for what in losses(20)] == ["checking the guards"]
