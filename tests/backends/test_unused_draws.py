"""Random numbers that the program draws and does not use: the generator is where the program leaves it, with every
backend, so that later numbers are the program's."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import sot


def unused(x):
    torch.rand(2)
    return x.sin() + torch.rand(3)


def unused_and_computed_with(x):
    (torch.randn(4) * x.sum()).cos()
    return x.sin()


def unused_dropout(x):
    F.dropout(x, 0.5)
    return x.cos()


def drawn_in_place(x):
    torch.empty(5).uniform_()
    return x + torch.rand(3)


def drawn_into_an_argument(x):
    x.bernoulli_(0.5)
    torch.rand(1)
    return None


def layers_that_are_made(x):
    torch.nn.Linear(3, 2)
    return x * 2


def nothing_but_a_draw(x):
    torch.rand(2)


def drawn_for_several_results(x):
    F.fractional_max_pool2d(x.expand(1, 3, 3), 2, output_size=2, return_indices=True)
    return x + torch.rand(3)


PROGRAMS = [unused, unused_and_computed_with, unused_dropout, drawn_in_place, drawn_into_an_argument,
            drawn_for_several_results, layers_that_are_made, nothing_but_a_draw]


def outcome(f, given):
    """The result, its gradient, the changed argument, and the next random number."""
    torch.manual_seed(3)
    x = given.clone()
    result = f(x)
    gradient = None
    if result is not None and result.requires_grad:
        gradient, = torch.autograd.grad(result.sum(), given)
    return [result, gradient, x, torch.rand(2)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("requires_grad", [False, True], ids=["", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_later_random_numbers_are_those_of_the_program(program, requires_grad, backend):
    given = torch.tensor([0.1, 0.4, 0.9], requires_grad=requires_grad)
    translated = sot.to_static(program, backend=backend)
    for _ in range(2):
        for got, wanted in zip(outcome(translated, given), outcome(program, given), strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0) if wanted is not None else None
            assert (got is None) is (wanted is None)


EQUAL_DRAWS = {
    "randn_like": torch.randn_like, "rand_like": torch.rand_like,
    "randint_like": lambda w: torch.randint_like(w, 9), "normal": lambda w: torch.normal(w.detach(), 1.0),
    "normal_": lambda w: w.detach().clone().normal_(), "exponential_": lambda w: w.detach().clone().exponential_(),
    "geometric_": lambda w: w.detach().clone().geometric_(0.3), "poisson": lambda w: torch.poisson(w.detach()),
    "bernoulli": lambda w: torch.bernoulli(w.detach() / 2), "gamma": lambda w: torch._standard_gamma(w.detach()),
    "rrelu": lambda w: F.rrelu(-w, training=True), "dropout": F.dropout,
    "attention": lambda w: F.scaled_dot_product_attention(*[w.expand(1, 1, 3, 5)] * 3, dropout_p=0.5).sum((0, 1, 2))}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("draw", EQUAL_DRAWS.values(), ids=EQUAL_DRAWS)
def test_two_equal_calls_draw_twice(draw, backend):
    """AOTAutograd takes equal operations of a graph with gradients for one."""
    def twice(w):
        return (draw(w) * w - 2 * draw(w) * w).sum()

    def drawn(fn):
        torch.manual_seed(3)
        w = torch.ones(5, requires_grad=True)
        result = fn(w)
        return result.detach(), *torch.autograd.grad(result, w), torch.rand(2)
    torch.testing.assert_close(drawn(sot.to_static(twice, backend=backend)), drawn(twice))
