"""Integers that the program reads off tensors, and makes tensors of: ``torch.tensor([lengths.max().item()])``."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from harness import Programs, caught, same

import sot

program = Programs()


@program
def of_one_number(x):
    return torch.tensor(x.sum().item()) + x, torch.as_tensor(x.max().item(), dtype=torch.float32)


@program
def of_a_list(x):
    return torch.tensor([x.max().item(), 2, x.shape[0]]), torch.tensor([[x[0].item()], [x[1].item()]]) * x


@program
def of_all_elements(x):
    return torch.tensor(x.tolist()) + 1, torch.tensor([n * 2 for n in x.tolist()], dtype=torch.float64)


@program
def of_elements_of_a_change(x):
    x += 1
    return torch.tensor([x[0].item(), x.sum().item()])


@program
def by_an_old_constructor(x):
    return torch.LongTensor([x.sum().item(), 7]), torch.LongTensor([[x[0].item()], [x.shape[0]]])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@program.each
def test_one_graph_for_all_values(fn, backend):
    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for n in range(5):
        x, y = torch.tensor([n, 3, -n]), torch.tensor([n, 3, -n])
        assert same((caught(translated, x), x), (caught(fn, y), y)) is None
    assert len(translated.captures) <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_old_constructor_takes_integers_of_numpy(backend):
    def made(x, given):
        return x + torch.LongTensor(given), torch.LongTensor([x.shape[0], given[0]])
    translated = sot.to_static(made, backend=backend, full_graph=True)
    for n in range(5):
        x, given = torch.ones(2), [np.int64(4), n - 3]
        assert same(translated(x, given), made(x, given)) is None
    assert len(translated.captures) <= 3
