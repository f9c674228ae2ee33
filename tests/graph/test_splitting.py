"""Large reductions to few results, in stages: the same results, from kernels with work for a whole GPU."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiling import check_compiled, kernels, leaves, run_reference
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels import ir
from sot.graph.kernels.program import Program
from sot.graph.kernels.schedule import schedule
from sot.graph.kernels.splitting import split
from sot.graph.lowering import lower
from sot.graph.rewrite import decompositions


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def program_of(f, x: torch.Tensor) -> Program:
    graph = make_fx(lambda x: leaves(f(x)), decompositions.table(), tracing_mode="fake")(x)
    return schedule(lower(graph, x.device.type))


FUNCTIONS = {
    "sum": (lambda x: x.sum(), 2),
    "loss": (lambda x: (x.sin() * 2).square().mean() + 1, 2),
    "columns": (lambda x: x.sum(0), 2),
    "extremes": (lambda x: (x.amax(), x.amin(), x.argmax()), 4),
    "variance": (lambda x: x.var(), 4),
    "softmax": (lambda x: x.flatten().softmax(0), 5),
    "norm": (lambda x: x / x.norm(), 3),
    "what needs no reduction": (lambda x: ((y := x.exp()), y.sum()), 2),
    "two of the same": (lambda x: (x.sum(), x.square().sum()), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reduction_in_stages_is_the_same(name):
    f, count = FUNCTIONS[name]
    x = numbers(96, 6)
    cut = split(program_of(f, x), wide=64)
    for kernel in kernels(cut):
        ir.verify(kernel)
        assert str(ir.parse(str(kernel))) == str(kernel)
    assert len(cut.steps) == count
    torch.testing.assert_close(run_reference(cut, [x]), leaves(f(x)))


def test_few_rows_that_are_wide_are_split_and_others_are_not():
    def steps(*shape: int) -> int:
        return len(program_of(lambda x: x.sum(1), torch.empty(*shape, device="meta")).steps)
    assert steps(4, 1 << 20) == 2
    assert steps(4, 1 << 10) == 1
    assert steps(1 << 10, 1 << 16) == 1
    assert steps(1, 65537) == 2, "the parts of a prime number differ"


@pytest.mark.parametrize("rows", [97, 67, 131])
@pytest.mark.parametrize("name", ["sum", "loss", "columns", "extremes", "variance", "two of the same"])
def test_parts_that_differ(name, rows, monkeypatch):
    monkeypatch.setattr("sot.graph.kernels.splitting.PROGRAMS", 32)
    f, _ = FUNCTIONS[name]
    x = numbers(rows, 7)
    cut = split(program_of(f, x), wide=64)
    for kernel in kernels(cut):
        ir.verify(kernel)
    assert any(" if " in str(kernel) for kernel in kernels(cut))
    torch.testing.assert_close(run_reference(cut, [x]), leaves(f(x)))


def test_each_part_is_read_once():
    first, last = kernels(program_of(lambda x: x.sum(), torch.empty(1 << 20, device="meta")))
    assert (first.row_count, first.width, last.row_count, last.width) == (512, 2048, 1, 512)


def test_a_split_program_runs():
    x = numbers(1 << 16).requires_grad_()
    forward, _ = check_compiled(lambda x: F.layer_norm(x, x.shape).sum() * x.square().mean(), x, rtol=1e-3, atol=1e-3)
    assert forward.cost.kernels > 2
