"""Penalties on the gradient with respect to inputs that the program makes: gradients, graphs, and the leaves it gets.

The leaf is an intermediate result, so with a backend that compiles, too, all of it is one graph. Only a leaf that the
program gets, or a result below which there is nothing else, keeps its history in plain PyTorch alone.
"""
import pytest
import torch
from harness import Programs, check_by
from torch import nn
from torch.autograd import Variable, grad

import sot

programs, kept = Programs(), Programs()
torch.manual_seed(0)
CRITIC, WEIGHT = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Parameter(torch.ones(4))
X = torch.randn(3, 4)


def penalty(found):
    return ((found.norm(2, dim=1) - 1) ** 2).mean()


@programs
def between_two_batches(x):
    a = torch.rand(x.size(0), 1)
    between = (a * x + (1 - a) * x.flip(0)).requires_grad_(True)
    out = CRITIC(between)
    return penalty(grad(outputs=out, inputs=between, grad_outputs=torch.ones_like(out), create_graph=True,
                        retain_graph=True, only_inputs=True)[0])


@programs
def at_a_detached_result(x):
    inner = (x * 2).detach().requires_grad_()
    return penalty(grad(CRITIC(inner).sum(), inner, create_graph=True)[0])


@programs
def at_random_numbers(x):
    noise = torch.rand_like(x, requires_grad=True)
    return penalty(grad(CRITIC(noise).sum(), noise, None, True, True, True)[0])


@programs
def at_a_variable_of_old(x):
    old = Variable(x * 2, requires_grad=True)
    return penalty(grad(CRITIC(old).sum(), old, create_graph=True)[0]), old.is_leaf, isinstance(x, Variable)


@programs
def by_an_attribute(x):
    copy = x.clone()
    copy.requires_grad = True
    return penalty(grad(CRITIC(copy).sum(), copy, create_graph=True)[0])


@kept
def a_leaf_that_is_returned(x):
    inner = (x * 2).requires_grad_()
    return (CRITIC(inner) * 2).sum(), inner


@kept
def a_result_of_the_leaf_alone(x):
    inner = x.clone().requires_grad_()
    return inner * 2, inner * WEIGHT


@kept
def nothing_else_requires_grad(x):
    inner = x.clone().requires_grad_()
    return (inner * 2).sin(), inner.cos()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@programs.each
def test_a_penalty_is_one_graph(fn, backend):
    check_by(backend, fn, X, breaks=0)
    translated, found = sot.to_static(fn, backend=backend), []
    for of in (fn, translated, translated):
        CRITIC.zero_grad()
        torch.manual_seed(1)
        result = of(X.clone())
        (result[0] if isinstance(result, tuple) else result).backward()
        found.append([p.grad for p in CRITIC.parameters()])
    torch.testing.assert_close(found[1:], [found[0]] * 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@kept.each
def test_leaves_that_the_program_gets_have_their_history(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for _ in range(2):
        found = []
        for of in (fn, translated):
            results = of(X.clone())
            sum(result.sum() for result in results).backward()
            found.append([(r.detach(), r.requires_grad, r.is_leaf, r.grad if r.is_leaf else None) for r in results])
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_sixth_argument_says_nothing_about_unused_inputs(backend):
    """It is ``only_inputs``. It was taken for ``allow_unused``."""
    def fn(x):
        try:
            return grad((x * 2).sum(), [x, WEIGHT], None, True, True, True)
        except RuntimeError as e:
            return str(e)[:40]

    check_by(backend, fn, X.clone().requires_grad_())
