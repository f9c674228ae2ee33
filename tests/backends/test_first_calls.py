"""A first call that makes what later calls find is Python's, for backends that are known to compile: its graph would be
compiled for this one call."""
from __future__ import annotations

import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sot
from sot.backends import lookup_backend
from sot.support.errors import Reason


def batch(i):
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(i)).split((3, 2), dim=1)


def captures(step):
    """The name of each captured function, and whether there is a graph."""
    return [(capture.name.rpartition(".")[2], capture.graph is not None)
            for capture in sot.translation_of(step).captures]


def training(translate, make, every=1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = make(model.parameters())

    def step(i, x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if i % every == every - 1:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()
    step = translate(step)
    losses = [step(i % every, *batch(i)) for i in range(9)]
    state = [v for values in optimizer.state.values() for v in values.values()]
    return [*losses, *model.parameters(), *filter(torch.is_tensor, state)], step


OPTIMIZERS = [lambda p: torch.optim.Adam(p, 0.01), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_the_first_step_is_pythons_and_one_graph_serves_all_others(make):
    got, step = training(lambda step: sot.to_static(step, backend="aot_eager"), make)
    torch.testing.assert_close(got, training(lambda step: step, make)[0], rtol=1e-5, atol=1e-5)
    assert captures(step) == [("step", False), ("step", True)]      # and none of what the first call calls
    assert sot.translation_of(step).captures[0].stopped.reason is Reason.FIRST_CALL


@pytest.mark.parametrize("make, seen", [(OPTIMIZERS[0], False), (lambda p: torch.optim.SGD(p, 0.1), False),
                                        (lambda p: Hidden(OPTIMIZERS[1](p)), True)])
def test_a_first_step_with_an_optimizer_in_reach_is_not_even_captured(make, seen):
    got, step = training(lambda step: sot.to_static(step, backend="aot_eager"), make)
    torch.testing.assert_close(got, training(lambda step: step, make)[0], rtol=1e-5, atol=1e-5)
    first = sot.translation_of(step).captures[0]
    assert first.stopped.reason is Reason.FIRST_CALL and ("execute" in first.seconds) is seen


def test_only_one_call_is_left_however_many_breaks_the_step_has():
    def step(x):
        loss = model(x).square().mean()
        sot.graph_break()
        loss.backward()
        sot.graph_break()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)        # it has no state and no gradients at the next call, too
    translated = sot.to_static(step, backend="aot_eager")
    for _ in range(4):
        translated(torch.ones(2, 3))
    left = [c for c in sot.translation_of(translated).captures if c.stopped and c.stopped.reason is Reason.FIRST_CALL]
    assert len(left) == 1


class Hidden:
    """An optimizer that the step reaches by a method only."""

    def __init__(self, inner):
        self.inner, self.state = inner, {}

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()


def test_gradients_that_are_accumulated_are_right():
    got, step = training(lambda step: sot.to_static(step, backend="aot_eager"), OPTIMIZERS[0], every=2)
    torch.testing.assert_close(got, training(lambda step: step, OPTIMIZERS[0], every=2)[0], rtol=1e-5, atol=1e-5)
    assert [graph for _, graph in captures(step)].count(False) == 2


def test_a_backend_that_may_run_graphs_as_they_are_gets_the_first_call():
    inner = lookup_backend("aot_eager")
    _, step = training(lambda step: sot.to_static(step, backend=lambda gm, inputs: inner(gm, inputs)), OPTIMIZERS[1])
    assert all(graph for _, graph in captures(step))


@pytest.mark.slow
def test_an_explanation_has_the_graph_of_its_call():
    w = nn.Parameter(torch.ones(3))

    def step(x):
        (w * x).sum().backward()
    found = sot.explain(sot.to_static(step, backend="aot_eager"))(torch.ones(3))
    assert len(found.graphs) == 1 and torch.equal(w.grad, torch.ones(3))


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(3.0).cos()
        return x * self.table


def test_a_cache_of_the_first_call_is_compiled_once():
    model = Cached()
    translated = sot.to_static(model, backend="aot_eager")
    for i in range(3):
        assert torch.equal(translated(torch.full((3,), float(i))), i * torch.arange(3.0).cos())
    assert [graph for _, graph in captures(translated)] == [False, True]


def test_a_function_that_makes_something_at_each_call_is_captured_after_two():
    seen = {}

    def f(x, key):
        if key not in seen:
            seen[key] = x + 1
        return seen[key] * 2
    translated = sot.to_static(f, backend="aot_eager")
    for key in "abcd":
        assert torch.equal(translated(torch.ones(2), key), torch.full((2,), 4.0))
    assert [graph for _, graph in captures(translated)] == [False, False, True, True]


def test_an_exception_of_the_first_call_has_the_programs_frames():
    w = nn.Parameter(torch.ones(3))

    def check(loss):
        if loss.item() > 1:
            raise ValueError(loss.item())

    def step(x):
        loss = (w * x).sum()
        loss.backward()
        check(loss)
    step = sot.to_static(step, backend="aot_eager")
    with pytest.raises(ValueError, match="3") as caught:
        step(torch.ones(3))
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert names[-2:] == ["step", "check"]
    assert torch.equal(w.grad, torch.ones(3))


def test_with_full_graph_the_first_call_is_captured_too():
    model = nn.Linear(3, 1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()
    translated = sot.to_static(step, backend="aot_eager", full_graph=True)
    x = torch.ones(2, 3)
    assert translated(x) == step(x)
    assert captures(translated) == [("step", True)]
