"""Changes of views that ``as_strided`` makes: AOTAutograd refuses chains of such views, so PyTorch runs the graph."""
from __future__ import annotations

import pytest
import torch
from harness import Programs

import sot

programs = Programs()


@programs
def of_a_strided_view(x):
    y = x * 1
    v = y.as_strided((3,), (5,))
    v.as_strided((2,), (1,), 0).add_(1)
    return y, v


@programs
def a_diagonal_of_a_transposed_tensor(x):
    y = x.exp()
    y.t().fill_diagonal_(2.0)
    return y * 2


@programs
def a_diagonal_of_an_input(x):
    x.t()[1:, 1:].fill_diagonal_(2.0, wrap=True)
    return x.as_strided((2, 2), (4, 1), 5)


@programs
def in_a_piece(x):
    y = x.clone().exponential_()
    y.t()[1:, 1:].fill_diagonal_(2.0, wrap=True)
    return y, x.t().clone().exponential_()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_results_are_pythons(fn, backend, monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")

    def outcome(f):
        x = torch.arange(16.0).view(4, 4)
        torch.manual_seed(0)
        return [f(x), f(x), x, torch.rand(2)]
    torch.testing.assert_close(outcome(sot.to_static(fn, backend=backend)), outcome(fn), check_stride=True)
