"""What explain(fn)(*args) tells, as data and as the report that print shows."""

import copy
import threading

import pytest
import torch
from harness import Counter
from torch import nn
from translating import X, scale

import sot
from sot.frontend.inspection import Explanation
from sot.guards.guards import EqualsGuard, SameGuard, TypeGuard
from sot.guards.origin import Arg, Attr, CellContents, Global, Item, known
from sot.reports import lines as report
from sot.reports.records import BreakRecord, Capture, GraphRecord, GuardRecord, RecompileReason
from sot.reports.wording import said
from sot.support.errors import Reason
from sot.support.places import Place

pytestmark = pytest.mark.usefixtures("fresh")


def two_breaks(x):
    y = torch.sin(x) * 2
    if y.mean() > 0:
        y = y + 1
    largest = max(y.flatten().tolist())
    return torch.relu(y) / largest


TWO = torch.linspace(-1, 2, 12).reshape(3, 4)


# ---- the data -------------------------------------------------------------------------------------------


def test_a_function_without_breaks():
    explanation = sot.explain(scale)(X, k=3)
    assert torch.equal(explanation.result, scale(X, 3))
    assert [g.operations for g in explanation.graphs] == [2] and len(explanation.captures) == 1
    assert explanation.breaks == explanation.fallbacks == []
    assert {str(g) for g in explanation.guards} >= {"k == 3", "x is a float32 tensor of shape (3,) on cpu"}
    assert explanation.graphs[0].place.file.endswith("translating.py")


def test_a_function_with_two_breaks():
    explanation = sot.explain(two_breaks)(TWO)
    assert torch.equal(explanation.result, two_breaks(TWO))
    assert [b.place.source for b in explanation.breaks] == [
        "if y.mean() > 0:", "largest = max(y.flatten().tolist())"]
    assert [b.reason for b in explanation.breaks] == [Reason.TENSOR_TRUTH, Reason.TENSOR_VALUE]
    assert len(explanation.graphs) == 3


def test_seconds_are_by_stage_and_add_up():
    explanation = sot.explain(two_breaks)(TWO)
    seconds = dict(explanation.seconds)
    total = seconds.pop("total")
    assert {"execute", "backend", "emit"} <= seconds.keys()
    assert total == pytest.approx(sum(seconds.values())) and 0 < total <= explanation.elapsed


def test_modules_plain_and_translated():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    plain = sot.explain(model)(X)
    assert model._compiled_call_impl is None
    backend = Counter()
    translated = sot.explain(sot.to_static(model, backend=backend))(X)
    assert len(plain.graphs) == len(translated.graphs) == len(backend.graphs) == 1
    assert plain.name == translated.name == "Sequential"
    assert len(plain.guards) == len(translated.guards)


def test_methods_of_translated_classes_and_bound_methods():
    class Holder:
        k = 2

        @sot.to_static
        def method(self, x):
            return x.relu() * self.k

    for method in (Holder().method, Holder.method.__get__(Holder())):
        assert torch.equal(sot.explain(method)(X).result, scale(X))
    assert len(sot.explain(Holder().method)(X).graphs) == 1


def test_a_first_call_is_shown_whatever_was_captured_before_and_nothing_is_left():
    backend = Counter()
    translated = sot.to_static(scale, backend=backend)
    translated(X)
    captures = list(translated.captures)
    assert [len(sot.explain(fn)(X).graphs) for fn in (scale, translated, translated)] == [1, 1, 1]
    assert len(backend.graphs) == 3 and translated.captures == captures
    translated(X)
    assert len(backend.graphs) == 3


