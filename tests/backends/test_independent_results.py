"""Losses that have nothing in common, from one captured function: a backward pass through one leaves the others as they
are, with a backend that compiles, too."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs, every_call
from torch import nn

import sot

programs = Programs()


def models(n: int = 2) -> list[nn.Sequential]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(n)]


def batch(i: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(4, 9, generator=torch.Generator().manual_seed(i)).split((6, 3), dim=1)


def gradients(*parts: nn.Module) -> list:
    return [p.grad for part in parts for p in part.parameters()]


def again(loss: torch.Tensor) -> str:
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)
    return "nothing"


@programs
def two_models(translate):
    m, n = models()
    losses = translate(lambda x, y: (F.mse_loss(m(x), y), F.l1_loss(n(x * 2), y)))
    found = []
    for i in range(2):
        a, b = losses(*batch(i))
        b.backward()
        a.backward()
        found += [a.detach(), b.detach(), again(a), again(b)]
    return found, gradients(m, n)


@programs
def each_uses_what_the_other_has_computed(translate):
    actor, critic = models()

    def losses(x, y):
        with torch.no_grad():
            target = actor(x * 0.5)
        value = critic(x)
        policy = actor(x)
        advantage = (y - value).detach()
        return -(policy * advantage).mean(), F.mse_loss(value + policy.detach(), y + target)
    losses = translate(losses)
    for i in range(2):
        for loss in losses(*batch(i)):
            loss.backward()
    return gradients(actor, critic)


@programs
def what_is_shared_saves_nothing(translate):
    m, n = models()

    def losses(x, y):
        shared = x.view(2, 2, 6).flatten(0, 1) + 1
        return F.mse_loss(m(shared), y), F.mse_loss(n(shared), y)
    x, y = batch(0)
    x = x.clone().requires_grad_()
    for loss in translate(losses)(x, y):
        loss.backward()
    return x.grad, gradients(m, n)


@programs
def what_is_shared_is_freed(translate):
    (m,) = models(1)

    def losses(x, y):
        h = m(x)
        return F.mse_loss(h, y), h.square().mean()
    a, b = translate(losses)(*batch(0))
    a.backward()
    return again(b), gradients(m)


@programs
def statistics_that_both_change(translate):
    m, n = models()

    def losses(x, y):
        mean, variance = torch.zeros(3), torch.ones(3)
        a = F.batch_norm(m(x), mean, variance, training=True)
        b = F.batch_norm(n(x), mean, variance, training=True)
        return (a * y).sum(), (b * y).sum(), mean, variance
    *found, mean, variance = translate(losses)(*batch(0))
    sum(found).backward()
    return [v.detach() for v in found], gradients(m, n), mean, variance


@programs
def draws_keep_their_order(translate):
    m, n = models()

    def losses(x, y):
        a = F.dropout(m[0](x))
        b = F.dropout(n[0](x))
        a = F.dropout(m[2](a)) * torch.rand(3)
        return a.square().mean(), F.dropout(n[2](b)).square().mean()
    torch.manual_seed(1)
    found = translate(losses)(*batch(0))
    for loss in found:
        loss.backward()
    return [v.detach() for v in found], gradients(m, n), torch.rand(2)


@programs
def what_is_written_to_a_buffer(translate):
    m, n = models()
    seen = torch.zeros(3)

    def losses(x, y):
        a = F.mse_loss(m(x), y)
        seen.add_(y.mean(0))
        b = F.mse_loss(n(x) * seen.clone(), y)
        seen.mul_(2)
        return a, b
    losses = translate(losses)
    for i in range(2):
        for loss in losses(*batch(i)):
            loss.backward()
    return seen, gradients(m, n)


@programs
def one_for_each_sample(translate):
    (m,) = models(1)
    for loss in translate(lambda x, y: [F.mse_loss(m(a), b) for a, b in zip(x[:2], y)])(*batch(0)):
        loss.backward()
    return gradients(m)


@programs
def one_is_gone_through_in_the_function(translate):
    m, n, o = models(3)

    def step(x, y):
        a = F.mse_loss(m(x), y)
        a.backward()
        return a, F.mse_loss(n(x), y), F.mse_loss(o(x), y)
    a, b, c = translate(step)(*batch(0))
    b.backward()
    c.backward()
    return [v.detach() for v in (a, b, c)], [again(v) for v in (a, b, c)], gradients(m, n, o)


@programs
def a_view_of_what_changes_later(translate):
    """Autograd refuses to return the history of such a view: it was made without gradients, and its base has some."""
    def losses(x):
        weight = torch.zeros(5, 4)
        with torch.no_grad():
            weight[2].fill_(3)
        weight.mul_(x)
        return weight.square().sum(), x.exp().sum()
    x = torch.linspace(0, 1, 4, requires_grad=True)
    first, second = translate(losses)(x)
    second.backward()
    between = x.grad.clone()
    first.backward()
    return first.detach(), second.detach(), between, x.grad


@programs.each
def test_as_in_plain_python(fn):
    got = fn(lambda f: sot.to_static(f, backend=every_call("aot_eager"), full_graph=True))
    torch.testing.assert_close(without_text(got), without_text(fn(lambda f: f)))


def without_text(value):
    if isinstance(value, (list, tuple)):
        return [*map(without_text, value)]
    return torch.tensor(bytearray(value.encode())) if isinstance(value, str) else value


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_losses_that_use_a_size_which_varies(backend):
    m, n = models()

    def losses(x):
        return m(x).exp().sum() / x.shape[0], n(x).exp().sum() * (x.shape[0] + 1)
    translated = sot.to_static(losses, backend=backend)
    for size in (4, 5, 6, 7):
        x, found = torch.linspace(-1, 1, size * 6).view(size, 6), list[list]()
        for call in translated, losses:
            for p in (*m.parameters(), *n.parameters()):
                p.grad = None
            for loss in call(x):
                loss.backward()
            found.append(gradients(m, n))
        torch.testing.assert_close(*found)
    assert len(sot.translation_of(translated).captures) == 2


def test_a_graph_that_takes_a_size_is_cut_and_compiled():
    m, n = models()
    backend = every_call("aot_eager")
    asked = []

    def counting(module, examples):
        asked.append(module)
        return backend(module, examples)

    def losses(x):
        return m(x).exp().sum() / x.shape[0], n(x).exp().sum()
    translated = sot.to_static(losses, backend=counting, dynamic=True)
    for size in (4, 5):
        for loss in translated(torch.ones(size, 6)):
            loss.backward()
    assert len(asked) >= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_losses_of_a_graph_that_cannot_be_cut(backend):
    """Sizes of data: PyTorch runs the graph."""
    def losses(x, y):
        chosen = x[x > 0]
        return (chosen * x.sum()).sum(), y.exp().sum() * chosen.shape[0]
    translated = sot.to_static(losses, backend=backend)
    for size in (4, 5):
        found = list[tuple]()
        for call in translated, losses:
            x, y = (torch.linspace(-1, 1, size).requires_grad_() for _ in range(2))
            for loss in call(x, y):
                loss.backward()
            found.append((x.grad, y.grad))
        torch.testing.assert_close(*found)


@pytest.mark.slow
def test_what_the_compiler_assumes_of_a_size_is_a_guard():
    """The backward pass of cumprod is compiled for one size of its dimension."""
    def fn(x):
        return F.gelu(x).amin((1, 2), keepdim=True), x.clamp(None, 2.5).cumsum(2).cumprod(-3)

    def gradient(f, x):
        results = f(x)
        return torch.autograd.grad(results, x, [torch.ones_like(r) for r in results])[0]
    translated = sot.to_static(fn, backend=every_call("aot_eager"), dynamic=True)
    for n in (2, 3, 5, 9):
        x = torch.linspace(0.5, 1.5, 2 * n * n * n).reshape(2 * n, n, n).requires_grad_()
        torch.testing.assert_close(gradient(translated, x), gradient(fn, x))
