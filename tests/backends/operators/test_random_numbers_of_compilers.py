"""Random numbers of compiled graphs, their gradients, and the state that the generator is left in, are eager's."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import sot

X = torch.randn(8, 16)


def drawn_in_a_step(x):
    x = x.detach().clone().requires_grad_()
    y = F.dropout(x, 0.3) * torch.rand_like(x) + torch.randint(0, 9, (8, 16))
    y.sum().backward()
    return y.detach(), x.grad


def drawn_several_ways(x):
    noise = torch.randn(8, 16) + torch.empty(8, 16).exponential_() + torch.bernoulli(x.sigmoid())
    return F.gumbel_softmax(x) + noise, F.rrelu(x, training=True)


def in_attention(x):
    q = x[None, None]
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.2)


PROGRAMS = [drawn_in_a_step, drawn_several_ways, in_attention]


def outcome(f):
    torch.manual_seed(1)
    return f(X), torch.get_rng_state()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_random_numbers_are_eagers(program, backend):
    translated = sot.to_static(program, backend=backend)
    expected = outcome(program)
    for _ in range(2):
        (values, state), (plain, left) = outcome(translated), expected
        torch.testing.assert_close(values, plain, rtol=1e-5, atol=1e-6)
        assert torch.equal(state, left)


@pytest.mark.parametrize("how", ["the variable", "the option"])
def test_a_compiler_may_draw_its_own(how, monkeypatch):
    options = None
    if how == "the variable":
        monkeypatch.setenv("SOT_RANDOM", "philox")
    else:
        options = {"fallback_random": False}
    values, _ = outcome(sot.to_static(lambda x: x + torch.rand(8, 16), backend="inductor", options=options))
    assert not torch.equal(values, outcome(lambda x: x + torch.rand(8, 16))[0])
    assert ((values - X >= 0) & (values - X < 1)).all()
