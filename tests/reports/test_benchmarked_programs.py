"""benchmarks/programs.py runs programs plainly and translated, by turns, and says so if there are none."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "programs.py"
HARNESS = """
import json, os, time
ticks = []
def tick(value):
    ticks.append((time.process_time(), 0))
    with open(os.environ["TOGETHER"], "a") as file:
        file.write(os.environ["HARNESS_MODE"][0])
def done(**values):
    steps = [b[0] - a[0] for a, b in zip(ticks, ticks[1:])]
    with open(os.environ["HARNESS_OUT"], "w") as file:
        json.dump({"steps": steps, "values": values, "extra": {}, "captures": [0, 0]}, file)
"""
PROGRAM = """
import harness
for i in range(20):
    sum(range(10000))
    harness.tick(i)
harness.done(i=i)
"""


def run(monkeypatch, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("TOGETHER", str(folder / "together"))
    return subprocess.run([sys.executable, str(BENCHMARK), "--scripts", str(folder), "--turns", "1", *arguments],
                          capture_output=True, text=True, timeout=120)


@pytest.fixture
def scripts(tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "harness.py").write_text(HARNESS)
    return tmp_path


def test_a_folder_without_programs_is_an_error_that_names_it(monkeypatch, scripts):
    done = run(monkeypatch, scripts)
    assert done.returncode == 1 and f"{scripts / 'programs'}/*.py matches no file" in done.stderr


def test_a_program_that_does_not_exist_is_an_error_that_names_those_that_do(monkeypatch, scripts):
    (scripts / "programs" / "counter.py").write_text(PROGRAM)
    done = run(monkeypatch, scripts, "nosuch")
    assert done.returncode == 1 and "no program nosuch; it has counter" in done.stderr


def test_processes_take_turns_by_steps(monkeypatch, scripts):
    (scripts / "programs" / "counter.py").write_text(PROGRAM)
    done = run(monkeypatch, scripts, "--how", "enable,static", "--out", str(scripts / "found.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((scripts / "found.json").read_text())["programs"]["counter"]
    assert found["enable"]["same"] and found["static"]["same"]
    seconds, plain = found["enable"]["seconds"], found["plain"]
    rounding = 0.01 / seconds + 0.01 / plain
    assert found["enable"]["total"] == pytest.approx(seconds / plain, rel=rounding)
    assert found["enable"]["steps"] == [found["enable"]["step"]], "one turn"
    assert (scripts / "together").read_text().startswith("pes" * 15), "plain, enable, static, plain ..."


def test_a_program_that_fails_does_not_keep_the_others_waiting(monkeypatch, scripts):
    failing = PROGRAM.replace("for i", "import os\nfor i").replace(
        "    sum(", "    assert i < 5 or os.environ['HARNESS_MODE'] != 'enable', 'this one fails'\n    sum(")
    (scripts / "programs" / "counter.py").write_text(failing)
    done = run(monkeypatch, scripts)
    assert done.returncode == 1 and "counter (enable) failed" in done.stderr and "this one fails" in done.stderr
