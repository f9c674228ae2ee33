"""Random ATen programs through the backend, forward and backward, against eager. ``search_programs.py`` runs many more
of them.
"""
from __future__ import annotations

from collections import Counter

import pytest
import torch
from aten_maker import KINDS, Maker
from aten_programs import programs
from compiling import Kernels
from search_programs import Referenced, compare, compare_sizes
from torch import fx

from sot.backends.triton.runtime import laid_out


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(900, 904))
def test_programs_in_the_reference_are_eagers(seed):
    counts: Counter[str] = Counter()
    for program in programs(25, seed):
        compare(program, Referenced, counts)
    assert counts["compared"] >= 20


@pytest.mark.slow
def test_programs_in_tritons_interpreter_are_eagers():
    counts: Counter[str] = Counter()
    for program in programs(8, 910):
        compare(program, Kernels, counts)
    assert counts["compared"] >= 6


@pytest.mark.slow
def test_programs_are_lowered_for_all_sizes():
    counts: Counter[str] = Counter()
    for program in programs(12, 930):
        compare_sizes(program, Referenced, counts)
    assert counts["sets of sizes"] >= 30 and counts["modules for all sizes"] >= 8


@pytest.mark.slow
def test_the_programs_are_various():
    made = list(programs(500, 920))
    text = "\n".join(map(str, made))
    assert all(word in text for word in ("randn_like(", "copy_(", ".sum(", "cumsum(", "[::2", "(0, ", "bfloat16", "()"))
    assert sum(len(p.lines) for p in made) / len(made) > 4 and len(KINDS) > 25
    assert str(Maker(7).make()) == str(Maker(7).make())


def test_constants_are_folded_while_torch_traces_with_fake_tensors():
    """The forward graph of a program with gradients is compiled within AOTAutograd's trace."""
    def f(x):
        return (x * torch.full_like(x, 2.7).int() + torch.zeros_like(x).long(),)
    x = torch.randn(4, requires_grad=True)
    run = Kernels()(fx.symbolic_trace(f), [x])
    torch.testing.assert_close(run(x), f(x))


def test_gradients_of_a_result_whose_elements_share_memory():
    """torch copies a gradient to the strides of the result, so elements of it would overwrite each other."""
    def f(x):
        return (x / 2).unfold(0, 2, 1), (x * 2).expand(2, -1, -1)
    x, gradients = torch.randn(4, 3, requires_grad=True), (torch.randn(3, 3, 2), torch.randn(2, 4, 3))
    run = Kernels()(fx.symbolic_trace(f), [x])
    torch.testing.assert_close(torch.autograd.grad(run(x), x, gradients), torch.autograd.grad(f(x), x, gradients))


@pytest.mark.parametrize("strides", [(0, 1), (3, 0), (1, 4), (3, 1)])
def test_a_tensor_is_laid_out_with_strides_that_may_be_zero(strides):
    tensor = torch.arange(4.0)[:, None].expand(4, 3) if strides == (3, 0) else torch.arange(3.0).expand(4, 3)
    made = laid_out(tensor.contiguous(), strides)
    assert torch.equal(made, tensor) and made.stride() == strides
