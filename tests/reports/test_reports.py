"""The data of a report, its JSON, its page, and what differs between two."""
import copy
import json
import os

import pytest
import torch
from translating import X, scale

import sot
from sot.reports import lines, wording
from sot.reports.build import report_of
from sot.reports.model import ReportError, load
from sot.reports.recording import Recording, recorded
from sot.reports.scopes import scope_of
from sot.reports.views.compare import compare
from sot.reports.views.page import folds, page, percent
from sot.reports.views.timeline import captures
from sot.support.places import shortened

pytestmark = pytest.mark.usefixtures("fresh")


def breaks_once(x):
    y = torch.sin(x) * 2
    if y.mean() > 0:
        y = y + 1
    return torch.relu(y)


def outer(x):
    return breaks_once(x) + 1


UP, DOWN = torch.ones(3), -torch.ones(3)


@pytest.fixture
def report():
    return sot.explain(outer)(UP).report


def line(text):
    """The number of the line of this file that is ``text``."""
    with open(__file__) as file:
        return next(i for i, found in enumerate(file, 1) if found.strip() == text)


# ---- what is in it ----------------------------------------------------------------------------------------
def test_a_function_that_is_captured_whole_has_all_its_operations_in_graphs():
    report = sot.explain(scale)(X, k=3).report
    assert report.coverage == 1 and report.in_graphs == 2 and report.breaks == []
    assert [o.name for o in report.graphs[0].operations] and report.outcome == "finished"


def test_an_operation_that_python_runs_is_counted_at_its_line(report):
    # after the break bool() is Python's; the comparison before it is in the first graph
    assert report.in_graphs == 7 and report.in_python == 1
    lines = {s.number: s for f in report.files for s in f.lines}
    assert (lines[line("if y.mean() > 0:")].state, lines[line("if y.mean() > 0:")].in_python) == ("break", 1)
    assert lines[line("y = torch.sin(x) * 2")].state == "graph"
    assert lines[line("y = torch.sin(x) * 2")].in_graphs == 2


def test_an_operation_within_the_standard_library_counts_for_the_line_that_called_it():
    recording = Recording("copies")
    with recorded(recording):
        copy.deepcopy(UP)
    report = report_of(recording)
    assert report.in_python > 0 and [file.path for file in report.files] == [__file__]
    assert [s.text.strip() for s in report.files[0].lines if s.in_python] == ["copy.deepcopy(UP)"]


def test_a_break_has_its_line_its_callers_and_a_remedy(report):
    found, = report.breaks
    assert found.line.source == "if y.mean() > 0:" and found.line.function == "breaks_once"
    assert [place.function for place in found.stack] == ["outer", "breaks_once"]
    assert found.hint and found.reason == "TENSOR_TRUTH" and (found.captures, found.runs) == (1, 1)


def test_runs_are_counted():
    f = sot.to_static(outer, backend="eager")
    recording = Recording("five calls")
    with recorded(recording):
        for _ in range(5):
            f(UP)
    report = report_of(recording)
    assert [g.runs for g in report.graphs] == [5, 5] and report.breaks[0].runs == 5
    assert report.in_graphs == 35 and report.in_python == 5


def test_without_a_recording_nothing_is_counted():
    f = sot.to_static(outer, backend="eager")
    f(UP)
    recording = Recording("too late")
    with recorded(recording):
        torch.sin(UP)
    assert report_of(recording).graphs == [] and recording.in_python.operations.total() == 1


def test_the_backward_pass_is_nobodys_operation():
    def chain(x, length):
        for _ in range(length):
            x = torch.sin(x)
        return x

    counts = []
    for length in 1, 20:
        result, recording = chain(X.clone().requires_grad_(), length).sum(), Recording("backward")
        with recorded(recording):
            result.backward()
        counts.append(recording.in_python.operations.total())
    assert counts[0] == counts[1]


