"""Arguments whose elements torch negates where they are read: their memory does not hold them."""
from __future__ import annotations

import pytest
import torch

import sot


def plain():
    return torch.arange(1.0, 7.0)


def negated():
    """Every second number of the memory of complex ones, negated."""
    made = torch.complex(plain(), plain()).conj().imag
    assert made.is_neg()
    return made


PROGRAMS = {
    "computed with": lambda x: (x * 2 + 1, x.flip(0), x.sum()),
    "seen otherwise": lambda x: (x.view(2, 3) * 2, x[1:]),
    "parts of it": lambda x: (x.split(2)[1], x.chunk(2)[0], x.view(2, 3).unbind()[0], x.as_strided((3,), (1,))),
    "changed": lambda x: x.add_(1).mul(2),
    "changed through a view": lambda x: x[::2].zero_() + 1,
    "given to a product": lambda x: x.view(2, 3) @ x.view(3, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "triton"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_python(name, backend, fresh):
    f = PROGRAMS[name]
    run = sot.to_static(f, backend=backend)
    for make in (plain, negated, plain, negated):
        mine, theirs = make(), make()
        torch.testing.assert_close((run(mine), mine), (f(theirs), theirs))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "triton"])
def test_a_part_of_one_that_needs_a_gradient_is_a_view(backend, fresh):
    """An operator that returns several views returns those of the argument, not of a copy."""
    f = lambda x: (x.split(3)[0].long().sigmoid(), x.split(6)[-1], x.view(2, 3).unbind()[1])      # noqa: E731
    run = sot.to_static(f, backend=backend)
    for make in (negated, negated, plain):
        x = make().requires_grad_()
        parts = run(x)
        assert [part.stride() for part in parts] == [part.stride() for part in f(x)]
        assert parts[1].data_ptr() == x.data_ptr()
        torch.testing.assert_close(parts, f(x))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "triton"])
def test_gradients_of_what_it_is_multiplied_with(backend, fresh):
    def f(x, w):
        return (x * w).sin().sum()
    run = sot.to_static(f, backend=backend)
    for make in (negated, plain, negated):
        w = torch.ones(6, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(run(make(), w), w), torch.autograd.grad(f(make(), w), w))
