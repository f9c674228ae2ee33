"""A whole training step is one graph for a backend that compiles: gradients, clipping and the steps of optimizers,
with learning rates as inputs. A backend that runs graphs as they are leaves the steps to Python, to give its bits."""
from __future__ import annotations

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
LEFT_TO_PYTHON = [("RAdam", {}), ("ASGD", {})]


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


def test_a_whole_step_is_one_graph():
    backend = Counting(lookup_backend("aot_eager"))
    got = train(lambda step: sot.to_static(step, backend=backend, full_graph=True), IN_GRAPHS)
    torch.testing.assert_close(got, train(lambda step: step, IN_GRAPHS), rtol=1e-5, atol=1e-5)
    assert backend.graphs == 2      # the first step makes the state


def test_what_a_graph_cannot_do_is_left_to_python():
    got = train(lambda step: sot.to_static(step, backend="aot_eager"), LEFT_TO_PYTHON)
    torch.testing.assert_close(got, train(lambda step: step, LEFT_TO_PYTHON), rtol=1e-5, atol=1e-5)


def test_a_backend_that_compiles_nothing_gives_pythons_bits():
    kinds = [("Adam", {"foreach": True}), ("SGD", {"momentum": 0.9})]
    want = train(lambda step: step, kinds)
    for backend in ("eager", lambda gm, inputs: gm.forward):
        got = train(lambda step, backend=backend: sot.to_static(step, backend=backend), kinds)
        assert all(map(torch.equal, got, want))
