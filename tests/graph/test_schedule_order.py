"""What the scheduler may not change: the order of random draws and other effects, and what is there when it is read."""
from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, check_compiled

import sot
from sot.graph.kernels.program import Program, effects_of
from sot.graph.kernels.verifier import InvalidProgram, verify

SEEN: list[float] = []


@torch.library.custom_op("sot_tests::note", mutates_args=())
def note(x: torch.Tensor, number: float) -> torch.Tensor:
    SEEN.append(number)
    return x + number


note.register_fake(lambda x, number: torch.empty_like(x))
note.register_autograd(lambda ctx, grad: (grad, None))

DRAWING = {
    "dropout, then noise": lambda x: F.dropout(x.relu(), 0.3) * 2 + torch.rand_like(x),
    "noise that is used last": lambda x: _used_last(torch.rand_like(x), torch.randn_like(x) + x.exp()),
    "three draws around a reduction": lambda x: (
        F.dropout(x.softmax(-1), 0.5).sum(0) + torch.randn(16) * torch.rand_like(x).mean(0)),
    "bernoulli of what is computed": lambda x: torch.bernoulli(x.sigmoid()) * torch.rand_like(x) + F.dropout(x, 0.1),
}


def _used_last(first, second):
    return (second * 2).sum(0) + first


def program_of(made: Kernels) -> Program:
    program = made.made[0].program
    assert program is not None
    return program


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("trains", [False, True])
def test_numbers_are_drawn_in_the_programs_order(name, trains):
    f, x = DRAWING[name], torch.linspace(-1, 1, 128).reshape(8, 16).requires_grad_(trains)
    run = sot.to_static(f, backend=Kernels())
    found = []
    for call in (f, run):
        torch.manual_seed(0)
        result = call(x)
        found.append([result, torch.autograd.grad(result.sum(), x) if trains else None, torch.rand(2)])
    torch.testing.assert_close(found[1], found[0])


def test_operators_of_somebody_elses_are_called_in_the_programs_order():
    def f(x):
        a = note(x.relu(), 1.0)
        b = note(x.cos(), 2.0)
        return note(a.sin() + x.relu(), 3.0) + b
    run, x = sot.to_static(f, backend=Kernels()), torch.linspace(-1, 1, 8)
    del SEEN[:]
    torch.testing.assert_close(run(x), f(x))
    assert SEEN == [1.0, 2.0, 3.0] * 2


@pytest.mark.parametrize("trains", [False, True])
def test_an_assertion_is_kept_and_runs_before_later_operators(trains):
    """It returns nothing, so no pass may take it for unused, or ask for its fake value."""
    def f(x):
        torch._assert_async((x > -100).all(), "too small")
        return note((x * 1).sin() * 2 + x.view(-1).view(x.shape), 4.0)      # rewritten by passes
    made = Kernels()
    run, x = sot.to_static(f, backend=made), torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_(trains)
    torch.testing.assert_close(run(x), f(x))
    assert len(effects_of(program_of(made))) == 2
    del SEEN[:]
    for call in (f, run):
        with pytest.raises(RuntimeError, match="too small"):
            call((x.detach() - 200).requires_grad_(trains))
    assert not SEEN and not made.failed


@pytest.mark.slow
def test_the_backward_pass_of_an_assignment_to_a_slice():
    def f(x, b):
        y = x * 2
        y[1:] = b[1:]
        y[:, 2] += 1
        return y.sin()
    x, b = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5, requires_grad=True)
    run = sot.to_static(f, backend=Kernels())
    torch.testing.assert_close(torch.autograd.grad(run(x, b).sum(), (x, b)), torch.autograd.grad(f(x, b).sum(), (x, b)))


@pytest.fixture(scope="module")
def scheduled():
    made = Kernels()
    x = torch.ones(4, 4)
    sot.to_static(lambda x: F.dropout(x.relu(), 0.5) + torch.rand_like(x) @ x, backend=made)(x)
    sot.reset()
    return program_of(made)


def test_the_verifier_passes_what_is_scheduled(scheduled):
    verify(scheduled, effects_of(scheduled))
    assert len(effects_of(scheduled)) == 2


def test_the_verifier_finds_what_is_read_before_it_is_written(scheduled):
    with pytest.raises(InvalidProgram, match="before it is written"):
        verify(dataclasses.replace(scheduled, steps=scheduled.steps[::-1]))


def test_the_verifier_finds_effects_in_another_order(scheduled):
    with pytest.raises(InvalidProgram, match="the effects"):
        verify(scheduled, effects_of(scheduled)[::-1])


def test_the_verifier_finds_a_result_that_nothing_writes(scheduled):
    with pytest.raises(InvalidProgram, match="nothing writes it"):
        verify(dataclasses.replace(scheduled, steps=[]))


def test_places_that_are_stored_to_twice_have_what_came_last():
    def f(x, i, j, v):
        y = x @ x
        y = y.index_put((i,), v * 2)
        y = y.index_put((j,), v.exp().sum(0) + v)
        return y.index_put((i,), v, accumulate=True)
    i, j = torch.tensor([0, 3, 2]), torch.tensor([3, 1, 0])
    made, = check_compiled(f, torch.rand(5, 5), i, j, torch.rand(3, 5))
    kernels = made.program.kernels()
    assert all(kernel.changed() for kernel in kernels[-3:]), "none copies"
    text = [str(kernel) for kernel in kernels]
    assert [next(how for how in ("put ", "add ") if f"\n{how}" in t) for t in text[-3:]] == ["put ", "put ", "add "]


def test_changes_of_the_same_memory_keep_their_order_in_a_kernel_with_others():
    """The first one reads what another kernel, which comes last, reads as well."""
    def f(x, i, j, v, w):
        y = (x @ x).index_put((i,), v * 2).index_put((j,), w)
        return y, (v * 3).exp()
    i, j = torch.tensor([0, 3, 2]), torch.tensor([3, 1, 0])
    made, = check_compiled(f, torch.rand(5, 5), i, j, torch.rand(3, 5), torch.rand(3, 5))
    assert made.cost.kernels == 2
