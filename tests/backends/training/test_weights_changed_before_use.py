"""Weights and buffers that change in the forward pass: gradients are those of the values that it reads. Graphs stay
compiled where no gradient goes through what changes."""
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


class Averages(torch.nn.Module):
    """Updates averages of its weight without gradients."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))
        for name in ("first", "second"):
            self.register_buffer(name, torch.ones(4))

    def forward(self, x):
        with torch.no_grad():
            self.first.mul_(self.weight)
            self.second.addcmul_(self.weight, self.weight, value=0.1)
        return x * self.weight


@pytest.mark.parametrize("make", [
    Averages, lambda: torch.nn.BatchNorm1d(4),
    lambda: torch.nn.InstanceNorm1d(4, affine=True, track_running_stats=True)])
def test_buffers_that_weights_change_without_gradients(make):
    def backend(gm, inputs):
        compiled = sot.backends.lookup_backend("aot_eager")(gm, inputs)
        return lambda *args: ran.append(1) or compiled(*args)
    ran, found = [], []
    for translate in (lambda model: model, lambda model: sot.to_static(model, backend=backend)):
        torch.manual_seed(0)
        model = make()
        call, x = translate(model), torch.randn(3, 4, 4)
        results = [call(x) for _ in range(3)]
        sum(results).sum().backward()
        found.append((results, [p.grad for p in model.parameters()], [*model.buffers()]))
    torch.testing.assert_close(*found)
    assert len(ran) == 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_vectors_of_a_spectral_norm_change_at_each_call(backend):
    def train(translate):
        torch.manual_seed(0)
        linear = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4))
        model = torch.nn.Sequential(linear, torch.nn.Tanh(), torch.nn.Linear(4, 2))
        call, found = translate(model), []
        for i in range(4):
            result = call(torch.linspace(-1, 1, 12).view(3, 4) + i)
            result.sum().backward()
            found.append(result.detach())
        return found, [p.grad for p in model.parameters()], [*model.buffers()]
    torch.testing.assert_close(train(lambda m: sot.to_static(m, backend=backend)), train(lambda m: m))
