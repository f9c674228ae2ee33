"""Random programs do translated what they do in plain Python. ``make fuzz`` runs more of them."""
from __future__ import annotations

import pytest
from fuzzing import differ
from fuzzing.strategies import each_program


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed):
    found = []

    def one(source):
        if difference := differ.differs(source):
            found.append(f"{difference}\n{source}")
    each_program(12, seed, one)
    assert not found, "\n\n".join(found)
