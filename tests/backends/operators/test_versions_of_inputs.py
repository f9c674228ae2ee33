"""Inputs that a compiled graph changes: their versions and their gradients are those of Python."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs

import sot

changes, histories = Programs(), Programs()
X = torch.linspace(-1, 1, 6).view(2, 3)
BACKENDS = ["eager", "aot_eager", "inductor"]


@changes
def once(x, w):
    x.add_(1)
    return x * 2


@changes
def three_times(x, w):
    x.add_(1).mul_(2).sub_(3)
    return x.sum()


@changes
def through_views(x, w):
    x[0].add_(1)
    x.view(-1)[2] = 5
    return x * 2


@changes
def through_another_version(x, w):
    x.data.add_(1)
    return x * 2


@changes
def without_gradients(x, w):
    with torch.no_grad():
        x.add_(1)
        w.mul_(2)
    return x + w


@changes
def turned(x, w):
    x.t_()
    return (w.sum() * x).t()


@changes
def in_a_list(x, w):
    torch._foreach_add_([x], 1.0)
    torch._foreach_mul_([x], 2.0)
    return x * w


@changes
def read_between(x, w):
    before = x._version
    x.add_(1)
    return x * 2, x._version - before


@changes
def a_norm(x, w):
    mean, variance = x[0].detach().clone(), x[1].detach().clone()
    return F.batch_norm(w * 2, mean, variance, training=True), mean


@changes
def resized(x, w):
    x.resize_(6)
    return x * 2


@changes.each
@pytest.mark.parametrize("backend", BACKENDS)
def test_versions_rise_as_in_python(fn, backend):
    def run(f):
        x, w, seen = X.clone(), (X * 1.5).requires_grad_(), []
        for _ in range(2):
            results = f(x, w)
            seen.append((results, x.clone(), w.detach().clone(), x._version, w._version, x.shape, x.stride()))
        return seen
    torch.testing.assert_close(run(sot.to_static(fn, backend=backend)), run(fn))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("options", [{}, {"foreach": False}], ids=["together", "each"])
def test_versions_of_weights_statistics_and_states_are_those_of_python(backend, options):
    def run(translate):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters(), **options)

        def step():
            optimizer.zero_grad()
            model(X.repeat(2, 1)).square().mean().backward()
            optimizer.step()
        step = translate(step)
        for _ in range(4):
            step()
        tensors = (*model.parameters(), *model.buffers(), *(t for s in optimizer.state.values() for t in s.values()))
        return [t._version for t in tensors]
    assert run(lambda f: sot.to_static(f, backend=backend)) == run(lambda f: f)


@histories
def a_changed_value(h, x):
    h.mul_(2)
    return (h * h).sum()


@histories
def a_turned_value(h, x):
    h.t_()
    return (h * h.detach()).sum()


@histories
def a_value_that_gets_a_history(h, x):
    x.mul_(h)
    return (x * 3).sum()


@histories
def one_after_the_other(h, x):
    h.mul_(2)
    x.add_(h)
    return None


@histories
def within_the_call(h, x):
    h.mul_(2)
    return torch.autograd.grad((h ** 3).sum(), h, create_graph=True)[0]


@histories.each
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_for_what_an_input_has_become(fn, backend):
    def run(f):
        found = []
        for _ in range(2):
            w, x = (X * 1.5).requires_grad_(), X.clone()
            h = w * 2
            result = f(h, x)
            loss = (x if result is None else result).sum()
            found.append(torch.autograd.grad(loss, [h, x, w] if x.requires_grad else [h, w], allow_unused=True))
        return found
    torch.testing.assert_close(run(sot.to_static(fn, backend=backend)), run(fn))


def test_what_only_changes_is_compiled():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return sot.backends.lookup_backend("aot_eager")(gm, inputs)

    def f(h):
        return h.mul_(2)
    translated = sot.to_static(f, backend=backend)
    w = X.clone().requires_grad_()
    h = w * 2
    assert translated(h) is h and len(graphs) == 1
    assert torch.equal(torch.autograd.grad(h.sum(), w)[0], torch.full_like(w, 4))
