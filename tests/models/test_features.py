"""The programs of ``benchmarks/features``: what they do when captured is what Python does."""
import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
EVERY = 3  # All of them take twenty seconds.


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("torch_features")
    finally:
        sys.path.remove(str(BENCHMARKS))


def wrong(table, programs):
    found = {program.name: table.in_a_child(program, "sot") for program in programs}
    return {name: why for name, (verdict, why) in found.items() if verdict == "wrong"}


def test_there_are_programs_of_each_part_of_the_api_and_of_the_language(table):
    groups = [program.group for program in table.PROGRAMS]
    assert len(groups) >= 250 and min(map(groups.count, groups)) >= 4
    assert len({program.name for program in table.PROGRAMS}) == len(groups)


def test_a_sample_of_the_programs_does_what_python_does(table):
    assert wrong(table, table.PROGRAMS[::EVERY]) == {}


@pytest.mark.slow
def test_every_program_does_what_python_does(table):
    assert wrong(table, table.PROGRAMS) == {}
