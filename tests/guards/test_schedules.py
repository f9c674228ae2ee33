"""Learning rates, decays and the like are computed from a number of steps: one graph, whatever the number."""
import math

import pytest
import torch
from harness import Counter, caught, same

import sot

X = torch.arange(1.0, 4.0)
STEPS = [(n,) for n in range(2, 12)]


def captures_of_calls(fn, calls, backend=None):
    """How many captures all these calls took; each gives exactly what plain Python does."""
    translated = sot.to_static(fn, backend=backend or Counter())
    for args in calls:
        want, got = fn(X, *args), translated(X, *args)
        assert got.dtype == want.dtype and got.stride() == want.stride() and torch.equal(got, want), args
    return len(sot.translation_of(translated).captures)


def cosine(x, step):
    return x * max(0.0, 0.5 * (1 + math.cos(math.pi * step / 15)))


def noam(x, step):
    return x * (512**-0.5 * min(step**-0.5, step * 4000**-1.5))


def bias_correction(x, step):
    return x / (1 - 0.9**step) / math.sqrt(1 - 0.999**step)


def exponential(x, step):
    return x * 0.9 ** (step // 2) + math.exp(-step / 10) * math.log(step + 1)


def positions(x, n):
    return x * math.sin(n / 3) + math.cos(n / 3) * math.sin(n / 3)


def a_size(x, n):
    return x.expand(math.floor(1 + math.log2(n)), 3) * int(2 + math.cos(n))


def a_tensor(x, n):
    return x * torch.tensor(n) + torch.tensor([n, 1, n * 2]) + torch.as_tensor(n * 0.5, dtype=torch.float32)


def a_tensor_of_floats(x, n):
    return x * torch.tensor([n * 0.5, 1.0, 2.0 * n], dtype=torch.float64)


@pytest.mark.parametrize("fn", [cosine, noam, bias_correction, exponential, positions, a_size, a_tensor,
                                a_tensor_of_floats])
def test_one_more_capture_for_all_steps(fn):
    assert captures_of_calls(fn, STEPS) == 2


def test_a_warm_up_is_a_graph_of_its_own():
    def fn(x, step, warm=5, total=20):
        if step < warm:
            return x * (step / max(1, warm))
        return x * max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm))))
    assert captures_of_calls(fn, [(n,) for n in range(1, 25)]) == 3


def test_the_greater_of_two_types_is_the_one_that_it_is():
    def fn(x, a):
        return x * max(a, 0) + torch.tensor(min(1, a))
    calls = [(v,) for v in (0.25, 0.5, -0.5, 2.5, -1.0, 0.0, 1.0, float("nan"))]
    for call in calls:      # the first is the captured one
        captures_of_calls(lambda x, a: fn(x, a).nan_to_num(7.0), [call, *calls])


@pytest.mark.parametrize("fn", [lambda x, n: x * 0.9**n, lambda x, n: x * abs(n**0.5), lambda x, n: x * n**-1.0,
                                lambda x, n: x * 2.0**n, lambda x, n: x * math.exp(n) * math.log(abs(n) + 1)])
def test_powers_of_any_number(fn):
    captures_of_calls(fn, [(n,) for n in (3, 4, 5, -2, -3, 6, 2.5, -2.5, 0.5)])


def test_what_python_raises():
    def fn(x, n):
        return x * (0.9**n) * math.log(n)
    translated = sot.to_static(fn)
    for n in (3, 4, 5, 0, -1, -10**6, 6):
        assert same(caught(translated, X, n), caught(fn, X, n)) is None


@pytest.mark.parametrize("fn", [cosine, bias_correction, a_size])
def test_backends_that_compile(fn):
    captures_of_calls(fn, STEPS[:5], backend="aot_eager")
