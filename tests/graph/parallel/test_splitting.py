"""Large reductions to few results, in stages: the same results, from kernels with work for a whole GPU."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiling import check_compiled, kernels, leaves, run_reference
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels import ir
from sot.graph.kernels.parallel.splitting import parts_of, split
from sot.graph.kernels.program import Program
from sot.graph.kernels.schedule import schedule
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
    "channels that are last": (lambda x: x.view(12, 8, 6).var((0, 1)), 4),
    "a norm of channels": (lambda x: F.batch_norm(x.view(12, 6, 8), None, None, training=True), 5),
    "a norm of channels that are last": (lambda x: F.batch_norm(x, None, None, training=True), 5),
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
    monkeypatch.setattr("sot.graph.kernels.parallel.splitting.PROGRAMS", 32)
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


def test_results_that_are_neighbours_are_computed_together():
    """Each part has whole rows of them, so that memory is read in its order."""
    first, last = kernels(program_of(lambda x: x.sum((0, 1)), torch.empty(32, 64, 100, device="meta")))
    assert [n for _, n in first.rows] == [32, 2, 100]
    assert first.width == 32 and last.width == 32 * 2
    for kernel in (first, last):
        assert dict(next(iter(kernel.loads())).index.terms)[kernel.rows[-1][0]] == 1


def test_running_statistics_change_in_a_split_kernel(monkeypatch):
    monkeypatch.setattr("sot.graph.kernels.parallel.splitting.split.__defaults__", (64,))

    def run(x, mean, variance):
        return F.batch_norm(x, mean, variance, training=True), mean * 1, variance * 1
    (made,) = check_compiled(run, numbers(40, 6), numbers(6), numbers(6).abs())
    assert made.cost.kernels == 5


@pytest.mark.parametrize(("place", "is_split"), [("y[128*p0 + r0]", True), ("x[128*p0 + r0]", False)])
def test_what_is_changed_at_every_point_is_read_in_one_kernel(place, is_split):
    """The last kernel would read the new elements."""
    kernel = ir.parse(f"""
        kernel normalized over p0:2 | r0:128
        buffer x f32 256
        buffer y f32 256
        v0:f32 = load x[128*p0 + r0]
        v1:f32 = sum v0
        v2:f32 = div v0 v1
        store {place} v2""")
    assert bool(parts_of(kernel, 64)) == is_split


def test_a_split_program_runs():
    x = numbers(1 << 16).requires_grad_()
    forward, _ = check_compiled(lambda x: F.layer_norm(x, x.shape).sum() * x.square().mean(), x, rtol=1e-3, atol=1e-3)
    assert forward.cost.kernels > 2
