"""A number does not fit the dtype of a tensor, or an operation refuses it: the exception comes after what the program
did before.
"""
import itertools
import math
import operator
import random

import pytest
import torch
import torch.nn.functional as F
from harness import outcome, same

import sot
from sot.torch_compat.operators import trials


def fills(x, n, seen):
    seen.append(1)
    x.fill_(n)


def stores(x, n, seen):
    seen.append(1)
    x[:1] = n


def adds_before_a_change(x, n, seen):
    seen.append(1)
    y = x + n
    x.mul_(2)
    return y


def is_caught(x, n, seen):
    try:
        y = x + n
        x.mul_(2)
    except (RuntimeError, ValueError):
        return "caught"
    return y


def computed_of_a_tensor(x, n, seen):
    seen.append(1)
    x.fill_(int(x.sum()) * n)


def of_a_tensor(x, n, seen):
    seen.append(1)
    x += 1
    x.clamp_(max=n * x[0].item())


def of_the_random_module(x, n, seen):
    seen.append(1)
    x += 1
    x.clamp_(max=max(n, random.random()))


def becomes_a_seed(x, n, seen):
    seen.append(1)
    x += 1
    torch.manual_seed(n if isinstance(n, int) else 0)
    return torch.rand(2)


def is_a_size(x, n, seen):
    seen.append(1)
    x += 1
    return torch.zeros(n if isinstance(n, int) else 1, 0)


BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
PROGRAMS = (fills, stores, adds_before_a_change, is_caught, computed_of_a_tensor, of_a_tensor, of_the_random_module,
            becomes_a_seed, is_a_size)
VARYING = ([3, 4, 2 ** 40], [3, 4, 300], [3, 4, -1, 0], [3, 4, 2 ** 63], [3, 4, 10 ** 300],
           [3.0, 4.0, 1e5], [3.0, 4.0, 1e300, float("nan"), 5.0])


def observed(call, x, n):
    random.seed(0)
    return outcome(call, (x, n, []), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int8, torch.bool], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_done_before_is_seen(backend, program, dtype):
    for numbers in VARYING:
        captured = sot.to_static(program, backend=backend)
        for n in numbers:
            want, got = (observed(fn, torch.ones(2, dtype=dtype), n) for fn in (program, captured))
            assert type(got.raised) is type(want.raised), (numbers, n)      # some messages have the stack of C++
            for part in ("result", "args"):
                assert not same(getattr(got, part), getattr(want, part), part), (numbers, n)


