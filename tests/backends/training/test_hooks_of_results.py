"""Hooks of results from which other results of the same compiled graph are computed: they see the whole gradient."""
from __future__ import annotations

import warnings

import pytest
import torch
from harness import Programs
from torch import nn
from torch.nn import functional as F

import sot
from sot.backends import BackendWarning

programs = Programs()


@programs
def a_hook(h, k, log):
    h.register_hook(lambda g: log.append(g.clone()))


@programs
def a_hook_that_replaces(h, k, log):
    h.register_hook(lambda g: g * 2)
    k.register_hook(lambda g: None)
    k.register_hook(lambda g: g + 1)


@programs
def a_hook_that_is_removed(h, k, log):
    h.register_hook(lambda g: g * 2).remove()
    k.register_hook(lambda g: g.cos())


@programs
def a_kept_gradient(h, k, log):
    h.retain_grad()
    log.append(lambda: h.grad)


@programs
def kept_gradients_and_hooks(h, k, log):
    h.retain_grad()
    k.retain_grad()
    h.register_hook(lambda g: g * 3)
    log.append(lambda: (h.grad, k.grad))


def seen(look, translate, drop, twice):
    torch.manual_seed(0)
    w, v, log = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True), []

    def f(x):
        h = F.dropout((x @ w).sin(), drop)
        k = h.exp()
        return h, k, (k * v).sum()
    translated = translate(f)
    for _ in range(3):
        h, k, loss = translated(torch.randn(4, 4))
        look(h, k, log)
        (loss + h.sum() * 3).backward(retain_graph=twice)
        if twice:
            loss.backward()
        log = [entry() if callable(entry) else entry for entry in log]
    return log, w.grad, v.grad, torch.rand(3)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("drop", [0.0, 0.5])
@programs.each
def test_the_whole_gradient_is_seen(fn, drop, twice):
    got = seen(fn, lambda f: sot.to_static(f, backend="aot_eager"), drop, twice)
    torch.testing.assert_close(got, seen(fn, lambda f: f, drop, twice))


def test_inductor_shows_the_whole_gradient():
    got = seen(a_hook, lambda f: sot.to_static(f, backend="inductor"), 0.5, False)
    torch.testing.assert_close(got, seen(a_hook, lambda f: f, 0.5, False))


def test_the_graph_runs_again_as_if_it_had_not_changed_its_inputs():
    def hooked(translate):
        torch.manual_seed(0)
        first, norm, second, log = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), []
        count = torch.zeros(())

        def f(x):
            count.add_(1)
            h = norm(first(x)) * count
            return h, second(h.relu())
        translated = translate(f)
        for _ in range(4):
            h, y = translated(torch.randn(3, 4))
            h.register_hook(log.append)
            y.sum().backward()
        return log, first.weight.grad, norm.running_mean, norm.num_batches_tracked, count
    torch.testing.assert_close(hooked(lambda f: sot.to_static(f, backend="aot_eager")), hooked(lambda f: f))


def test_a_graph_that_cannot_run_again_says_so_once():
    w, state, log = torch.ones(3, requires_grad=True), torch.zeros(100_000), []

    @sot.to_static(backend="aot_eager")
    def f(x):
        state.add_(x[0])
        h = x * w
        return h, h * h

    def gradient():
        h, y = f(torch.ones(3))
        h.register_hook(lambda g: log.append(g.tolist()))
        (y + h).sum().backward()
    with pytest.warns(BackendWarning, match="see only a part"):
        gradient()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient()
    assert log == [[1, 1, 1], [3, 3, 3]]


def test_gradients_of_gradients_through_dropout():
    """The graph runs again with the same random numbers."""
    def penalty(translate):
        torch.manual_seed(0)
        f = translate(lambda x: F.dropout(x.sin() * x, 0.5))
        x = torch.arange(6.0).requires_grad_()
        for _ in range(2):
            gradient, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            gradient.square().sum().backward()
        return x.grad, torch.rand(2)
    torch.testing.assert_close(penalty(lambda f: sot.to_static(f, backend="aot_eager")), penalty(lambda f: f))