def test_an_explain_inside_of_a_recording_is_part_of_it():
    recording = Recording("outside")
    with recorded(recording):
        torch.sin(UP)
        sot.explain(scale)(X)
        torch.sin(UP)
    assert len(recording.captures) == 1 and recording.in_python.operations.total() == 2


def test_a_new_capture_says_why():
    f = sot.to_static(scale, backend="eager")
    recording = Recording("twice")
    with recorded(recording):
        f(torch.ones(3))
        f(torch.ones(3, dtype=torch.float64))
    again, = report_of(recording).recompiles
    assert again.name == "scale" and "float64" in again.causes[0]


def test_a_failure_is_the_outcome():
    recording = Recording("fails")
    with pytest.raises(ZeroDivisionError), recorded(recording):
        1 / 0
    assert report_of(recording).outcome == "failed: ZeroDivisionError: division by zero"


def test_the_time_of_capture_is_laid_out_in_order(report):
    starts = [stage.start for stage in report.stages]
    assert starts == sorted(starts) and starts[0] >= 0
    assert {s.stage for s in report.stages} == {"execute", "backend", "emit"}


class Gate:
    def forward(self, x):
        y = torch.sin(x)
        if y.sum() > 0:
            y = y * 2
        return y


class Gates:
    def forward(self, x):
        with torch.no_grad():
            y = x.cos()
        gate = Gate()
        return gate.forward(gate.forward(y))


def test_operations_and_breaks_count_for_the_function_that_has_them_and_not_for_its_caller():
    report = sot.explain(Gates().forward)(UP).report
    found = {f.name: (f.in_graphs, f.in_python, f.breaks, f.captures > 0) for f in report.functions}
    # after each break bool() is Python's; the comparison before it is in the graph
    assert found == {"Gates.forward": (1, 0, 0, True), "Gate.forward": (8, 2, 1, False)}
    assert report.in_graphs == 9 and report.in_python == 2


def test_changes_of_torchs_state_are_no_operations():
    report = sot.explain(Gates().forward)(UP).report
    assert not [o for graph in report.graphs for o in graph.operations if "grad_enabled" in o.name]


def test_the_rest_of_another_function_is_not_a_new_capture():
    report = sot.explain(Gates().forward)(UP).report
    assert report.recompiles == []


def test_what_is_said_of_the_rest_of_a_function_has_the_names_of_the_program():
    def inner(x, factor):
        sot.graph_break()
        return x * factor

    def outside(x, factor):
        return inner(x, factor) + 1

    f, recording = sot.to_static(outside, backend="eager"), Recording("names")
    with recorded(recording):
        f(UP, "abc" == 1 or 2)
        f(UP.double(), 3)
    report = report_of(recording)
    text = report.to_json()
    assert "__call" not in "".join(c for r in report.recompiles for c in r.causes)
    assert "inner's x is a float32 tensor of shape (3,) on cpu" in text
    assert not [g.sentence for g in report.guards if "__call" in g.sentence or "__stack" in g.sentence]
    assert {r.begins.source for r in report.recompiles if r.begins} == {"return x * factor"}


def test_values_of_tensors_are_not_printed_for_a_report():
    table, other = {"weight": torch.randn(40)}, {"weight": torch.randn(41)}
    f = sot.to_static(lambda x, t: x if t["weight"] is None else x * 2, backend="eager")
    recording = Recording("misses")
    with recorded(recording):
        f(UP, table)
        f(UP, {"weight": None})
        f(UP, other)
    assert recording.in_python.operations.total() == 0
    assert "a float32 tensor of shape (41,) on cpu" in "".join(report_of(recording).recompiles[-1].causes)


# ---- JSON -------------------------------------------------------------------------------------------------
def test_json_comes_back_as_it_went(report, tmp_path):
    report.save(tmp_path / "r.json")
    assert load(tmp_path / "r.json") == report