# ---- operations that refuse a number, or a dtype, which their fakes do not
CASES = {   # an operation, the dtype of the tensor, numbers of which the operation refuses the last
    "a probability": (lambda x, v: torch.bernoulli(x * 0 + 0.5, v), torch.float32, (0.5, 0.25, 0.125, 1.5)),
    "a probability, in place": (lambda x, v: x.bernoulli_(v), torch.float32, (0.5, 0.25, 0.125, 1.5)),
    "a whole probability": (lambda x, v: x.bernoulli_(v), torch.float32, (0, 1, 0, 2)),
    "a width": (lambda x, v: F.smooth_l1_loss(x, x, beta=v), torch.float32, (0.5, 0.25, -1.0)),
    "a divisor": (lambda x, v: F.celu(x, v), torch.float32, (0.5, 0.25, 0.125, 0.0)),
    "a whole divisor": (lambda x, v: F.celu(x, v), torch.float32, (1, 2, 3, 0)),
    "a flag as a divisor": (lambda x, v: F.celu(x, v), torch.float32, (True, False)),
    "bounds in order": (lambda x, v: x.uniform_(0.3, v), torch.float32, (0.5, 0.6, 0.7, 0.1)),
    "a bound": (lambda x, v: x.uniform_(0, v), torch.float32, (0.5, 0.25, math.nan)),
    "an exponent": (operator.pow, torch.int64, (2, 3, 4, -1)),
    "an exponent, in place": (lambda x, v: x.pow_(v), torch.int64, (2, 3, 4, -1)),
    "pixels": (lambda x, v: F.interpolate(x[None, None], v), torch.int64, (2, 3, 4)),
    "windows": (lambda x, v: F.max_pool1d(x[None], v), torch.int64, (1, 2, 3)),
    "a subscript": (lambda x, v: x.__getitem__(v), torch.float32, (1, 2, 3, 9)),
    "a subscript to store to": (lambda x, v: x.__setitem__(v, 1), torch.float32, (1, 2, 3, 9)),
    "a step in memory": (lambda x, v: x.as_strided((2, 2), (v, 1)), torch.float32, (1, 2, 20)),
    "a constant step": (lambda x, v: x.as_strided((2, 2), (20 if v > 2 else 1, 1)), torch.float32, (1, 20)),
    "a value": (lambda x, v: torch.full((2,), v, dtype=torch.uint8), torch.float32, (1, 2, 3, 1e10)),
    "a value of another dtype": (lambda x, v: torch.full_like(x, v, dtype=torch.float32), torch.float64, (1.0, 1e39)),
    "an element": (lambda x, v: torch.scalar_tensor(v, dtype=torch.uint8), torch.float32, (1, 2, 3, 300)),
    "an alternative": (lambda x, v: torch.where(x > 0, x, v), torch.uint8, (1, 2, 3, 300)),
    "an end": (lambda x, v: torch.linspace(0, v, 3, dtype=torch.uint8), torch.float32, (1, 2, 3, 300)),
    "a power": (lambda x, v: torch.logspace(v, 1, 3, dtype=torch.int8), torch.float32, (1, 2, 0, -200)),
    "a bound of random numbers": (lambda x, v: torch.randint(v, (3,), dtype=torch.uint8), torch.float32, (256, 2, 300)),
    "bounds of random flags": (lambda x, v: torch.randint(0, v, (3,), dtype=torch.bool), torch.float32, (2, 1, 5)),
    "a class": (lambda x, v: F.nll_loss(x[None], torch.tensor([v])), torch.int64, (1, 2, 3)),
}


def of_an_argument(operation):
    def program(x, buffer, v, seen):
        seen.append(1)
        buffer.add_(1)
        y = operation(x, v)
        seen.append(2)
        return y
    return program


def of_a_tensor(operation):
    def program(x, buffer, v, seen):
        seen.append(1)
        buffer.add_(1)
        y = operation(x, torch.tensor(v).item())
        seen.append(2)
        return y
    return program


def caught(operation):
    def program(x, buffer, v, seen):
        buffer.add_(1)
        try:
            y = operation(x, v)
        except RuntimeError:
            seen.append(1)
            return None
        buffer.add_(1)
        return y
    return program


@pytest.mark.parametrize("made", [of_an_argument, of_a_tensor, caught])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_done_before_a_refusal_is_seen(backend, case, made):
    operation, dtype, numbers = CASES[case]
    program = made(operation)
    captured = sot.to_static(program, backend=backend)
    for v in (*numbers, *numbers):
        want, got = (outcome(call, (torch.ones(4, dtype=dtype), torch.zeros(2), v, []), {})
                     for call in (program, captured))
        assert type(got.raised) is type(want.raised), v
        for part in ("result", "args", "random"):
            assert not same(getattr(got, part), getattr(want, part), part), v


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_is_refused_for_sizes_that_vary(backend, case, monkeypatch):
    monkeypatch.setattr(trials, "_errors", {})      # an answer for small tensors is kept
    operation, dtype, numbers = CASES[case]
    program = of_an_argument(operation)
    captured = sot.to_static(program, backend=backend)
    for size, v in itertools.chain(itertools.product((4, 5, 6), numbers[:-1]), ((7, numbers[-1]),)):
        want, got = (outcome(call, (torch.ones(size, dtype=dtype), torch.zeros(2), v, []), {})
                     for call in (program, captured))
        assert type(got.raised) is type(want.raised), (size, v)
        for part in ("result", "args", "random"):
            assert not same(getattr(got, part), getattr(want, part), part), (size, v)
