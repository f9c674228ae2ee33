"""The program's random numbers are those of plain Python: neither late imports nor backends advance its generators."""
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

import sot
from sot.backends import BackendError

SEEDED = """
import random, sys
import numpy as np, torch, sot

random.seed(0), np.random.seed(0), torch.manual_seed(0)
for backend in sys.argv[1:]:
    sot.to_static(lambda x: x + 1, backend=backend)(torch.ones(3))
sot.explain(lambda x: x * 2)(torch.ones(3))
print(random.random(), np.random.rand(), torch.rand(1).item())
"""


def numbers():
    return random.random(), np.random.rand(), torch.rand(2).tolist()


def seed():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.mark.slow
def test_the_first_capture_of_a_process_draws_nothing():
    printed = [subprocess.run([sys.executable, "-c", SEEDED, *backends], capture_output=True, text=True, timeout=300,
                              check=True).stdout for backends in ((), ("eager",), ("aot_eager",))]
    seed()
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    assert printed == [f"{expected[0]} {expected[1]} {expected[2]}\n"] * 3


@pytest.mark.parametrize("fails", [False, True])
def test_a_backend_may_draw_for_itself(fails):
    def draws(module, inputs):
        numbers()
        if fails:
            raise ValueError("this backend refuses")
        return module.forward

    seed()
    expected = numbers()
    seed()
    if fails:
        with pytest.raises(BackendError, match="this backend refuses"):
            sot.to_static(lambda x: x + 1, backend=draws)(torch.ones(3))
    else:
        assert sot.to_static(lambda x: x + 1, backend=draws)(torch.ones(3)).tolist() == [2, 2, 2]
    assert numbers() == expected


def test_random_numbers_of_a_captured_function_follow_those_before_its_capture():
    def noise(x):
        return x + torch.rand(3), random.random()

    seed()
    expected = [noise(torch.ones(3)) for _ in range(3)]
    seed()
    translated = sot.to_static(noise, backend="aot_eager")
    for tensor, number in expected:
        got = translated(torch.ones(3))
        assert torch.equal(got[0], tensor) and got[1] == number
