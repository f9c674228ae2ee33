"""A number that varies does not fit the dtype of a tensor: the exception comes after what the program did before."""
import random

import pytest
import torch
from harness import outcome, same

import sot


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


PROGRAMS = (fills, stores, adds_before_a_change, is_caught, computed_of_a_tensor, of_a_tensor, of_the_random_module,
            becomes_a_seed, is_a_size)
VARYING = ([3, 4, 2 ** 40], [3, 4, 300], [3, 4, -1, 0], [3, 4, 2 ** 63], [3, 4, 10 ** 300],
           [3.0, 4.0, 1e5], [3.0, 4.0, 1e300, float("nan"), 5.0])


def observed(call, x, n):
    random.seed(0)
    return outcome(call, (x, n, []), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int8, torch.bool], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_was_done_before_is_seen(backend, program, dtype):
    for numbers in VARYING:
        captured = sot.to_static(program, backend=backend)
        for n in numbers:
            want, got = (observed(fn, torch.ones(2, dtype=dtype), n) for fn in (program, captured))
            assert type(got.raised) is type(want.raised), (numbers, n)      # some messages have the stack of C++
            for part in ("result", "args"):
                assert not same(getattr(got, part), getattr(want, part), part), (numbers, n)
