"""Autograd functions of the program that return views of their arguments: a compiled graph keeps their backward."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, check_by

programs, changes = Programs(), Programs()


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g / 2


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return 3 * g.view(ctx.shape)


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[0], x[1:]

    @staticmethod
    def backward(ctx, first, others):
        return torch.cat([2 * first[None], 3 * others])


@programs
def with_the_argument(x):
    y = x * 2
    return Halved.apply(y), y


@programs
def with_another_shape(x):
    y = x * 2
    return Flat.apply(y), y.t()


@programs
def of_a_view(x):
    y = x * 2
    return Flat.apply(y[1:]), y


@programs
def two_results(x):
    return Split.apply(x * 2)


@programs
def a_part_of_the_result(x):
    y = x * 2
    return Flat.apply(y)[2:], y


@programs
def a_part_of_a_view_of_an_input(x):
    return Flat.apply(x[1:])[2:]


@programs
def views_of_an_input(x):
    first, others = Split.apply(x)
    return first, others, Halved.apply(x)


@programs
def one_after_the_other(x):
    y = Halved.apply(Halved.apply(x * 2))
    return y.view(-1), y[0]


@programs
def between_operations(x):
    y = Halved.apply((x * 2).relu())
    z = Halved.apply(y @ y.t())
    return z.view(-1), y[0], z.sum()


@programs
def with_a_state(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x * 2
        z = Halved.apply(y)
    return z, y


@programs
def after_a_gradient(x):
    y = x * 2
    z = Halved.apply(y)
    gradient, = torch.autograd.grad((z * z).sum(), x, create_graph=True)
    return z, y, gradient


@programs.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_gradient_is_that_of_the_backward(fn, backend):
    check_by(backend, fn, torch.linspace(-1, 1, 12).view(3, 4).requires_grad_())
    check_by(backend, fn, torch.linspace(-1, 1, 12).view(4, 3).t().requires_grad_())


@changes
def of_a_result(x):
    y = Halved.apply(x * 1)
    y.add_(1)
    return y


@changes
def of_a_result_of_another_shape(x):
    y = Flat.apply(x * 1)
    y.mul_(2)
    return y


@changes.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_autograd_refuses_a_change(fn, backend):
    check_by(backend, fn, torch.ones(3, 4, requires_grad=True))
