"""Captures whose graphs are equal share a compiled graph: phases of a schedule, sides of a condition on a counter."""
from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules

import sot
from sot.codegen import compile_graph
from sot.codegen.compiled_graphs import pieces

SCHEDULES = {
    "steps": lambda optimizer: schedules.StepLR(optimizer, 2),
    "milestones": lambda optimizer: schedules.MultiStepLR(optimizer, [2, 4]),
    "cosine": lambda optimizer: schedules.CosineAnnealingLR(optimizer, 10),
    "restarts": lambda optimizer: schedules.CosineAnnealingWarmRestarts(optimizer, 3),
    "one_cycle": lambda optimizer: schedules.OneCycleLR(optimizer, 0.1, total_steps=30),
    "function": lambda optimizer: schedules.LambdaLR(optimizer, lambda epoch: 0.9 ** epoch),
    "linear": lambda optimizer: schedules.LinearLR(optimizer),
    "polynomial": lambda optimizer: schedules.PolynomialLR(optimizer, 5),
    "cyclic": lambda optimizer: schedules.CyclicLR(optimizer, 0.01, 0.1, 2, cycle_momentum=False),
    "chained": lambda optimizer: schedules.ChainedScheduler(
        [schedules.ConstantLR(optimizer, 0.1, 2), schedules.ExponentialLR(optimizer, 0.9)]),
    "sequential": lambda optimizer: schedules.SequentialLR(
        optimizer, [schedules.ConstantLR(optimizer, 0.1, 2), schedules.ExponentialLR(optimizer, 0.9)], [3]),
}


@pytest.fixture
def compiled(monkeypatch):
    """The graphs that backends have compiled."""
    graphs = []

    def counted(call):
        def run(backend, gm, examples):
            graphs.append(gm)
            return call(backend, gm, examples)
        return run

    for module in (compile_graph, pieces):
        monkeypatch.setattr(module, "call_backend", counted(module.call_backend))
    return graphs


def trained(translate, schedule, steps=9):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = schedule(optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    step = translate(step)
    losses = [step(torch.linspace(-1, 1, 8).view(2, 4) * (i + 1)) for i in range(steps)]
    return losses, *model.parameters(), scheduler.get_last_lr()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_step_with_a_schedule_is_compiled_once(name, compiled):
    got = trained(lambda f: sot.to_static(f, backend="aot_eager"), SCHEDULES[name])
    torch.testing.assert_close(got, trained(lambda f: f, SCHEDULES[name]))
    assert len(compiled) == 1


def check(function, calls, compiled, graphs):
    """The results of calls, and how many graphs are compiled for them."""
    translated = sot.to_static(function, backend="aot_eager", dynamic=False)
    for args in calls:
        torch.testing.assert_close(translated(*args), function(*args))
    assert len(translated.captures) == len(calls) and len(compiled) == graphs


X, W = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)


def test_what_only_python_sees_makes_no_other_graph(compiled):
    check(lambda x, n: (x.sin() * 2, n + 1, 2 if n % 2 == 0 else 3), [(X, 1), (X, 2), (X, 3)], compiled, 1)


@pytest.mark.slow
def test_constants_differ_by_type_and_sign(compiled):
    def filled(x, v):
        return torch.full_like(x, v, dtype=None), torch.full((2,), v), x * v, torch.tensor(v)
    check(filled, [(X, 1), (X, 1.0), (X, True), (X, 0.0), (X, -0.0), (X, 2)], compiled, 6)


@pytest.mark.slow
def test_other_inputs_are_other_graphs(compiled):
    strided = torch.randn(4, 3).t()
    inputs = [X, X.double(), W, strided, nn.Parameter(X.clone()), torch.randn(4, 4), torch.randn(1, 4)]
    check(lambda x: (x.sin(), x.is_leaf), [(x,) for x in inputs], compiled, len(inputs))


def test_the_same_tensor_twice_is_another_graph(compiled):
    def add(x, y):
        x.add_(1)
        return x * y

    translated = sot.to_static(add, backend="aot_eager")
    for shares in (False, True, False, True):
        x, z = torch.ones(4), torch.ones(4)
        got = translated(x, x if shares else torch.ones(4))
        torch.testing.assert_close(got, add(z, z if shares else torch.ones(4)))
    assert len(compiled) == 2


@pytest.mark.slow
def test_torch_s_state_is_that_of_the_compilation(compiled):
    def step(x, n):
        return torch.ones(3) / 3 + x[0, :3].sum(), torch.mm(x, x.t()), n + 1

    translated = sot.to_static(step, backend="aot_eager", dynamic=False)
    torch.testing.assert_close(translated(X, 1), step(X, 1))
    torch.set_default_dtype(torch.float64)
    try:
        torch.testing.assert_close(translated(X, 2), step(X, 2))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(translated(X, 3), step(X, 3))
    with torch.no_grad():
        torch.testing.assert_close(translated(W, 4), step(W, 4))
    result = translated(W, 4)
    assert result[1].requires_grad


def test_gradients_go_through_both_captures(compiled):
    weight = torch.randn(3, 4, requires_grad=True)

    def loss(x, n):
        return (x * weight).square().sum(), n % 2

    translated = sot.to_static(loss, backend="aot_eager", dynamic=False)
    (first, _), (second, _) = translated(X, 1), translated(X * 2, 2)
    second.backward()
    first.backward()
    got, weight.grad = weight.grad, None
    for scale, n in ((1, 1), (2, 2)):
        loss(X * scale, n)[0].backward()
    torch.testing.assert_close(got, weight.grad)
    assert len(compiled) == 1
    with pytest.raises(RuntimeError, match="second time"):
        first.backward()


def test_random_numbers_are_drawn_anew(compiled):
    def draw(x, n):
        torch.nn.functional.dropout(x)
        return torch.nn.functional.dropout(x), n + 1

    translated = sot.to_static(draw, backend="aot_eager", dynamic=False)
    for n in (1, 2, 1, 3):
        torch.manual_seed(n)
        got = translated(X, n), torch.rand(2)
        torch.manual_seed(n)
        torch.testing.assert_close(got, (draw(X, n), torch.rand(2)))
    assert len(compiled) == 1


@pytest.mark.slow
def test_a_graph_is_dropped_with_its_entries(compiled):
    def step(x, n):
        return x.cos() * 3, n + 1

    translated = sot.to_static(step, backend="aot_eager", dynamic=False)
    translated(X, 1)
    sot.reset()
    gc.collect()
    translated(X, 1)
    assert len(compiled) == 2
