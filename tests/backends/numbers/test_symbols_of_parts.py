"""Graphs that are compiled in parts, with sizes that vary: a part may get only sizes that are computed from symbols.

Compilers need the symbols themselves, so such a part is handed inputs of the whole graph that give them.
"""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import sot

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
LENGTHS = [(4, 1, 1, 1, 1), (4, 1, 1, 2, 3, 2)]     # one symbol and two


def gradients(model: nn.Module) -> list:
    return [p.grad for p in model.parameters()]


class Attends(nn.Module):
    """Keeps the keys of its calls. What is compiled for its result gets them joined."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out, self.kept = nn.Linear(4, 8), nn.Linear(4, 4), None

    def forward(self, x):
        q, k = self.project(x).chunk(2, -1)
        self.kept = k = k if self.kept is None else torch.cat([self.kept, k], 1)
        return self.out((q @ k.transpose(1, 2)).softmax(-1) @ k)


@pytest.mark.parametrize("lengths", LENGTHS, ids=["one", "two"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_independent_results(backend, lengths):
    torch.manual_seed(0)
    model = Attends()
    plain = copy.deepcopy(model)
    translated = sot.to_static(model, backend=backend)
    for n in lengths:
        x = torch.randn(2, n, 4)
        torch.testing.assert_close(translated(x), plain(x))
    translated.kept.sum().backward()
    plain.kept.sum().backward()
    torch.testing.assert_close(gradients(translated), gradients(plain))


class Draws(nn.Module):
    """Random numbers of a generator are drawn by PyTorch, between two compiled parts."""

    def __init__(self, form) -> None:
        super().__init__()
        self.project, self.kept, self.form, self.generator = nn.Linear(4, 4), None, form, torch.Generator()

    def forward(self, x):
        y = self.project(x)
        self.kept = y if self.kept is None else torch.cat([self.kept, y], 1)
        k = self.form(self.kept)
        self.kept = self.kept.detach()
        noise = torch.rand(k.shape, generator=self.generator)
        return ((k.sin() * noise).cos() * 2).mean(1) * k.shape[1]


def half(k):
    return k[:, k.shape[1] // 2:]


def one_less(k):
    return k[:, 1 - k.shape[1]:]


def pairs(k):
    return (k[:, :, None] * k[:, None]).flatten(1, 2)


@pytest.mark.parametrize("form, backend, lengths", [
    *((form, "aot_eager", lengths) for form in (half, one_less, pairs) for lengths in LENGTHS),
    pytest.param(one_less, "inductor", LENGTHS[1], marks=pytest.mark.slow)])
def test_pieces(form, backend, lengths):
    torch.manual_seed(0)
    model = Draws(form)
    plain = copy.deepcopy(model)
    translated = sot.to_static(model, backend=backend)
    for n in lengths:
        x = torch.randn(2, n, 4)
        for module in translated, plain:
            module.zero_grad()
            module(x).square().mean().backward()
        torch.testing.assert_close(gradients(translated), gradients(plain), rtol=1e-5, atol=1e-5)
    assert torch.equal(model.generator.get_state(), plain.generator.get_state())
