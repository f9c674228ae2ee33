"""What a compiler is told of sizes: each symbol is an input, and nodes name the symbols they define."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import sot


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.weight = nn.BatchNorm1d(3), nn.Parameter(torch.tensor([1., -2., 3.]))


class OfTheInput(Normalized):
    """Its statistics are computed from an input of the graph, so no operation before gives the compiler the size."""

    def forward(self, x, i):
        return self.norm(x) * self.weight


class OfATurnedInput(Normalized):
    def forward(self, x, i):
        x.t_()
        return self.norm(x.t()) * self.weight


class OfAChangedInput(Normalized):
    def forward(self, x, i):
        x.mul_(2)
        return self.norm(x) * self.weight


class OfGroups(Normalized):
    """The size of the result is one more than a number that depends on data."""

    def forward(self, x, i):
        x = self.norm(x) * self.weight
        return x.new_zeros((int(i.max()) + 1, 3)).scatter_add_(0, i[:, None].expand(-1, 3), x)


class OfSelected(Normalized):
    def forward(self, x, i):
        x = self.norm(x) * self.weight
        return torch.cat([x.index_select(0, (i > 0).nonzero()[:, 0]), x])


class OfNumbers(Normalized):
    def forward(self, x, i):
        return self.norm(x).mean(0) * int(i.sum()) * self.weight


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OfTheInput, OfGroups, OfSelected, OfNumbers])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_of_varying_sizes(kind, backend):
    torch.manual_seed(0)
    theirs = kind().double()      # some gradients are sums that almost cancel
    mine = copy.deepcopy(theirs)
    translated = sot.to_static(mine, backend=backend)
    for size in (4, 5, 7, 9):
        x, i = torch.randn(size, 3).double(), torch.arange(size) // 2
        results = []
        for model, call in ((theirs, theirs), (mine, translated)):
            given = x.clone()
            result = call(given, i)
            result.square().sum().backward()
            results.append([result, given, *model.buffers(), *(p.grad for p in model.parameters())])
        torch.testing.assert_close(*results, rtol=1e-6, atol=1e-8)
    assert len(sot.translation_of(translated).captures) == 2


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("kind", [OfAChangedInput, OfATurnedInput])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_input_that_the_graph_changes_gives_its_size(kind, backend):
    theirs = kind()
    mine = copy.deepcopy(theirs)
    translated = sot.to_static(mine, backend=backend)
    for size in (4, 5, 7, 3):
        x, y = (torch.arange(size * 3.).view(size, 3) for _ in range(2))
        torch.testing.assert_close(translated(x, None), theirs(y, None), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close([x, *mine.buffers()], [y, *theirs.buffers()])
