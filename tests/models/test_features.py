"""The programs of ``benchmarks/features``: what they do when captured is what Python does."""
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("torch_features")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_there_are_programs_of_each_part_of_the_api_and_of_the_language(table):
    groups = [program.group for program in table.PROGRAMS]
    assert len(groups) >= 250 and min(map(groups.count, groups)) >= 4
    assert len({program.name for program in table.PROGRAMS}) == len(groups)


@pytest.mark.slow
def test_every_program_does_what_python_does(tmp_path):
    """In a process of its own: it forks one for each program, which is refused after a backward pass."""
    file = tmp_path / "rows.json"
    subprocess.run([sys.executable, BENCHMARKS / "torch_features.py", "--translators", "sot", "--json", file],
                   check=True, capture_output=True, timeout=1200)
    rows = json.loads(file.read_text())
    assert len(rows) >= 250
    assert {row["program"]: row["why sot"] for row in rows if row["sot"] == "wrong"} == {}
