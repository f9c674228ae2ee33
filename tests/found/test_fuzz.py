"""Random programs do translated what they do in plain Python. ``make fuzz`` runs more of them."""
from __future__ import annotations

import os
import sys

import pytest
from fuzzing import differ, mutants
from fuzzing.shrinking import shrink
from fuzzing.strategies import each_program


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed):
    found = []

    def one(source):
        if difference := differ.differs(source):
            found.append(f"{difference}\n{source}")
    each_program(12, seed, one)
    assert not found, "\n\n".join(found)


CLOSES = """INPUTS, NUMBERS, MODE = ("plain",), "plain", "{}"
CHANGES = []
class Box(Base):
    pass
def program(x, w, n, text, real, start, named, thing, on):
    print("n", n)
    sys.stdout.close()
    return x * 2
"""


@pytest.mark.parametrize("mode", ["to_static", "enabled"])
def test_a_program_may_close_its_output(mode):
    assert differ.differs(CLOSES.format(mode)) is None
    differ.compare(CLOSES.format(mode))
    with differ.output() as stream:
        print("one")
        sys.stdout.close()
    assert stream.written == "one\n"


UNSTEADY = """INPUTS, NUMBERS, MODE = ("plain",), "plain", "to_static"
CHANGES = []
class Box(Base):
    pass
def program(x, w, n, text, real, start, named, thing, on):
    return {}
"""


def test_a_program_whose_plain_runs_differ_is_not_compared():
    by_address = UNSTEADY.format("[y.sum().item() for y in {x + i for i in range(9)}]")
    with pytest.raises(differ.Unsteady):
        differ.check_plain_runs(by_address, differ.Difference())
    differ.check_plain_runs(UNSTEADY.format("[x + i for i in range(9)]"), differ.Difference())


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_fault_can_be_put_in(name):
    """Its place still exists."""
    with mutants.MUTANTS[name]():
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", ["IsGuard", "EqualsGuard", "TypeGuard", "changes of lists", "output",
                                  "changes of closures", "changes of dicts and attributes"])
def test_a_fault_that_is_put_in_is_found(name, monkeypatch):
    """``python -m fuzzing.mutants`` tries all of them, with more programs."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert any(mutants.outcome(name, programs=300, seed=seed).startswith("found after") for seed in (1, 3, 4))


def test_a_format_in_a_string_is_made_smaller():
    source = "def f(n):\n    return (f'{n:{n + 1}}', 1)"
    assert "{" in shrink(source, lambda text: "{" in text, seconds=5)
