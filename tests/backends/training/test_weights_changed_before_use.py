"""A weight or buffer that changes before the forward pass reads it: gradients are those of its new values."""
from __future__ import annotations

import copy

import pytest
import torch
from harness import Counter, Programs

import sot

programs = Programs()


class Model(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change
        self.w = torch.nn.Parameter(torch.linspace(-1, 2, 12).view(3, 4))
        self.p = torch.nn.Parameter(torch.linspace(1, 3, 4))
        self.register_buffer("mean", torch.ones(4))
        self.register_buffer("queue", torch.linspace(0, 1, 9).view(3, 3))
        self.loss = None

    def forward(self, x):
        self.loss = torch.zeros(())
        self.change(self, x)
        return torch.tanh(x @ self.w) * self.p * self.mean + self.loss.sum()


@programs
@torch.no_grad()
def adds(m, x):
    m.p.add_(1)


@programs
@torch.no_grad()
def in_two_steps(m, x):
    m.p.mul_(0.5).add_(1)
    m.w += 0.1


@programs
@torch.no_grad()
def divides_by_its_norm(m, x):
    m.w.div_(m.w.norm(dim=1, keepdim=True))
    m.w.mul_(3)


@programs
@torch.no_grad()
def changes_a_part(m, x):
    m.w[0].neg_()
    m.w.t()[1:].sub_(0.5)


@programs
@torch.no_grad()
def overwrites(m, x):
    m.p.copy_(m.w[0] * 2)


@programs
@torch.no_grad()
def overwrites_and_adds(m, x):
    m.p.fill_(2).add_(m.w[1])


@programs
def by_data(m, x):
    m.p.data.add_(1)


@programs
def by_detach(m, x):
    m.w.detach().mul_(0.7)


@programs
@torch.no_grad()
def a_buffer(m, x):
    m.mean.lerp_(x.sum(0).mean().expand(4), 0.1)


@programs
def a_buffer_with_gradients_on(m, x):
    m.mean.mul_(0.9).add_(x.detach().mean())


@programs
def a_buffer_after_a_copy_of_it_is_used(m, x):
    m.loss = (x.sin() @ m.queue.clone().t()).cos()
    with torch.no_grad():
        m.queue[:2] = x.detach()


@programs
def a_copy_of_a_buffer_is_used_after_it(m, x):
    before = m.queue.clone()
    with torch.no_grad():
        m.queue[:2] = x.detach()
    m.loss = (x.sin() @ before.t()).cos() @ m.queue


def steps(model, step):
    found = []
    for n in range(4):
        x = torch.linspace(-1, 1, 6).view(2, 3).mul(n + 1).requires_grad_()
        y = step(x)
        y.sum().backward()
        found.append([y.detach(), x.grad, *(p.grad.clone() for p in model.parameters()),
                      *(t.detach().clone() for t in model.state_dict().values()), model.p._version, model.w._version])
        model.zero_grad()
    return found


@programs.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_new_values(fn, backend):
    model = Model(fn)
    other = copy.deepcopy(model)
    torch.testing.assert_close(steps(other, sot.to_static(other, backend=backend)), steps(model, model))


def test_the_forward_pass_after_a_change_without_gradients_is_compiled():
    graphs = Counter()

    def backend(gm, inputs):
        run = graphs(gm, inputs)
        return lambda *args: run(*args)     # not the graph as it is: a backend that compiles
    model = Model(adds)
    other = copy.deepcopy(model)
    torch.testing.assert_close(steps(other, sot.to_static(other, backend=backend)), steps(model, model))
    assert any("matmul" in graph.code for graph in graphs.graphs)
