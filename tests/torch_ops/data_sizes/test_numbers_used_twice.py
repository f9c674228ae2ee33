"""A number that is read off a tensor is an index, and also a size or compared. A tensor bounds a slice."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, caught, same

import sot

program = Programs()


@program
def checked_first(x, i):
    k = i.item()
    torch._check(0 <= k)
    torch._check(k < x.size(0))
    return x[k] * 2, x[k, 1], x[..., k]


@program
def size_and_index(x, i):
    k = i.max().item()
    return x[:k], x[k], x[k - 1]


@program
def tensor_whose_number_was_read(x, i):
    k = i.item()
    return x[:k].sum(), x[i], x[:, i]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@program.each
def test_results_are_pythons(fn, backend):
    """Also where the index is out of range."""
    translated = sot.to_static(fn, backend=backend, full_graph=backend == "eager")
    for n in (0, 1, 2, 1, 5):
        x, y = (torch.arange(9.).view(3, 3) for _ in "xy")
        assert same((caught(translated, x, torch.tensor(n)), x), (caught(fn, y, torch.tensor(n)), y)) is None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("is_given", [False, True], ids=["a tensor made here", "an argument"])
def test_stores_up_to_a_tensor(backend, is_given):
    """The mask of a padded batch."""
    def masked(mask, lengths):
        mask = mask if is_given else mask * 1
        for i, length in enumerate(lengths):
            mask[i, length:] = 1
            mask[i, :lengths[0]] = 2
        return mask
    translated = sot.to_static(masked, backend=backend, full_graph=True)
    for n in range(5):
        x, y = torch.zeros(3, 4), torch.zeros(3, 4)
        assert same((translated(x, torch.tensor([n, 2, 3])), x), (masked(y, torch.tensor([n, 2, 3])), y)) is None
    assert len(translated.captures) <= 2
