"""A whole training step is one graph for a backend that compiles: gradients, clipping and the steps of optimizers,
with learning rates as inputs. A backend that runs graphs as they are leaves the steps to Python, to give its bits."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

import sot
from sot.backends import lookup_backend

STEPS = 6
IN_GRAPHS = [
    ("SGD", {"momentum": 0.9, "nesterov": True, "foreach": True}), ("Adam", {"amsgrad": True}),
    ("AdamW", {"foreach": True}), ("SGD", {"weight_decay": 0.1, "fused": True}), ("NAdam", {}),
    ("Adagrad", {"lr_decay": 0.1})]


class Counting:
    def __init__(self, inner):
        self.graphs, self.inner = 0, inner

    def __call__(self, gm, inputs):
        self.graphs += 1
        return self.inner(gm, inputs)


def train(translate, kinds):
    """What all can be told from outside of a few steps with each of these optimizers."""
    torch.manual_seed(0)
    models = [nn.Linear(3, 2) for _ in kinds]
    averages = [p.detach().clone() for p in models[0].parameters()]
    optimizers = [getattr(torch.optim, name)(m.parameters(), lr=0.05, **options)
                  for m, (name, options) in zip(models, kinds, strict=True)]
    schedules = [lr_scheduler.CosineAnnealingLR(optimizer, STEPS) for optimizer in optimizers]

    def step(x, y):
        losses = []
        for m, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            for average, p in zip(averages, models[0].parameters(), strict=True):
                average.lerp_(p, 0.1)
        return losses
    step, found = translate(step), []
    for i in range(STEPS):
        x, y = torch.randn(4, 5, generator=torch.Generator().manual_seed(i)).split((3, 2), dim=1)
        found += step(x, y)
        for schedule in schedules:
            schedule.step()
    state = [v for optimizer in optimizers for values in optimizer.state.values() for v in values.values()]
    return [*found, *averages, *(p for m in models for p in m.parameters()),
            *(p.grad for m in models for p in m.parameters()), *filter(torch.is_tensor, state)]


@pytest.mark.slow
def test_a_whole_step_is_one_graph():
    backend = Counting(lookup_backend("aot_eager"))
    got = train(lambda step: sot.to_static(step, backend=backend, full_graph=True), IN_GRAPHS)
    torch.testing.assert_close(got, train(lambda step: step, IN_GRAPHS), rtol=1e-5, atol=1e-5)
    assert backend.graphs == 2      # the first step makes the state


# Each optimizer of torch.optim, the forms that it has, and options. LBFGS calls the loss as often as it needs to, and
# SparseAdam reads the places of a sparse gradient: Python runs their steps.
FORMS = {
    "SGD": (("single", "foreach", "fused"), {"momentum": 0.9, "weight_decay": 0.01}),
    "Adam": (("single", "foreach", "fused"), {"amsgrad": True}),
    "AdamW": (("single", "foreach", "fused"), {"maximize": True}),
    "Adagrad": (("single", "foreach", "fused"), {"lr_decay": 0.1}),
    "Adadelta": (("single", "foreach"), {"weight_decay": 0.01}),
    "Adamax": (("single", "foreach"), {"weight_decay": 0.01}),
    "NAdam": (("single", "foreach"), {"decoupled_weight_decay": True, "weight_decay": 0.01}),
    "RMSprop": (("single", "foreach"), {"momentum": 0.9, "centered": True}),
    "RAdam": (("single", "foreach"), {"weight_decay": 0.01}),
    "ASGD": (("single", "foreach"), {"t0": 5, "weight_decay": 0.01}),
    "Rprop": (("single", "foreach"), {}),
    "Adafactor": (("single", "foreach"), {"weight_decay": 0.01}),
    "Muon": (("single",), {"weight_decay": 0.01}),
}
LEFT_TO_PYTHON = {"LBFGS", "SparseAdam"}
OPTIONS = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
ROWS = [(name, form) for name, (forms, _) in FORMS.items() for form in forms]


def trained(translate, name, form):
    """The losses, weights and state after twenty steps with a learning rate that falls."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4, bias=name != "Muon"), nn.Tanh(), nn.Linear(4, 2, bias=name != "Muon"))
    options = {**FORMS[name][1], **({} if name == "Muon" else OPTIONS[form])}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.95)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    step, losses = translate(step), []
    for i in range(20):
        x, y = torch.randn(4, 5, generator=torch.Generator().manual_seed(i)).split((3, 2), dim=1)
        losses.append(step(x, y))
        schedule.step()
    state = [v for values in optimizer.state.values() for v in values.values()]
    return [*losses, *model.parameters(), *filter(torch.is_tensor, state)]


