"""Training steps with a GradScaler: a step that is skipped for an infinite gradient leaves all as it was.

Plain PyTorch reads off a tensor whether to skip a step. A graph computes both outcomes, where the optimizer is one
of torch.optim and has its state. Python takes all other steps.
"""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

import sot
from sot.backends import lookup_backend


class Counting:
    def __init__(self, name: str = "aot_eager") -> None:
        self.graphs, self.inner = 0, lookup_backend(name)

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        self.graphs += 1
        return self.inner(gm, inputs)


class CountingSteps(torch.optim.Optimizer):
    """An optimizer of the program. Its changes of Python objects cannot be undone."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=self.param_groups[0]["lr"] / self.steps)


def train(translate: Any, kind: Any = torch.optim.AdamW, infinite: tuple = (2,), clip: bool = True, hook: bool = False,
          scheduled: bool = False, **options: Any) -> Any:
    """All that can be told from outside of a few steps. In those that are ``infinite`` the gradients are."""
    torch.manual_seed(0)
    m, seen = nn.Linear(6, 3), []
    optimizer, scaler = kind(m.parameters(), lr=0.05, **options), torch.amp.GradScaler(
        "cpu", init_scale=64.0, growth_interval=2)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9) if scheduled else None
    if hook:
        optimizer.register_step_pre_hook(lambda *given: seen.append(-1.0))

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(m(x).float(), y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss
    step = translate(step)
    for i in range(5):
        x, y = torch.randn(4, 9, generator=torch.Generator().manual_seed(i)).split((6, 3), dim=1)
        loss = step(x.contiguous(), y * float("inf") if i in infinite else y.contiguous())
        if schedule is not None:
            schedule.step()
        seen += [loss.detach(), scaler.get_scale(), [p.grad.clone() for p in m.parameters()]]
    return seen, [*m.parameters()], optimizer.state_dict(), scaler.state_dict(), getattr(optimizer, "steps", 0)


def check(backend: Any = None, exact: bool = False, **kwargs: Any) -> None:
    want = train(lambda step: step, **kwargs)
    got = train(lambda step: sot.to_static(step, backend=backend or Counting()), **kwargs)
    near = 0.0 if exact else 1e-5
    torch.testing.assert_close(got, want, rtol=near, atol=near, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind, options", [
    (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {"clip": False, "scheduled": True}),
    (torch.optim.SGD, {"hook": True}), (CountingSteps, {})])
def test_a_step_is_skipped_as_plain_python_skips_it(kind, options):
    check(kind=kind, infinite=(0, 3), **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind, options", [
    (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {"clip": False})])
def test_steps_in_a_kernel_that_knows_of_the_scaler(kind, options):
    check(kind=kind, fused=True, infinite=(3,), **options)


@pytest.mark.parametrize("kind, options", [
    (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {}), (torch.optim.NAdam, {}), (torch.optim.RAdam, {}),
    (torch.optim.Adafactor, {}), (torch.optim.SGD, {"fused": True, "clip": False}), (CountingSteps, {})])
def test_a_backend_that_runs_graphs_as_they_are_gives_the_same_bits(kind, options):
    check("eager", exact=True, kind=kind, infinite=(1, 3), **options)


def test_both_outcomes_are_one_graph():
    backend = Counting()
    train(lambda step: sot.to_static(step, backend=backend, full_graph=True), kind=torch.optim.SGD, infinite=(1, 3))
    assert backend.graphs == 2      # the first step finds no gradients


def test_ids_of_what_existed_before_are_constants_until_they_differ():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    held, names = {"m": first}, {id(first): 1.0, id(second): 2.0}

    def f(x):
        return held["m"](x) * names[id(held["m"])], id(held["m"])
    translated = sot.to_static(f, backend="eager")
    for held["m"] in (first, second, first, nn.Linear(2, 2)):
        names.setdefault(id(held["m"]), 3.0)
        torch.testing.assert_close(translated(torch.ones(2)), f(torch.ones(2)))
