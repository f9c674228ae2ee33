"""Random numbers with bounds, deviations and probabilities that change from call to call: a backend that compiles gets
two graphs at most, which draw the numbers of plain Python and leave the generator in the same state.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs
from varying_floats import Compiling, check_as_it_is, check_compiled

import sot

programs = Programs()
torch.manual_seed(0)
X, IMAGE = torch.randn(6, 8), torch.randn(2, 4, 5, 5)


@programs
def dropouts(x, v):
    return F.dropout(x, v), F.dropout(x, v), F.dropout(x, v, False), F.alpha_dropout(x, v, True)


@programs
def dropouts_of_channels(x, v):
    y = IMAGE * x[0, 0]
    return F.dropout2d(y, v), F.dropout1d(IMAGE[0] * x[0, 0], v), F.feature_alpha_dropout(y, v, True)


@programs
def dropouts_in_place(x, v):
    y, z = x * 2, x[0, 0] * IMAGE
    made = F.dropout(y, v, inplace=True), F.dropout2d(z, v, inplace=True), F.alpha_dropout(x + 1, v, True, True)
    return *made, y, z, torch.dropout_(x * 3, v, True)


@programs
def dropouts_in_half_precision(x, v):
    return F.dropout(x.bfloat16(), v).float(), F.alpha_dropout(x.half(), v, True).float()


@programs
def normal_and_exponential_numbers(x, v):
    return x * torch.empty(8).normal_(v, v), x * torch.empty(8).exponential_(v), torch.normal(v, v, (8,)) * x, (
        torch.normal(x.detach(), v) * x)


@programs
def normal_numbers_around_tensors(x, v):
    """The gradient of a mean or deviation is zero."""
    return (torch.normal(x, v), torch.normal(mean=x, std=v), torch.normal(v, x.exp()),
            torch.normal(mean=v, std=x.exp()), torch.normal(v, v, (8,)) * x, x)


@programs
def truncated_normal_numbers(x, v):
    return (torch.nn.init.trunc_normal_(torch.empty(6, 8), std=v) * x, x * torch.nn.init.trunc_normal_(
        torch.empty(8), v, v, -v, v + 1), torch.nn.init.trunc_normal_(torch.empty(8), 1, v + 1) * x)


@programs
def gumbel_softmax(x, v):
    return F.gumbel_softmax(x, v), F.gumbel_softmax(x, v, hard=True)


@programs
def uniform_numbers(x, v):
    return (x * torch.empty(8).uniform_(-v, v), x * torch.empty(8).uniform_(-v), x * torch.empty(8).uniform_(0, to=v),
            x * torch.empty(6, 8).uniform_(v, 2.5), x * torch.empty(8).uniform_(-v, v))


@programs
def draws_of_other_distributions(x, v):
    return (x * torch.empty(8).cauchy_(v, v).clamp(-9, 9), x * torch.empty(8).log_normal_(-v, v),
            x * torch.empty(8).geometric_(v), x * torch.empty(8).bernoulli_(v), x * torch.empty(8).bernoulli_(v))


@programs
def draws_in_half_precision(x, v):
    return (x * torch.empty(8, dtype=torch.bfloat16).uniform_(-v, v), x * torch.empty(8).half().bernoulli_(v),
            x * torch.empty(8).half().normal_(v, v), x * torch.empty(8, dtype=torch.bfloat16).exponential_(v),
            x * torch.normal(torch.ones(8).half(), v))


@programs
def draws_into_a_part_of_a_tensor(x, v):
    y, z = x * 1, torch.zeros(8, 6)
    y[1:3].uniform_(-v, v)
    y[:, ::2].bernoulli_(v)
    z.t().uniform_(0, v)
    return y, z * x.t()


@programs
def bernoulli_numbers_like_a_tensor(x, v):
    return torch.bernoulli(x.detach(), v) * x, x.detach().bernoulli(v) * x


@programs
def randomized_leaky_relu(x, v):
    y = x * 1
    return F.rrelu(x, 0.1, v + 0.2, True), F.rrelu(x, v - 0.3, v), F.rrelu(y, v - 0.1, v, True, True), y


@programs
def attention_with_dropout(x, v):
    y, mask = IMAGE * x[0, 0], torch.ones(5, 5).tril().bool()
    return (F.scaled_dot_product_attention(y, IMAGE, y, dropout_p=v),
            F.scaled_dot_product_attention(y, IMAGE, y, mask, v, scale=v),
            F.scaled_dot_product_attention(y, y, y, dropout_p=v, is_causal=True))


@programs
def initial_weights(x, v):
    init = torch.nn.init
    return (x * init.uniform_(torch.empty(8), -v, v), x * init.normal_(torch.empty(8), v, v),
            x * init.xavier_uniform_(torch.empty(6, 8), v), x * init.xavier_normal_(torch.empty(6, 8), gain=v),
            x * init.kaiming_uniform_(torch.empty(6, 8), v), x * init.kaiming_normal_(torch.empty(6, 8), v),
            x * init.orthogonal_(torch.empty(6, 8), v), x * init.sparse_(torch.empty(6, 8), 0.3, v))


@pytest.mark.slow
@programs.each
def test_a_number_of_a_draw_is_compiled_twice(fn):
    check_compiled(fn, X, Compiling(), 0.03 if fn is dropouts_in_half_precision else 2e-5)


@programs.each
def test_a_graph_that_runs_as_it_is_takes_the_number(fn):
    check_as_it_is(fn, X)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [uniform_numbers, draws_of_other_distributions, attention_with_dropout,
                                randomized_leaky_relu, dropouts_in_place], ids=lambda fn: fn.__name__)
def test_inductor_compiles_a_number_of_a_draw_twice(fn):
    check_compiled(fn, X, Compiling("inductor"))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_generator_draws_with_numbers_that_vary(backend):
    def step(x, v, generator):
        return x * torch.empty(8).uniform_(-v, v, generator=generator) + torch.empty(8).normal_(
            0, v, generator=generator)

    translated = sot.to_static(step, backend=backend)
    for i in range(5):
        made, want = (f(X, 0.3 + i, torch.Generator().manual_seed(i)) for f in (translated, step))
        torch.testing.assert_close(made, want)
    assert len(translated.captures) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("draw, values", [
    (lambda x, v: x.uniform_(v, 1.5), (0.5, 0.25, 1.0, 2.0, 0.75, 3.0)),
    (lambda x, v: x.uniform_(-v, v), (0.5, 0.25, 0.0, -1.0, 0.75)),
    (lambda x, v: x.bernoulli_(v), (0.5, 0.25, 0.0, 1.0, 0.75, 1.5, -0.5, 0.3)),
    (lambda x, v: x.bernoulli(v), (0.5, 0.25, 0.0, 1.0, 0.75, 1.5, -0.5, 0.3)),
    (lambda x, v: x.cauchy_(0, v), (0.5, 0.25, 0.0, -1.0, 0.75)),
    (lambda x, v: x.log_normal_(0, v), (0.5, 0.25, 0.0, -1.0, 0.75)),
    (lambda x, v: x.geometric_(v), (0.5, 0.25, 0.0, 1.0, 1.5, 0.75)),
    (lambda x, v: x.normal_(0, v), (0.5, 0.25, 0.0, -1.0, 0.75)),
    (lambda x, v: torch.normal(0.5, v, (4,)), (0.5, 0.25, 0.0, -1.0, 0.75)),
    (lambda x, v: F.rrelu(x, v, 0.5, True), (0.1, 0.2, 0.5, 0.7, 0.3)),
    (lambda x, v: F.scaled_dot_product_attention(*[x[None]] * 3, dropout_p=v), (0.5, 0.25, 0.0, 1.5, -0.5, 0.75)),
], ids=["uniform", "both bounds", "bernoulli_", "bernoulli", "cauchy", "log_normal", "geometric", "normal_", "normal",
        "rrelu", "attention"])
def test_a_number_that_the_operation_refuses(draw, values, backend):
    def step(x, v):
        x.add_(1)
        return draw(x, v) * 2

    def run(function, v):
        torch.manual_seed(0)
        x = X.clone()
        try:
            return "", function(x, v), x, torch.get_rng_state()
        except (RuntimeError, ValueError) as error:
            return repr(error).partition("Exception raised")[0], x, torch.get_rng_state()

    translated = sot.to_static(step, backend=backend)
    for v in values:
        (why, *made), (wanted, *want) = run(translated, v), run(step, v)
        assert why == wanted
        torch.testing.assert_close(made, want, equal_nan=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_draw_changes_its_tensor_in_place(backend):
    def step(x, v):
        y, before = x[1:], x._version
        x.uniform_(-v, v)
        return y * 1, x._version - before

    translated = sot.to_static(step, backend=backend)
    for v in (0.5, 0.25, 0.75, 1.5):
        outcomes = []
        for function in (translated, step):
            torch.manual_seed(0)
            x = X.clone()
            outcomes.append((function(x, v), x, x._version))
        torch.testing.assert_close(*outcomes)