@pytest.mark.parametrize(("text", "message"), [
    ("{", "is not JSON"), ("[]", "is not a report of version 4"), ('{"version": 9}', "but of 9"),
    ('{"version": 4}', "is not a complete report"),
])
def test_what_is_no_report_is_refused(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ReportError, match=message):
        load(tmp_path / "x.json")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ReportError, match="cannot be read"):
        load(tmp_path / "none.json")


def test_json_has_nothing_but_json(report):
    assert json.loads(report.to_json())["version"] == 4


# ---- the page ---------------------------------------------------------------------------------------------
def test_the_page_needs_nothing_else():
    text = page(sot.explain(scale)(X).report)
    assert "http://" not in text and "https://" not in text and "<link" not in text and "src=" not in text


def test_the_page_says_what_broke(report):
    text = page(report)
    for wanted in ("To fix it:", "a branch depends on the value of a tensor", "breaks_once", "87 %"):
        assert wanted in text


def test_source_is_text_and_not_markup():
    def f(x):
        return x + 1 if "<script>alert(1)</script>" else x
    assert "<script>alert(1)" not in page(sot.explain(f)(UP).report)


def test_what_is_far_from_any_operation_is_folded_in_the_source(report):
    source, = report.files
    pieces = list(folds(source))
    assert [line.number for _, lines in pieces for line in lines] == [line.number for line in source.lines]
    assert not any(line.state for folded, lines in pieces if folded for line in lines)
    assert any(folded for folded, _ in pieces) and not source.library


def test_the_timeline_has_the_longest_captures_in_their_order(report, monkeypatch):
    rows, others = captures(report)
    mine = [row["line"].source for row in rows if row["line"].file == __file__]
    assert mine == ["y = torch.sin(x) * 2", "y = y + 1"] and others == 0
    monkeypatch.setattr("sot.reports.views.timeline.CAPTURES_SHOWN", 1)
    (longest,), others = captures(report)
    assert longest["seconds"] == max(row["seconds"] for row in rows) and others == len(rows) - 1


def test_files_of_packages_are_named_from_where_packages_are():
    folder = "/usr/lib/python3.11/site-packages"
    assert shortened(f"{folder}/transformers/models/bert.py") == "transformers/models/bert.py"
    assert shortened("/home/somebody/train.py") == "/home/somebody/train.py"


@pytest.mark.parametrize(("line", "name"), [(1, "<module>"), (3, "f"), (4, "f"), (5, "f.g"), (7, "f"), (9, "C.m")])
def test_a_line_belongs_to_the_innermost_function(tmp_path, line, name):
    file = tmp_path / "m.py"
    file.write_text("import torch\n\n@cache\ndef f(x):\n    def g(): pass\n\n    return [y for y in x]\n"
                    "class C:\n    m2 = 1\n".replace("m2 = 1", "def m(self): return lambda: 1"))
    assert scope_of(str(file), line, "?").name == name
    assert scope_of("<no file>", 7, "h").name == "h"


def test_an_empty_report_has_a_page():
    recording = Recording("nothing")
    with recorded(recording):
        pass
    assert "No function of the program ran" in page(report_of(recording))


def test_a_share_is_rounded_down():
    assert percent(0.9999) == "99 %" and percent(1.0) == "100 %" and percent(None) == "–"


# ---- two reports ------------------------------------------------------------------------------------------
def test_the_same_program_twice_does_not_differ(report):
    assert list(compare(report, sot.explain(outer)(UP).report)) == []


def test_a_new_break_is_worse():
    whole, broken = sot.explain(scale)(X).report, sot.explain(breaks_once)(UP).report
    worse = {d.text.split(" at ")[0]: d.worse for d in compare(whole, broken)}
    assert worse["breaks: 0 -> 1"] is True and worse["new: a branch depends on the value of a tensor"] is True
    assert worse["operations in graphs: 100 % -> 85 %"] is True


