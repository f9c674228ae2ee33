"""Gradients that depend on inputs which the program changes: the backward pass uses what they were."""
from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import sot


def changed_afterwards(x, state):
    y = x / (state.abs() + 1)
    state.mul_(-2)
    return y


def changed_before(x, state):
    state.mul_(0.9).add_(1)
    return x / (state.abs() + 1)


def changed_through_a_view(x, state):
    y = x.sin() * state.cos()
    state.view(-1)[2:].fill_(3)
    return y, state * 2


def running_statistics(x, state):
    return F.batch_norm(x.expand(4, 7), state[0], state[0] * 2, training=True), x * 3


def only_counted(x, state):
    state.add_(1)
    return x.sin(), state * 2


PROGRAMS = changed_afterwards, changed_before, changed_through_a_view, running_statistics, only_counted


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "triton"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_python(program, backend, fresh):
    run = sot.to_static(program, backend=backend)
    states = [torch.arange(1.0, 8).view(1, 7) for _ in range(2)]
    for _ in range(2):
        found = []
        for f, state in zip((program, run), states, strict=True):
            x = torch.arange(1.0, 5).view(4, 1).requires_grad_()
            results = f(x, state)
            y = results[0] if isinstance(results, tuple) else results
            found.append((results, torch.autograd.grad(y.square().sum(), x), state.clone()))
        torch.testing.assert_close(*found)
