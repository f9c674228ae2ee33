"""Integers that change from call to call where an operation takes a float, and bounds of random integers: they need two
captures at most, and compute and draw what plain Python does.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs

import sot

torch.manual_seed(0)
X, IMAGE = torch.randn(6, 8), torch.randn(1, 2, 5, 6)
BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
programs, draws = Programs(), Programs()


@programs
def deviations(x, k):
    return x.std(correction=k), torch.var(x, 0, correction=k)


@programs
def losses(x, k):
    return F.huber_loss(x, x + 3, delta=k), F.smooth_l1_loss(x, x + 3, beta=k)


@programs
def activations(x, k):
    return F.leaky_relu(x, k), F.hardtanh(x * 9, -k, k), F.softplus(x, k), (x / 0).nan_to_num(k)


@programs
def orders_of_norms(x, k):
    return x.norm(k), torch.linalg.vector_norm(x, k, 1), x.renorm(k, 0, 1.0), torch.cdist(x, x + 1, k)


@programs
def scales(x, k):
    return F.scaled_dot_product_attention(x[None], x[None], x[None], scale=k), torch.trapezoid(x, dx=k)


@programs
def new_tensors(x, k):
    return (x.new_tensor(k), x.new_tensor([k, 1]), x.long().new_tensor([[k], [2]]),
            x.new_tensor([k], dtype=torch.int64), x.double().new_tensor(k), x.new_tensor([k, 2.5]))


@programs
def images_scaled_by_a_factor(x, k):
    return (F.interpolate(IMAGE, scale_factor=k), F.interpolate(IMAGE, scale_factor=(k, 2), mode="bilinear"),
            F.interpolate(IMAGE, scale_factor=k, mode="bicubic", align_corners=True),
            F.interpolate(IMAGE, scale_factor=k, mode="bilinear", recompute_scale_factor=True, antialias=True),
            F.interpolate(x[None], scale_factor=k, mode="nearest-exact"))


@draws
def draws_with_bounds(x, k):
    return x.uniform_(-k, k).clone(), x.normal_(k, k)


@draws
def integers(x, k):
    y = x.clone()
    return (y.random_(0, k), x.clone().random_(k), torch.zeros(4, dtype=torch.int64).random_(-k, k + 5),
            y[1:3].random_(k))


@draws
def integers_like_a_tensor(x, k):
    return (torch.randint_like(x, k), torch.randint_like(x, -k, k, dtype=torch.int64), torch.randint_like(x.t(), k),
            torch.randint_like(x, k))


@draws
def constant_bounds(x, k):
    """The name of the operator with two bounds, ``random_.from``, is no name of Python."""
    return x.random_(0, 3) * k, x.random_(2, 9), x.random_(5)


def outcome(function, k, x):
    torch.manual_seed(k)
    return function(x, k), torch.get_rng_state(), x


def check(function, backend):
    translated = sot.to_static(function, backend=backend)
    for k in (3, 4, 5, 7, 2, 9):
        got, want = outcome(translated, k, X.clone()), outcome(function, k, X.clone())
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)
    assert len(translated.captures) == 2 and not any(c.stopped for c in translated.captures)


@programs.each
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_integer_in_place_of_a_float(fn, backend):
    check(fn, backend)


@draws.each
@pytest.mark.parametrize("backend", BACKENDS)
def test_draws_with_integers(fn, backend):
    check(fn, backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("draw", [lambda x, k: x.random_(k, 5), lambda x, k: torch.randint_like(x, k, 5),
                                  lambda x, k: x.random_(k - 4), lambda x, k: x.normal_(0, k - 5)])
def test_bounds_that_the_operation_refuses(draw, backend):
    def run(function, k):
        torch.manual_seed(0)
        x = X.clone()
        try:
            return "", function(x, k), x, torch.get_rng_state()
        except RuntimeError as error:
            return str(error), x, torch.get_rng_state()

    def step(x, k):
        x.add_(1)
        return draw(x, k) * 2

    translated = sot.to_static(step, backend=backend)
    for k in (4, 3, 2, 7, 1, 6, 5):
        (why, *made), (wanted, *want) = run(translated, k), run(step, k)
        assert why.splitlines()[:1] == wanted.splitlines()[:1]
        torch.testing.assert_close(made, want, equal_nan=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_integer_on_a_tensor_of_integers_stays_one(backend):
    def function(x, k):
        return F.pad(x, (1, 1), value=k), F.threshold(x, k, k + 1), torch.clamp(x, max=k)

    translated, x = sot.to_static(function, backend=backend), torch.arange(8)
    for k in (3, 4, 5, 6):
        torch.testing.assert_close(translated(x, k), function(x, k))