def test_a_break_that_is_gone_is_better():
    whole, broken = sot.explain(scale)(X).report, sot.explain(breaks_once)(UP).report
    assert not any(d.worse for d in compare(broken, whole))


# ---- assert_captured --------------------------------------------------------------------------------------
def test_assert_captured_answers_the_result():
    assert torch.equal(sot.assert_captured(scale, X, k=3), scale(X, 3))


def test_assert_captured_shows_what_broke():
    with pytest.raises(AssertionError, match="(?s)outer is not captured as a whole: 1 break.*if y.mean"):
        sot.assert_captured(outer, UP)
    sot.assert_captured(outer, UP, max_breaks=1)


def test_what_is_captured_by_assertion_is_captured_by_full_graph():
    def opens(x):
        open("/dev/null").close()       # two breaks, before any operation
        return x + 1

    with pytest.raises(AssertionError, match="opens is not captured as a whole: 2 breaks\n"):
        sot.assert_captured(opens, X)
    with pytest.raises(sot.SotError, match="open"):
        sot.to_static(opens, full_graph=True, backend="eager")(X)


def test_assert_captured_wants_a_graph():
    with pytest.raises(AssertionError, match="there is no graph"):
        sot.assert_captured(lambda a: a + 1, 2)


# ---- names ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("sentence", "said"), [
    ("expected __stack_0 == 3, got 4", "expected a value computed before the break == 3, got 4"),
    ("expected __stack_1[0].shape[1] == 3, got 4",
     "expected [0].shape[1] of a value computed before the break == 3, got 4"),
    ("expected __stack_1.shape[1] == 3, got 4", "expected shape[1] of a value computed before the break == 3, got 4"),
    ("expected __call[4]['a[0]'] == 3, got 4",
     "expected a value of the function that continues after the break == 3, got 4"),
    ("expected __call[4] == 3, got 4", "expected a value of the function that continues after the break == 3, got 4"),
    ("expected __call[1][2].n == 3, got 4",
     "expected a value of the function that continues after the break == 3, got 4"),
    ("expected __call[1] == 3, got 4", "expected train's epoch == 3, got 4"),
    ("expected __call[1].lr == 3, got 4", "expected train's epoch.lr == 3, got 4"),
    ("expected Net.__call__ is the one of Net", "expected Net.__call__ is the one of Net"),
    ("expected self.__dict__['epoch'] == 3, got 4", "expected self.__dict__['epoch'] == 3, got 4"),
])
def test_sentences_have_the_names_of_the_program(sentence, said):
    names = {"__call[1]": "train's epoch"} if "epoch" in said and "self" not in said else {}
    assert wording.said(sentence, names) == said


def test_what_an_expression_had_computed_has_its_source_for_a_name():
    def shifted(x, k):
        return x * [1, 2, 3, 4, 5, 6, 7, 8][k * 2 + outside()]      # a break while k * 2 is on the stack

    def outside():
        with open(os.devnull) as file:
            return len(file.read())

    translated = sot.to_static(shifted, backend="eager")
    for k in range(4):
        assert torch.equal(translated(X, k), shifted(X, k))
    said = [line for c in sot.translation_of(translated).captures for line in lines.recompile_lines(c)]
    assert not any(name in line for line in said for name in ("__stack", "__call", "before the break")), said
    assert any("k * 2" in line for line in said), said


def test_values_that_kept_changing_are_one_line():
    def pick(x, names, epoch):
        return x * names[epoch]

    translated = sot.to_static(pick, backend="eager")
    for epoch in range(4):
        translated(X, [1, 2, 3, 4], epoch)
    last = sot.translation_of(translated).captures[-1]
    line = pick.__code__.co_firstlineno + 1
    told = [*lines.reason_lines(last.recompile_reasons)]
    assert len(told) == 1 and told[0].startswith("epoch == 0, then 1, then 2, now 3 (used in ")
    assert f"pick, line {line} of " in told[0]
