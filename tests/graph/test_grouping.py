"""Kernels that have nothing to do with each other are launched as one."""
from __future__ import annotations

import pytest
import torch
from compiling import check_compiled, kernels, leaves, run_reference
from gpu_programs import adam
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels.program import Extern, Group, Program
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
