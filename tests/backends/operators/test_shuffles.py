"""Random permutations in compiled graphs: they are PyTorch's, and Inductor compiles every use of them."""
import pytest
import torch
import torch.nn.functional as F
from harness import Programs
from torch import nn

import sot

programs = Programs()
W = nn.Linear(3, 4)


@programs
def rows(x):
    return x[torch.randperm(len(x))]


@programs
def rows_and_order(x):
    order = torch.randperm(len(x))
    return x[order] + x, order, torch.randperm(len(x), dtype=torch.int32), x[order[:3]]


@programs
def mixup(x):
    order, target = torch.randperm(len(x)), torch.arange(len(x)) % 4
    scores = W(0.3 * x + 0.7 * x[order])
    return 0.3 * F.cross_entropy(scores, target) + 0.7 * F.cross_entropy(scores, target[order])


@programs
def drawn_by_a_generator(x):
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(3))]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@programs.each
def test_permutations_are_the_programs(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for size in (8, 8, 11, 12):
        x, results = torch.randn(size, 3), []
        for function in (fn, translated):
            torch.manual_seed(size)
            W.zero_grad()
            made = function(x)
            if getattr(made, "requires_grad", False):
                made.backward()
            results.append((made, W.weight.grad, torch.randperm(5)))
        torch.testing.assert_close(*reversed(results), rtol=1e-5, atol=1e-5)