def test_breaks_are_shown_even_where_they_are_refused(monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")
    explanation = sot.explain(sot.to_static(two_breaks, full_graph=True))(TWO)
    assert len(explanation.breaks) == 1     # the branch is in the graph


@pytest.mark.parametrize("settings", [{"full_graph": True}, {"control_flow": "graph"}, {"data_sizes": "break"}],
                         ids=str)
def test_an_explanation_has_the_settings_of_the_translation(settings):
    def doubled(x):
        if x.sum() > 0:
            x = x * 2
        return x + 1

    def selected(x):
        return x[x > 0] * 2

    branch, sizes = (sot.explain(sot.to_static(f, backend="eager", **settings))(TWO) for f in (doubled, selected))
    assert len(branch.breaks) == ("data_sizes" in settings) and len(sizes.breaks) == ("data_sizes" in settings)


def test_the_input_spec_holds_here_too():
    with pytest.raises(sot.SotError, match="argument 'x'"):
        sot.explain(sot.to_static(scale, input_spec=[sot.InputSpec([4])]))(X)


def test_exceptions_of_the_program_are_its_own():
    def failing(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        sot.explain(failing)(X)
    assert not hasattr(raised.value, "__notes__")


def test_the_reason_of_a_fallback_is_shown_at_every_explanation(monkeypatch):
    def fail(*args):
        raise RuntimeError("a defect")

    monkeypatch.setattr("sot.driver.pipeline.build_graph", fail)
    for _ in range(2):
        explanation = sot.explain(scale)(X)
        assert torch.equal(explanation.result, scale(X)) and explanation.graphs == explanation.breaks == []
        assert [c.stopped.reason for c in explanation.fallbacks] == [Reason.INTERNAL]
        assert "Run by Python" in str(explanation) and "a defect" in str(explanation)


def test_a_defect_without_a_text_does_not_reach_the_program(monkeypatch):
    class Mute(Exception):
        def __str__(self):
            raise AttributeError("released")

    def fail(*args):
        raise Mute

    monkeypatch.setattr("sot.driver.pipeline.build_graph", fail)
    explanation = sot.explain(scale)(X)
    assert torch.equal(explanation.result, scale(X))
    assert [c.stopped.reason for c in explanation.fallbacks] == [Reason.INTERNAL] and "Mute" in str(explanation)


@pytest.mark.parametrize("target", [3, nn.Linear, "scale", None])
def test_what_cannot_be_called_is_refused(target):
    with pytest.raises(TypeError, match="explain needs"):
        sot.explain(target)


# ---- the report -----------------------------------------------------------------------------------------

FIRST = two_breaks.__code__.co_firstlineno
HERE = Place(__file__, FIRST + 2, "two_breaks")
CALLER = Place(__file__, FIRST + 1, "caller")


def graph():
    traced = torch.fx.symbolic_trace(lambda x: x + 1)
    return GraphRecord("two_breaks", traced, 1, HERE)


def explanation(**capture):
    return Explanation("two_breaks", None, [Capture("two_breaks", HERE, **capture)], 0.25)


def test_the_report_of_two_breaks_names_lines_reasons_and_remedies():
    text = str(sot.explain(two_breaks)(TWO))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith("two_breaks: 3 graphs, ") and ", 2 breaks, " in lines[0]
    assert f"1. two_breaks: 4 operations, 1 input, from {report.at(HERE).replace(':', f':{FIRST + 1}-', 1)}" in lines
    for title in ("Graphs", "Breaks", "Guards", "Times"):
        assert title in lines
    assert "1. a branch depends on the value of a tensor" in lines
    assert f"at {report.at(HERE)}" in lines
    assert "if y.mean() > 0:" in lines
    assert f"to fix it: {Reason.TENSOR_TRUTH.hint}" in lines
    assert "called from" not in text and "\x1b" not in text


def test_the_report_of_a_break():
    record = BreakRecord(Reason.TENSOR_TRUTH, "", HERE, (CALLER, HERE))
    text = str(explanation(stopped=record))
    assert f"""
Breaks
  1. a branch depends on the value of a tensor
     at {report.at(HERE)}
         if y.mean() > 0:
     called from
         {report.at(CALLER)}: {CALLER.source}
     to fix it: {Reason.TENSOR_TRUTH.hint}
""" in text


def test_equal_breaks_are_shown_once_with_their_number():
    records = [BreakRecord(Reason.USER_BREAK, "", HERE)] * 3
    lines = list(report.breaks_lines(records))
    assert lines[0] == "  1. sot.graph_break() was called (x3)" and sum("1." in line for line in lines) == 1


def test_deep_call_stacks_are_cut():
    stack = tuple(Place("nowhere.py", i, "fn") for i in range(20))
    lines = list(report.break_lines(BreakRecord(Reason.USER_BREAK, "", stack[-1], stack)))
    assert lines[-2] == "    ... and 13 more" and "    nowhere.py:18 in fn" in lines


def test_a_frame_that_python_runs_is_as_loud_as_a_break():
    stop = BreakRecord(Reason.TOO_LONG, "400", HERE)
    found = explanation(stopped=stop, fallback=True)
    assert found.breaks == [] and len(found.fallbacks) == 1
    assert "because the capture exceeds 400 instructions" in str(found) and "to fix it: shorten" in str(found)
    idle = [Capture(name, HERE, stopped=BreakRecord(Reason.NOTHING_CAPTURED, "", HERE), fallback=True)
            for name in ("one", "two")]
    assert list(report.fallbacks_lines(idle)) == ["  and 2 functions without a tensor operation: one, two"]


def test_a_second_capture_says_which_guard_failed():
    assert f"""
Recompiled
  1. two_breaks, at {report.at(HERE)}
     expected k == 1, got 2
""" in str(explanation(recompile_reasons=[RecompileReason("expected k == 1, got 2", None)]))


@pytest.mark.slow
def test_the_graph_is_shown_with_its_operations_and_in_full_if_verbose():
    found = explanation(graph=graph())
    assert f"  1. two_breaks: 1 operation, 1 input, from {report.at(HERE)}" in str(found)
    assert "def forward" not in str(found) and "def forward" in found.text(verbose=True)


ARG, SELF = Arg(0, "x"), Arg(1, "self")


@pytest.mark.parametrize(
    ("origin", "group"),
    [
        (ARG, "arguments and variables"),
        (Item(Arg(2, "__stack_1"), 0), "values computed by a statement before it breaks"),
        (Item(Attr(ARG, "rows"), 0), "contents of arguments and variables"),
        (SELF, "modules, their parameters and attributes"),
        (Attr(Item(Attr(SELF, "_modules"), "linear"), "weight"), "modules, their parameters and attributes"),
        (CellContents(ARG, "k"), "closure variables"),
        (Attr(Global(known({}, "globals"), "config"), "k"), "global variables"),
        (Item(known({}, "globals"), "config"), "global variables"),
        (Attr(known(nn.Linear, "Linear"), "bias"), "classes and libraries"),
        (None, "torch's state"),
    ],
)
def test_guards_are_grouped_by_what_they_protect(origin, group):
    modules = {SELF}
    assert report.group_of(EqualsGuard(origin, 1), modules) == group


def guard_records(number):
    yield GuardRecord(TypeGuard(SELF, nn.Linear), "f.py", 1)
    yield GuardRecord(SameGuard(ARG, SELF, same=False), "f.py", 1)
    for i in range(number):
        yield GuardRecord(EqualsGuard(Attr(SELF, f"size_{i}"), i), "f.py", 1)


def test_long_groups_are_cut_unless_verbose_and_equal_guards_are_counted():
    records = list(guard_records(20))
    assert list(report.grouped(records)) == ["modules, their parameters and attributes", "arguments and variables"]
    lines = list(report.guards_lines(records))
    assert lines[0] == "  modules, their parameters and attributes (21)" and "    ... and 13 more" in lines
    assert len(lines) == 12
    assert len(list(report.guards_lines(records, verbose=True))) == 24
    assert any(line.endswith("(x2)") for line in report.guards_lines(records * 2))


def test_the_repr_is_one_line_and_values_are_left_out_of_it():
    found = Explanation("fn", "a huge result", [], 0.0)
    assert repr(found) == "<Explanation of fn: no graphs, no operations, no breaks, no guards, captured in 0.0 ms>"
    assert "No function of the program ran" in str(found)
    assert copy.copy(found) == found


def test_guards_name_the_users_line_also_where_code_of_ours_stands_in():
    """zero_grad and clip_grad_norm_ are read as Python of ours."""
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss
    translated = sot.to_static(step, backend="eager")
    translated(torch.ones(2, 3))
    places = {guard.file for capture in translated.captures for guard in capture.guards}
    ours = sot.__file__.rpartition("/")[0]
    assert __file__ in places and not any(place.startswith(ours) for place in places)


def test_names_of_libraries_are_counted_and_listed_on_demand():
    class Scale:
        by = 2

    def fn(x):
        return x.sin() * Scale.by

    explanation = sot.explain(fn)(torch.ones(2))
    short, long = str(explanation), explanation.text(verbose=True)
    assert "Tensor" not in short.replace("float32 tensor", "").partition("Guards")[2].partition("Times")[0]
    assert "on names of libraries that could be replaced" in short and "Scale" in short
    assert "'sin' is not in Tensor.__dict__" in long


factor, LOCK = 3, threading.Lock()


def test_globals_have_the_names_by_which_a_program_knows_them():
    def scaled(x):
        with LOCK:
            return x * factor

    page = str(sot.explain(scaled)(torch.ones(2)))
    assert f"{__name__}.factor == 3" in page and f"the context manager {__name__}.LOCK is not Python code" in page
    assert "globals[" not in page and "__stack" not in page
    assert said("__main__ globals['a'].b[0] == 1", {}) == "a.b[0] == 1"


def test_a_value_before_a_jump_has_no_name_of_code_that_did_not_run():
    def stops(x):
        for i in range(3):
            x = x + 1
            if x.sum() > 100 + i:
                break
        return x

    translated = sot.to_static(stops, backend="eager")
    for start in 1, 50, 33:
        translated(torch.full((3,), float(start)))
    reasons = [cause for c in translated.captures for cause in map(str, c.recompile_reasons)]
    assert reasons and not any("break yields" in r.replace("the break yields", "") for r in reasons)
