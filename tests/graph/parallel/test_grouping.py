"""Kernels that have nothing to do with each other are launched as one."""
from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from compiling import check_compiled, kernels, leaves, run_reference
from gpu_programs import adam
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels import ir
from sot.graph.kernels.parallel.grouping import conflict
from sot.graph.kernels.program import Buffer, Extern, Group, Program
from sot.graph.kernels.schedule import schedule
from sot.graph.lowering import lower
from sot.graph.rewrite import decompositions


def numbers(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def program_of(f, *args: Tensor) -> Program:
    graph = make_fx(lambda *a: leaves(f(*a)), decompositions.table(), tracing_mode="fake")(*args)
    return schedule(lower(graph, "cpu"))


def step_of_all(*tensors: Tensor) -> list:
    return [adam(*tensors[i:i + 4]) for i in range(0, len(tensors), 4)]


@pytest.mark.slow
def test_the_step_of_an_optimizer_over_100_tensors_is_few_launches():
    tensors = [numbers(*shape) for i in range(100) for shape in [(3 + i % 7, 5) if i % 3 else (11,)] * 4]
    program = program_of(step_of_all, *tensors)
    assert len(program.kernels()) == 100
    assert all(isinstance(step, Group) for step in program.steps) and len(program.steps) <= 8
    torch.testing.assert_close(run_reference(program, tensors), leaves(step_of_all(*tensors)))


def test_a_group_runs_and_equal_kernels_of_it_are_one():
    tensors = [numbers(6, 5) for _ in range(12)]
    made, = check_compiled(step_of_all, *tensors)
    assert made.cost.kernels == 1 and len(kernels(made.program)) == 3
    assert made.source.count("tl.store(") == 3, "three results of one function"


def test_what_waits_for_another_kernel_is_not_in_its_group():
    def f(x, y):
        return (x.sin() @ y).cos(), y.exp(), (y * 2).t().contiguous()
    made, = check_compiled(f, numbers(4, 4), numbers(4, 4))
    assert isinstance(made.program.steps[0], Group) and isinstance(made.program.steps[1], Extern)
    check_compiled(lambda x, y: (x @ x).sin() @ y.cos() + y.exp().sum(0), numbers(4, 4), numbers(4, 4))


def test_reductions_and_large_kernels_stay_alone():
    program = program_of(lambda x, y: (x.sum(1), y.sum(1)), numbers(4, 5), numbers(6, 5))
    assert not any(isinstance(step, Group) for step in program.steps)
    large = torch.empty(2049, 1024), torch.empty(2050, 1024)
    assert len(program_of(lambda x, y: (x * 2, y * 2), *large).steps) == 2


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "with positions that are checked"])
def test_kernels_that_are_compiled_otherwise_are_apart(checked):
    def f(x, y, i):
        return x[i] * 2 if checked else x[:2] * 2, y.exp()
    made, = check_compiled(f, numbers(5), numbers(7), torch.tensor([3, 1]))
    assert made.cost.kernels == 1 + checked


def test_kernels_that_add_to_the_same_memory_are_one_launch():
    def f(i, j, w):
        return sum(F.embedding(k, w).sin().sum() * n for n, k in enumerate((i, j, i[:2]), 1))
    where = [torch.randint(0, 30, (n,), generator=torch.Generator().manual_seed(n)) for n in (9, 5)]
    _, backward = check_compiled(f, *where, numbers(30, 4).requires_grad_())
    zeros, additions = backward.program.steps
    assert isinstance(additions, Group) and len(additions.kernels) == 3
    assert additions.changed() == zeros.written()


ADDS = """kernel adds over p0:6
    buffer where i64 6
    buffer y f32 4
    v0:i64 = load where[p0]
    v1:f32 = const 1.0
    add y[v0] v1"""
READS = """kernel reads over p0:4
    buffer y f32 4
    buffer z f32 4
    v0:f32 = load y[p0]
    store z[p0] v0"""
BOTH = ADDS.replace("const 1.0", "load y[p0]")


def test_only_additions_may_run_in_any_order():
    buffers = {"where": Buffer("where", torch.int64, (6,), (1,), torch.device("cpu")),
               **{name: Buffer(name, torch.float32, (4,), (1,), torch.device("cpu")) for name in "yz"}}
    buffers["view"] = dataclasses.replace(buffers["y"], name="view", alias=("y",))
    program = Program([], {}, buffers, [], ())
    adds, both, reads, puts = map(ir.parse, (ADDS, BOTH, READS, ADDS.replace("add y", "put y")))
    reads_view = ir.parse(READS.replace(" y", " view"))
    assert not conflict(adds, adds, program)
    for other in (both, reads, puts, reads_view):
        assert conflict(adds, other, program) and conflict(other, adds, program)
