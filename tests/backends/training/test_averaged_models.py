"""Averages of weights within a training step: the model that counts its updates is part of the one graph."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, every_call
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import sot

programs = Programs()


@programs
def an_equal_average(m):
    return AveragedModel(m)


@programs
def an_exponential_average(m):
    return AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))


@programs
def an_average_of_single_weights(m):
    return AveragedModel(m, avg_fn=get_ema_avg_fn(0.9))


@programs
def an_average_of_buffers(m):
    return AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)


def trained(make, translate, steps=20, every=1):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2))
    opt, average = torch.optim.AdamW(m.parameters(), lr=0.01), make(m)

    def step(x, updates):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        if updates:
            average.update_parameters(m)
        return loss.detach()
    step = translate(step)
    data = torch.randn(steps, 6, 4, generator=torch.Generator().manual_seed(1))
    losses = [step(x, i % every == 0) for i, x in enumerate(data)]
    return (losses, m.state_dict(), average.state_dict()), step


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_an_average_is_part_of_the_step(fn, backend):
    got, step = trained(fn, lambda f: sot.to_static(f, backend=every_call(backend)))
    want, _ = trained(fn, lambda f: f)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    if backend == "aot_eager" and fn is not an_average_of_buffers:      # torch orders groups of several dtypes itself
        assert not any(capture.stopped for capture in step.captures) and len(step.captures) <= 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_whether_an_update_is_the_first_is_asked_before_the_graph(backend):
    _, step = trained(an_exponential_average, lambda f: sot.to_static(f, backend=every_call(backend)), steps=5)
    assert not any(capture.stopped for capture in step.captures[1:]) and len(step.captures) <= 3


@pytest.mark.parametrize("every", [2, 5])
def test_an_average_of_some_steps_is_pythons(every):
    got, step = trained(an_exponential_average, lambda f: sot.to_static(f, backend="aot_eager"), every=every)
    want, _ = trained(an_exponential_average, lambda f: f, every=every)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_inductor_compiles_an_average():
    got, step = trained(an_exponential_average, lambda f: sot.to_static(f, backend="inductor"), steps=6)
    want, _ = trained(an_exponential_average, lambda f: f, steps=6)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert step.captures[-1].stopped is None
