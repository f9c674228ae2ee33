"""Copies of modules inside of a captured function: parameters, buffers, tied weights, state of a class."""
from __future__ import annotations

import copy

import pytest
import torch
from harness import check_by
from torch import nn

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(4))
        self.names = {"a": [1, 2]}

    def forward(self, x):
        return self.second(self.first(x)) * self.scale


class WithState(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.loaded = nn.Linear(4, 4), 0

    def __getstate__(self):
        return {**super().__getstate__(), "saved": True}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.loaded += 1

    def forward(self, x):
        return self.lin(x) + self.loaded


class Shared(nn.Module):
    """Buffers that share memory: their copies do, too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.ones(4))
        self.register_buffer("b", self.a.data)

    def forward(self, x):
        self.a.add_(1)
        return x * self.b


def a_copy_that_changes(m, x):
    other = copy.deepcopy(m)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(0.5)
    return other(x), m(x), other.training, [name for name, _ in other.named_parameters()], other


def a_copy_that_is_trained(m, x):
    other = copy.deepcopy(m)
    other(x).square().sum().backward()
    return [(p.grad, p.is_leaf) for p in other.parameters()], [p.grad for p in m.parameters()]


def a_shallow_copy(m, x):
    other = copy.copy(m)
    return other(x), other.training, [a is b for a, b in zip(other.parameters(), m.parameters(), strict=True)]


MODULES = [lambda: nn.Linear(4, 4), lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()).eval(), Tied,
           WithState, Shared, lambda: nn.ModuleList([nn.Linear(4, 4)])[0]]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [a_copy_that_changes, a_copy_that_is_trained, a_shallow_copy], ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", MODULES)
def test_a_copy_of_a_module(make, fn, backend):
    torch.manual_seed(0)
    m = make()
    check_by(backend, fn, m, X, breaks=0 if backend == "eager" and make is not Shared else None)


def test_an_average_of_models_is_made_in_the_graph():
    def averaged(m, x):
        average = torch.optim.swa_utils.AveragedModel(m)
        for _ in range(2):
            with torch.no_grad():
                for p in m.parameters():
                    p.add_(1)
            average.update_parameters(m)
        return average(x), average.n_averaged
    check_by("eager", averaged, nn.Linear(4, 2), X, breaks=0)
