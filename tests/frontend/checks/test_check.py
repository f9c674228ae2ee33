"""``sot check``: what it counts, what it refuses, the baseline that only gets better, and the findings as SARIF."""
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import sot
from sot.frontend.checks.baseline import BaselineError, figures_of, ratchet
from sot.frontend.checks.limits import LimitError, Limits, coverage_of, is_in, modules_of, violations
from sot.frontend.checks.sarif import sarif
from sot.reports.views.compare import as_markdown, compare

pytestmark = pytest.mark.usefixtures("fresh")

ROOT = Path(sot.__file__).parent.parent
PROGRAM = """
import torch
import layers

def f(x):
    if x.sum() > 0:
        x = x * 2
    return layers.g(x) + 1

for _ in range(20):
    f(torch.ones(3))
"""
LAYERS = "def g(x):\n    return x.sin().cos()\n"


def breaks(x):
    if x.sum() > 0:
        x = x * 2
    return x + 1


def whole(x):
    return torch.sin(x) + 1


X = torch.ones(3)


@pytest.fixture
def check(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "layers.py").write_text(LAYERS)

    def run(*options):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": ""}
        return subprocess.run([sys.executable, "-m", "sot", "check", *options, "train.py"], cwd=tmp_path, text=True,
                              capture_output=True, env=environment, timeout=300)
    return run


@pytest.mark.slow
def test_without_limits_it_says_what_it_counted(check, tmp_path):
    done = check("--baseline", "figures.json", "--sarif", "found.sarif", "--module-coverage", "layers=100")
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ok: train.py: 2 graphs, 1 break, no functions left to Python, none recompiled, ")
    assert "operations in graphs" in last
    assert json.loads((tmp_path / "figures.json").read_text())["breaks"] == 1
    found, = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
    place = found["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 6)


@pytest.mark.slow
def test_a_module_that_is_not_there_is_a_problem(check):
    done = check("--module-coverage", "layer=100", "--module-coverage", "train=99")
    assert done.returncode == 1
    assert "no operation ran in layer, of which 100 % are wanted in graphs: is the name right?" in done.stderr
    assert "of the operations of train in graphs, 99 % wanted" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("failed: train.py: ")


@pytest.mark.slow
def test_a_limit_that_makes_no_sense_is_refused(check):
    done = check("--module-coverage", "layers")
    assert done.returncode == 2 and "write MODULE=PERCENT" in done.stderr


@pytest.mark.parametrize("text", ["models", "=3", "models=many"])
def test_limits_of_modules_are_understood_or_refused(text):
    assert modules_of(["a.b=99", "c/d.py=1.5"]) == {"a.b": 99, "c/d.py": 1.5}
    with pytest.raises(LimitError, match="MODULE=PERCENT"):
        modules_of([text])


@pytest.mark.parametrize(("file", "path", "inside"), [
    ("models/encoder.py", "models", True), ("models/encoder.py", "models/encoder", True),
    ("src/models/encoder.py", "models/encoder", True), ("/x/models/__init__.py", "models", True),
    ("models/encoders.py", "models/encoder", False), ("supermodels/encoder.py", "models", False)])
def test_a_module_has_the_files_below_it(file, path, inside):
    assert is_in(file, path) is inside


def test_coverage_is_known_by_module():
    report = sot.explain(breaks)(X).report
    assert coverage_of(report, "frontend.checks.test_check") == report.coverage
    assert coverage_of(report, "frontend/checks") == report.coverage and coverage_of(report, "elsewhere") is None


def test_failures_of_capture_are_never_allowed(monkeypatch):
    monkeypatch.setattr("sot.driver.pipeline.build_graph", lambda *args: 1 / 0)
    report = sot.explain(whole)(X).report
    problem, place = violations(report, Limits())
    assert problem == "1 internal failure of capture, none allowed" and "ZeroDivisionError" in place
    assert json.loads(sarif(report))["runs"][0]["results"][0]["level"] == "error"


# ---- the baseline -------------------------------------------------------------------------------------------
def test_a_baseline_only_gets_better(tmp_path):
    path = tmp_path / "baseline.json"
    broken, good = sot.explain(breaks)(X).report, sot.explain(whole)(X).report
    assert ratchet(path, broken) == []
    assert ratchet(path, good) == []
    assert json.loads(path.read_text()) == figures_of(good) | {"recompiled": 0}
    problems = ratchet(path, broken)
    assert "breaks: 0 in the baseline, now 1" in problems and len(problems) >= 2
    assert json.loads(path.read_text())["breaks"] == 0      # a run that is worse changes nothing


def test_a_file_that_did_not_run_keeps_its_figure(tmp_path):
    path = tmp_path / "baseline.json"
    report = sot.explain(whole)(X).report
    ratchet(path, report)
    path.write_text(json.dumps({**json.loads(path.read_text()), "% in graphs: other.py": 50.0}))
    assert ratchet(path, report) == [] and json.loads(path.read_text())["% in graphs: other.py"] == 50


def test_better_in_one_and_worse_in_another_is_worse(tmp_path):
    path = tmp_path / "baseline.json"
    report = sot.explain(breaks)(X).report
    ratchet(path, report)
    before = path.read_text()
    mixed = replace(report, breaks=[], recompiles=report.recompiles * 2 or [report.recompiles] * 2)
    assert ratchet(path, mixed) == ["recompiled: 0 in the baseline, now 2"] and path.read_text() == before


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"% in graphs: all": "much"}'])
def test_what_is_no_baseline_is_refused(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(BaselineError, match="is not a baseline"):
        ratchet(tmp_path / "b.json", sot.explain(whole)(X).report)


# ---- for code hosts -----------------------------------------------------------------------------------------
def test_every_rule_of_sarif_is_described_and_every_result_has_a_rule():
    f = sot.to_static(breaks, backend="eager")
    run = json.loads(sarif(sot.explain(f)(X).report))["runs"][0]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == set(rules) == {"TENSOR_TRUTH"}
    assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in rules.values())


def test_differences_are_a_table_for_a_pull_request():
    before, after = sot.explain(whole)(X).report, sot.explain(breaks)(X).report
    text = as_markdown(compare(before, after)).splitlines()
    assert text[0].startswith("**SOT**: ") and text[0].endswith("0 better") and text[2:4] == ["| | |", "| --- | --- |"]
    rows = text[4:]
    assert rows[0].startswith("| 🔴 | ") and all(row.count("|") - row.count("\\|") == 3 for row in rows)
    assert as_markdown(compare(before, before)) == "**SOT**: no difference in graphs, breaks and guards."
