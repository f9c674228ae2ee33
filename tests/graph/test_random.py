"""Random numbers in kernels: SOT_RANDOM=philox."""
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, check_compiled, leaves, run_reference

import sot
from sot.graph.kernels import philox


@pytest.fixture
def in_kernels(monkeypatch):
    monkeypatch.setenv("SOT_RANDOM", "philox")


def compiled(f):
    made = Kernels()
    return sot.to_static(f, backend=made), made.made


def dropped_and_added(x, y):
    return torch.ops.aten.native_dropout(x, 0.25, True)[0] + y


def test_the_bits_are_those_of_the_paper():
    """The known answers of Random123 for a counter and a key of zeros, and of ones."""
    assert [int(w) for w in philox.words(0, 0)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    numbers = philox.uniform(7, np.arange(1 << 16))
    assert 0 <= numbers.min() and numbers.max() < 1 and len(np.unique(numbers)) > 65_000
    assert np.abs(np.histogram(numbers, 16, (0, 1))[0] - 4096).max() < 5 * math.sqrt(4096)


def test_without_asking_numbers_are_eagers():
    made = check_compiled(dropped_and_added, torch.ones(9), torch.ones(9))
    assert made[0].cost.externs == 1 and "tl.rand" not in made[0].source


def test_dropout_and_what_follows_are_one_kernel(in_kernels):
    run, made = compiled(dropped_and_added)
    torch.manual_seed(0)
    result = run(torch.full((64, 64), 3.0), torch.ones(64, 64))
    assert (made[0].cost.kernels, made[0].cost.externs) == (1, 1), "one call draws the seeds"
    kept = result != 1
    torch.testing.assert_close(result[kept], torch.full_like(result[kept], 5.0))
    assert 0.70 < kept.float().mean() < 0.80
    sot.reset()


def test_the_same_seed_gives_the_same_numbers_and_each_call_others(in_kernels):
    run, _ = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)))
    torch.manual_seed(3)
    a, b = run(torch.ones(50))
    c, _ = run(torch.ones(50))
    torch.manual_seed(3)
    again, _ = run(torch.ones(50))
    torch.testing.assert_close(a, again, rtol=0, atol=0)
    assert not torch.equal(a, b) and not torch.equal(a, c)
    sot.reset()


def test_the_backward_pass_drops_what_the_forward_pass_dropped(in_kernels):
    run, made = compiled(lambda x: F.dropout(x, 0.5) * 2)
    x = torch.full((1000,), 3.0, requires_grad=True)
    result = run(x)
    gradient, = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient * 3, result)
    assert 400 < (gradient == 0).sum() < 600
    assert all("tl.rand" not in m.source for m in made if m.title == "backward")
    sot.reset()


@pytest.mark.parametrize(("draw", "mean", "deviation"), [
    (lambda x: torch.rand_like(x), 0.5, math.sqrt(1 / 12)), (lambda x: torch.randn_like(x), 0.0, 1.0),
    (lambda x: torch.bernoulli(x, 0.3), 0.3, math.sqrt(0.21)),
    (lambda x: torch.empty_like(x).uniform_(2, 6), 4, 2 / math.sqrt(3)),
    (lambda x: torch.randn(x.shape, dtype=torch.bfloat16), 0.0, 1.0),
], ids=["uniform", "normal", "bernoulli", "between", "half precision"])
def test_a_distribution(draw, mean, deviation, in_kernels):
    run, made = compiled(lambda x: draw(x) + 0)
    torch.manual_seed(1)
    numbers = run(torch.zeros(200, 200)).float()
    assert made[0].cost.externs == 1 and made[0].cost.kernels == 1
    assert abs(numbers.mean() - mean) < 5 * deviation / 200
    assert abs(numbers.std() - deviation) < 0.02
    sot.reset()


def test_the_reference_draws_the_same(in_kernels):
    run, made = compiled(lambda x: torch.rand_like(x) * x)
    x = torch.ones(4, 33)
    torch.manual_seed(5)
    result = run(x)
    torch.manual_seed(5)
    torch.testing.assert_close(leaves(run_reference(made[0].program, [x])), [result], rtol=0, atol=0)
    sot.reset()


def test_another_way_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("SOT_RANDOM", "fast")
    with pytest.raises(Exception, match="SOT_RANDOM is 'fast'; it may be eager or philox"):
        compiled(lambda x: torch.rand_like(x))[0](torch.ones(3))
    sot.reset()
