"""Reports in a notebook: what shows itself, the magic, and cells that are run again; and the source with its marks."""
import html
import re

import pytest
import torch

import sot
from sot.reports.views.marked_source import MARKS, is_about, marked_source

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.ones(3)
FACTOR = 3


def inner(x):
    y = torch.sin(x) * FACTOR
    if y.mean() > 0:
        y = y + 1
    return torch.relu(y)


def outer(x):
    z = inner(x)
    return z + 1


@pytest.fixture
def shell():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance()
    shell.run_cell("%load_ext sot\nimport torch, sot\nx = torch.ones(3)").raise_error()
    yield shell
    interactive.InteractiveShell.clear_instance()


def run(shell, cell):
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


# ---- what shows itself ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("shown", [
    lambda: sot.explain(outer)(X), lambda: sot.explain(outer)(X).report, lambda: called(sot.to_static(outer))])
def test_reports_explanations_and_translations_show_a_page_of_their_own(shown):
    text = shown()._repr_html_()
    assert text.startswith("<iframe ") and text.endswith("</iframe>")
    page = html.unescape(re.search('srcdoc="(.*)"', text, re.S).group(1))
    assert page.lstrip().startswith("<!doctype html>") and "inner" in page and page.count("</html>") == 1


def called(f):
    f(X)
    return f


def test_the_magic_explains_a_call(shell):
    found = run(shell, "def f(a, k=2):\n    return torch.sin(a) * k\n%sot f(x, k=3)")
    assert len(found.graphs) == 1 and torch.equal(found.result, torch.sin(X) * 3)


def test_the_magic_reports_on_a_cell(shell):
    found = run(shell, "%%sot\ndef g(a):\n    return torch.sin(a) * 2\n\nfor _ in range(20):\n    y = g(x)")
    assert found.in_graphs > 0 and torch.equal(shell.user_ns["y"], torch.sin(X) * 2)


def test_the_magic_reports_on_what_was_captured_before_the_cell(shell):
    run(shell, "g = sot.to_static(lambda a: torch.sin(a) * 2, backend='eager')\ng(x)")
    found = run(shell, "%%sot\nfor _ in range(3):\n    y = g(x)")
    assert (len(found.graphs), found.in_graphs, found.in_python) == (1, 6, 0)


@pytest.mark.parametrize("line", ["%sot", "%sot x + 1", "%sot f("])
def test_the_magic_says_what_it_needs(shell, line, capsys):
    done = shell.run_cell(line)
    assert not done.success and "%sot needs a call, such as %sot model(batch)" in str(done.error_in_exec)


def test_a_cell_that_is_run_again_redefines_its_function(shell):
    cell = "@sot.to_static(backend='eager')\ndef h(a):\n    return torch.sin(a) {}"
    run(shell, cell.format("* 2"))
    assert torch.equal(run(shell, "h(x)"), torch.sin(X) * 2)
    run(shell, cell.format("+ 5"))
    assert torch.equal(run(shell, "h(x)"), torch.sin(X) + 5)


def test_a_module_that_is_reloaded_has_its_new_code(shell, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "reloaded_part.py"
    file.write_text("import torch\ndef part(a):\n    return a * 2\n")
    run(shell, "import importlib, reloaded_part\nf = sot.to_static(lambda a: reloaded_part.part(a), backend='eager')")
    assert torch.equal(run(shell, "f(x)"), X * 2)
    file.write_text("import torch\ndef part(a):\n    return a * 200\n")
    run(shell, "importlib.reload(reloaded_part)")
    assert torch.equal(run(shell, "f(x)"), X * 200)


# ---- the source with its marks --------------------------------------------------------------------------------
def test_the_source_has_a_mark_for_what_became_of_each_line():
    marks = {line.text[8:].strip(): line.state for line in marked_source(sot.explain(outer)(X).report)}
    assert marks["y = torch.sin(x) * FACTOR"] == "graph" and marks["if y.mean() > 0:"] == "break"
    assert marks["z = inner(x)"] == "" and marks["return z + 1"] == "graph"


def test_an_explanation_prints_the_marked_source():
    text = str(sot.explain(outer)(X))
    assert f"{MARKS['break']}     if y.mean() > 0:" in text and f"{MARKS['graph']}     return z + 1" in text


def test_it_is_coloured_on_a_terminal_only(monkeypatch, capsys):
    explanation = sot.explain(outer)(X)
    explanation.show()
    plain = capsys.readouterr().out
    assert "\x1b[" not in plain and "if y.mean() > 0:" in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    explanation.show()
    assert "\x1b[1;31m" in capsys.readouterr().out


def test_why_a_value_is_guarded_is_said_in_the_names_of_the_program():
    explanation = sot.explain(outer)(X)
    said = explanation.why("FACTOR")
    assert "== 3" in said and "one of the global variables" in said and "y = torch.sin(x) * FACTOR" in said
    assert explanation.why("nothing_here") == (
        "No guard is about nothing_here: captured code does not depend on its value.")


@pytest.mark.parametrize(("sentence", "name", "about"), [
    ("x is a tensor", "x", True), ("max is a tensor", "x", False), ("x2 == 3", "x", False), ("a.x == 3", "x", False),
    ("'k' is not in x.__dict__", "x", True), ("exx == x", "x", True), ("len(x) == 3", "x", True)])
def test_a_sentence_is_about_a_whole_name(sentence, name, about):
    assert is_about(sentence, name) is about
