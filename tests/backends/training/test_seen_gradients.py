"""Hooks and kept gradients of tensors that a captured function makes, with backends that compile.

A compiled graph is one node of autograd. The program must see the whole gradient of a tensor, not the part of it that
comes from outside of the graph.
"""
import pytest
import torch
from torch import nn

import sot


def hook(x):
    a = x * 2
    b = a.sin()
    a.register_hook(lambda g: g * 10)
    return a * b


def hook_inside(x):
    y = x.detach().requires_grad_()
    (hook(y)).sum().backward()
    return x * y.grad


def kept(x):
    a = x * 2
    b = a.sin()
    a.retain_grad()
    (a * b).sum().backward(retain_graph=True)
    return a * a.grad


def several_hooks(x):
    log = []
    a = x * 2
    b = a.sin()
    c = b * a
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        tensor.register_hook(lambda g, name=name: log.append((name, g.clone())))
    (a * b * c).sum().backward(retain_graph=True)
    return torch.stack([g for _, g in log]), [name for name, _ in log]


def of_a_view(x):
    a = x * 2
    v, w = a[1:], a.relu()
    v.register_hook(lambda g: g * 3)
    a.register_hook(lambda g: g + 1)
    return v.sum() * w.sum()


def of_parts(x):
    a = x.exp()
    parts = torch.split(a, 2)
    parts[0].register_hook(lambda g: g * 2)
    b = a * 3
    a.retain_grad()
    (parts[0].sum() + parts[1].prod() + b.sum()).backward(retain_graph=True)
    return a * a.grad


def after_a_change(x):
    a = x * 2
    a.mul_(3)
    b = a.cos()
    a.register_hook(lambda g: g * 2)
    return a * b


def removed(x):
    a = x * 2
    b = a.sin()
    a.register_hook(lambda g: g * 10).remove()
    return a * b


FUNCTIONS = [hook, hook_inside, kept, several_hooks, of_a_view, of_parts, after_a_change, removed]


def outcome(function, seed):
    torch.manual_seed(seed)
    x = nn.Parameter(torch.randn(4))
    result, *others = returned if isinstance(returned := function(x), tuple) else (returned,)
    if result.requires_grad:
        result.sum().backward()
    return result.detach(), x.grad, others


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_pythons(function, backend):
    translated = sot.to_static(function, backend=backend)
    for seed in range(3):
        want, got = outcome(function, seed), outcome(translated, seed)
        torch.testing.assert_close(got[:2], want[:2])
        assert got[2] == want[2]


def test_a_hook_is_no_break():
    translated = sot.to_static(hook, backend="aot_eager")
    translated(torch.ones(3, requires_grad=True))
    assert [c.stopped for c in translated.captures] == [None]
