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


PROGRAMS = [unused, unused_and_computed_with, unused_dropout, drawn_in_place, drawn_into_an_argument,
            layers_that_are_made, nothing_but_a_draw]


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
