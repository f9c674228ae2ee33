"""Hooks of leaves below a compiled graph, in a backward pass that Python runs: they are called in autograd's order."""
from __future__ import annotations

import pytest
import torch
from harness import Programs
from torch import nn

import sot
from sot.torch_compat.autograd_nodes import any_has_hooks

programs = Programs()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 4))


def hooked(weights, log):
    for i, w in enumerate(weights):
        w.register_hook(lambda g, i=i: log.append((i, g.shape)))
        w.register_post_accumulate_grad_hook(lambda w, i=i: log.append((i, [v.grad is None for v in weights])))


@programs
def layers(weights, x):
    m = model()
    return [torch.func.functional_call(m, dict(zip(dict(m.named_parameters()), weights, strict=True)), x)]


@programs
def a_weight_used_twice(weights, x):
    a, b, *_ = weights
    y = x.mm(a.mm(a.T)[:4, :4] + b.sum())
    return [y * b.mean() + a.sum()]


@programs
def many_weights_of_one_operation(weights, x):
    return [torch.cat([w.flatten() for w in weights]) * x.sum()]


@programs
def many_weights_of_one_node(weights, x):
    return [torch.cat(weights[1:2] * 3 + weights[2:4] + weights[5:6]) * x.sum()]


@programs
def a_weight_without_gradient(weights, x):
    (weights[3] * x.sum()).sin()
    return [x @ weights[0].T + weights[1]]


@programs
def a_result_without_gradient(weights, x):
    y = x @ weights[0].T + weights[1]
    return [y, (y * weights[2]).cos() + weights[1]]


@programs
def two_losses(weights, x):
    return [(x @ weights[0].T + weights[1]).square(), (weights[2] * weights[3]).cos(), weights[1].exp()]


@programs
def a_weight_that_changes(weights, x):
    with torch.no_grad():
        weights[1].mul_(2)
    return [x @ weights[0].T + weights[1]]


def called(fn, translate, which):
    log, weights = [], [p.detach().clone().requires_grad_() for p in model().parameters()]
    hooked(weights, log)
    fn = translate(fn)
    for i in range(3):
        results = fn(weights, torch.arange(12.0).view(3, 4) * i)
        log.append(type(results))
        sum(y.sum() for y in results[which]).backward()
    return log, [w.grad for w in weights]


@pytest.mark.parametrize("which", [slice(None), slice(1), slice(-1, None)], ids=["all", "first", "last"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_hooks_are_called_in_autograds_order(fn, backend, which):
    got, want = called(fn, lambda f: sot.to_static(f, backend=backend), which), called(fn, lambda f: f, which)
    assert got[0] == want[0]
    torch.testing.assert_close(got[1], want[1])


def test_a_graph_with_hooks_is_compiled():
    log, ran, weights = [], [], [torch.randn(4, 4, requires_grad=True) for _ in range(6)]

    def backend(gm, inputs):
        compiled = sot.backends.lookup_backend("aot_eager")(gm, inputs)
        return lambda *args: ran.append(1) or compiled(*args)
    hooked(weights, log)
    translated = sot.to_static(a_weight_used_twice, backend=backend)
    for _ in range(2):
        translated(weights, torch.ones(3, 4))[0].sum().backward()
    assert len(ran) == 2


@pytest.mark.parametrize("method", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_that_come_and_go(method):
    log = []
    translated, weights = sot.to_static(a_weight_used_twice, backend="aot_eager"), [
        torch.randn(4, 4, requires_grad=True) for _ in range(6)]
    for hooked in (False, True, False, True):
        handle = getattr(weights[1], method)(lambda w: log.append(hooked)) if hooked else None  # noqa: B023 - at once
        before = len(log)
        translated(weights, torch.ones(3, 4))[0].sum().backward()
        assert len(log) == before + hooked and any_has_hooks(tuple(weights), (0, 1)) == hooked
        assert not any_has_hooks(tuple(weights), (0, 2))
        if handle is not None:
            handle.remove()
    assert translated.captures[0].stopped is None
