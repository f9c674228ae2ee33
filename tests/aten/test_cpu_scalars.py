"""0-d tensors of the CPU that are computed alike are computed as vectors, and copied to a GPU at once."""
from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels.program import Extern, Group
from sot.graph.kernels.schedule import schedule
from sot.graph.lowering import lower
from sot.graph.rewrite import passes
from sot.graph.rewrite.cpu_scalars import Stacker, stack_scalars

COUNT = 20


def corrections(steps, rate):
    """What Adam computes from its step counters."""
    found = []
    for step in steps:
        step = step.double()
        bias = torch.where((1 - 0.9 ** step).abs() >= 0.5, 1 - 0.9 ** step, 0.25)
        found += [rate / bias, (1 - 0.999 ** step).sqrt()]
    return found


def in_another_order(steps, rate):
    """The numbers of the second kind are those of the first, in reverse and in part."""
    first = [step * rate for step in steps]
    return [a.exp() + b for a, b in zip(first[::-1], first[5:] + first[:5], strict=True)]


def promoted(steps, rate):
    """Numbers of several types, next to Python's and to a shared one of a wider type."""
    return [(step.int() + 1.5) * rate + (step.long() + 1).bool() for step in steps]


def several_kinds(steps, rate):
    """Two kinds of one operator, fewer than LEAST of a third, and draws, which stay in order."""
    half = [step.half() for step in steps[:10]] + [step * 2 for step in steps[10:]]
    return [h + 1 for h in half] + [h.sinh() for h in half[:3]] + [torch.rand_like(h) for h in half[:9]]


def constants(steps, rate):
    return [step + torch.full((), 2.0) * torch.full((), 3.0, dtype=torch.float64) for step in steps]


def mixed(steps, rate):
    """Each number has another, and a tensor of one element that is no number."""
    return [(a + b) * rate.reshape(1) for a, b in zip(steps, steps[1:] + steps[:1], strict=True)]


@pytest.mark.parametrize("fn", [corrections, in_another_order, promoted, several_kinds, constants, mixed])
def test_the_values_are_those_of_the_numbers(fn):
    steps = [torch.tensor(float(i)) for i in range(1, COUNT + 1)]
    rate = torch.tensor(0.125, dtype=torch.float64)
    graph = make_fx(fn, tracing_mode="fake")(steps, rate)
    before = len(graph.graph.nodes)
    torch.manual_seed(0)
    want = fn(steps, rate)
    assert Stacker(graph.graph).run() >= 10
    assert graph.graph.eliminate_dead_code()
    graph.recompile()
    graph.graph.lint()
    torch.manual_seed(0)
    got = graph(steps, rate)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype is theirs.dtype and mine.shape == theirs.shape
        torch.testing.assert_close(mine, theirs, rtol=1e-15 if theirs.dtype is torch.float64 else None,
                                   atol=0 if theirs.dtype is torch.float64 else None)
    assert len({r.untyped_storage().data_ptr() for r in got}) == len(got), "results share no memory"
    assert fn is not corrections or len(graph.graph.nodes) < before


def test_inputs_of_several_types_are_stacked_by_type():
    inputs = [torch.tensor(float(i) if i % 2 else i) for i in range(COUNT)]
    graph = make_fx(lambda steps: [step * 2 for step in steps], tracing_mode="fake")(inputs)
    assert Stacker(graph.graph).run() == COUNT
    graph.recompile()
    assert [value.dtype for value in graph(inputs)] == [value.dtype for value in inputs]


def test_few_numbers_stay():
    graph = make_fx(corrections, tracing_mode="fake")([torch.ones(())] * 3, torch.ones(()))
    assert Stacker(graph.graph).run() == 0


def test_a_graph_of_the_cpu_stays():
    graph = make_fx(corrections, tracing_mode="fake")([torch.ones(())] * COUNT, torch.ones(()))
    assert stack_scalars(graph.graph) == 0


def step_of_optimizer(steps, params, grads):
    changed = []
    for step, p, g in zip(steps, params, grads, strict=True):
        now = step + 1
        step.copy_(now)
        bias = (1 - 0.9 ** now.double()).float()
        changed.append(p - g * torch.rsqrt(bias) * bias)
    return changed


def program_of(stacked):
    """The scheduled program of a step: counters on the CPU, parameters on a GPU."""
    with FakeTensorMode():
        steps = [torch.empty(()) for _ in range(COUNT)]
        params, grads = ([torch.empty(4, device="cuda") for i in range(COUNT)] for _ in range(2))
        graph = make_fx(step_of_optimizer)(steps, params, grads)
        if stacked:
            assert passes.run(graph)["cpu_scalars"]
        return schedule(lower(graph, "cuda"))


def calls(program):
    return Counter(step.target.name() for step in program.steps if isinstance(step, Extern))


def test_a_program_has_one_call_for_each_operator_and_a_copy_of_each_vector():
    assert calls(program_of(False))["aten::_to_copy"] == 4 * COUNT
    found = calls(program_of(True))
    assert found.pop("aten::copy_") == COUNT        # each counter
    assert found == {"aten::stack": 1, "aten::add.Tensor": 1, "aten::_to_copy": 4, "aten::pow.Scalar": 1,
                     "aten::rsub.Scalar": 1, "aten::rsqrt": 1, "aten::unbind.int": 1, "aten::tensor_split.sections": 2}


def test_kernels_of_equal_parameters_stay_equal():
    """Each element is read as a buffer of its own: its place in the vector is not in the kernel."""
    program = program_of(True)
    kernels = [k for step in program.steps for k in (step.kernels if isinstance(step, Group) else [step])
               if not isinstance(k, Extern)]
    assert len(kernels) == COUNT
    assert {str(s.index) for k in kernels for s in k.body if s.buffer and s.buffer.startswith("tensor_split")} == {"0"}


def test_the_vector_lives_as_long_as_its_elements_are_read():
    program = program_of(True)
    parts = [b for name, b in program.buffers.items() if name.startswith("tensor_split")]
    assert len(parts) == 2 * COUNT and all(b.alias for b in parts)