@pytest.mark.slow
@pytest.mark.parametrize("name, form", ROWS)
def test_the_step_of_each_optimizer_is_in_the_graph(name, form):
    backend = Counting(lookup_backend("aot_eager"))
    got = trained(lambda step: sot.to_static(step, backend=backend, full_graph=True), name, form)
    torch.testing.assert_close(got, trained(lambda step: step, name, form), rtol=1e-5, atol=1e-5)
    assert backend.graphs <= 3      # the first step makes the state, and the learning rate becomes an input


def test_the_table_has_each_optimizer():
    found = {name for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    assert found - {"Optimizer"} <= set(FORMS) | LEFT_TO_PYTHON


# The graphs of 16 steps: the first step, the second, and one for each way that the schedule takes through its branches.
SCHEDULES = {
    "MultiStepLR": (4, {"milestones": [3, 6, 9, 12], "gamma": 0.5}),
    "StepLR": (4, {"step_size": 3}),
    "ExponentialLR": (3, {"gamma": 0.9}),
    "CosineAnnealingLR": (3, {"T_max": 20}),
    "CyclicLR": (4, {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "triangular2"}),
    "PolynomialLR": (3, {"total_iters": 20, "power": 2.0}),
    "OneCycleLR": (4, {"max_lr": 0.1, "total_steps": 20}),
    "LinearLR": (4, {"start_factor": 0.1, "total_iters": 8}),
    "LambdaLR": (3, {"lr_lambda": lambda epoch: 0.95 ** epoch}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_step_of_a_schedule_is_in_the_graph(name):
    graphs, options = SCHEDULES[name]

    def train(translate):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = getattr(lr_scheduler, name)(optimizer, **options)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()
        step, found = translate(step), []
        for i in range(16):
            found += [step(torch.full((4, 3), i / 8)), torch.tensor(optimizer.param_groups[0]["lr"])]
        return [*found, *model.parameters()]
    backend = Counting(lookup_backend("aot_eager"))
    got = train(lambda step: sot.to_static(step, backend=backend))
    torch.testing.assert_close(got, train(lambda step: step), rtol=1e-5, atol=1e-5)
    assert backend.graphs <= graphs


def test_steps_that_are_left_to_python_are_right():
    def train(translate):
        torch.manual_seed(0)
        table, model = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2)
        rows = torch.optim.SparseAdam(table.parameters(), lr=0.05)
        rest = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=3)

        def step(which):
            def loss():
                rest.zero_grad()
                rows.zero_grad()
                value = model(table(which)).pow(2).sum()
                value.backward()
                return value
            rest.step(loss)
            rows.step()
        step = translate(step)
        for i in range(4):
            step(torch.tensor([i, 1]))
        return [*table.parameters(), *model.parameters()]
    torch.testing.assert_close(train(lambda f: sot.to_static(f, backend="aot_eager")), train(lambda f: f))


@pytest.mark.slow
def test_a_backend_that_compiles_nothing_gives_pythons_bits():
    kinds = [("Adam", {"foreach": True}), ("SGD", {"momentum": 0.9})]
    want = train(lambda step: step, kinds)
    for backend in ("eager", lambda gm, inputs: gm.forward):
        got = train(lambda step, backend=backend: sot.to_static(step, backend=backend), kinds)
        assert all(map(torch.equal, got, want))


def test_a_break_for_an_optimizer_says_what_stopped_the_capture():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([parameter])

    def step():
        def loss():
            optimizer.zero_grad()
            loss = parameter.square().sum()
            loss.backward()
            return loss
        return optimizer.step(loss)
    stop, = sot.explain(step)().breaks
    assert stop.message == "Python runs LBFGS.step of torch.optim: a tensor's value is needed as a Python number: float"


def test_a_break_for_an_optimizer_says_why_the_backend_failed():
    def refusing(gm, inputs):
        if any("lerp" in str(node.target) for node in gm.graph.nodes):
            raise RuntimeError("no more shared memory")
        return lookup_backend("aot_eager")(gm, inputs)
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])

    def step():
        optimizer.zero_grad()
        parameter.square().sum().backward()
        optimizer.step()
    captured = sot.to_static(step, backend=refusing)
    for _ in range(3):
        captured()
    message = captured.explain().breaks[0].message
    assert message.startswith("Python runs Adam.step of torch.optim: backend ")
    assert message.endswith(".refusing' raised RuntimeError: no more shared memory")
