"""The first gradient of a leaf is autograd's tensor or a copy of it, as in plain PyTorch: ``.grad._version`` and shared
memory show which.
"""
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import sot


def steps():
    """Programs of a matrix, another, a vector of their size, and a constant."""
    yield "one product", lambda w, u, v, x: (w * x).sum()
    yield "an expanded gradient", lambda w, u, v, x: w.sum()
    yield "two uses of a leaf", lambda w, u, v, x: (w * x + w * 2 + w).sum()
    yield "one gradient for two leaves", lambda w, u, v, x: (w + u).mean()
    yield "one gradient for a leaf and an operation", lambda w, u, v, x: (w.exp() + u).mean()
    yield "one gradient for a leaf and a view", lambda w, u, v, x: (w.reshape(-1) + v).mean()
    yield "one gradient for a leaf and a copy", lambda w, u, v, x: (w.reshape(9, 1)[:, 0] + v).mean()
    yield "one gradient for two views", lambda w, u, v, x: (w.reshape(-1) + u.reshape(-1)).mean()
    yield "one gradient for two views and a leaf", lambda w, u, v, x: (w.reshape(-1) + u.reshape(-1) + v).mean()
    yield "one gradient for transposed leaves", lambda w, u, v, x: (w.t() + u.t()).mean()
    yield "parts of a gradient", lambda w, u, v, x: (torch.cat([w, u]) * 2).sum()
    yield "a part of a leaf", lambda w, u, v, x: (w.chunk(3)[0] * 2).sum()
    yield "rows", lambda w, u, v, x: F.embedding(torch.tensor([0, 1]), w).sum()
    yield "a layer", lambda w, u, v, x: F.linear(x, w, v[:3]).relu().sum()
    yield "a norm", lambda w, u, v, x: F.layer_norm(x, (3,), w[0], u[0]).sum()
    yield "recomputed", lambda w, u, v, x: checkpoint(lambda a, b: a.reshape(-1) + b.reshape(-1), w, u,
                                                      use_reentrant=False).mean()


def leaves(layout):
    w, u, v = (torch.ones(shape, requires_grad=True) for shape in [(3, 3), (3, 3), 9])
    if layout == "transposed":
        w = torch.ones(3, 3).t().contiguous().t().requires_grad_()
    if layout == "not dense":
        u = torch.ones(4, 6)[:3, ::2].requires_grad_()
    return w, u, v, torch.arange(1.0, 10).view(3, 3)


def seen(tensors):
    """What a program can see of the gradients."""
    gradients = [t.grad for t in tensors]
    facts = [g if g is None else (g._version, g.stride(), g._is_view(), g.tolist()) for g in gradients]
    memory = [g if g is None else g.untyped_storage().data_ptr() for g in gradients]
    return facts, [None if m is None else memory.index(m) for m in memory]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("loss", [pytest.param(fn, id=name) for name, fn in steps()])
def test_gradients_are_kept_as_autograd_keeps_them(loss, dynamic):
    def step(w, u, v, x):
        loss(w, u, v, x).backward()
    translated = sot.to_static(step, dynamic=dynamic)
    for layout in ("contiguous", "transposed", "not dense"):
        ours, plain = leaves(layout), leaves(layout)
        for _ in range(2):      # the second gradient is added to the first
            translated(*ours)
            step(*plain)
            assert seen(ours) == seen(plain), layout
    assert not any(capture.stopped for capture in translated.translator.captures)


def test_gradients_that_share_memory_are_changed_together():
    def step(w, u, v, x):
        (w.reshape(-1) + u.reshape(-1) + v).mean().backward()
        w.grad.mul_(2)
        return u.grad + 1
    translated = sot.to_static(step)
    ours, plain = leaves(""), leaves("")
    for _ in range(3):
        assert translated(*ours).equal(step(*plain))
        assert seen(ours) == seen(plain)


def test_a_gradient_that_the_program_holds_is_copied():
    def given(w, u, v, x):
        w.backward(x)

    def kept_by_a_hook(w, u, v, x):
        h = w + u
        h.register_hook(kept.append)
        (h * h).sum().backward()

    def kept_by_a_hook_of_the_leaf(w, u, v, x):
        handle = w.register_hook(kept.append)
        (w * x).sum().backward()
        handle.remove()

    def retained(w, u, v, x):
        h = w + u
        h.retain_grad()
        (h * h).sum().backward()
        kept.append(h.grad)

    for step in (given, kept_by_a_hook, kept_by_a_hook_of_the_leaf, retained):
        translated = sot.to_static(step)
        for fn in (step, translated, translated):
            kept: list[torch.Tensor] = []
            ours = leaves("")
            fn(*ours)
            before = [None if t.grad is None else t.grad.clone() for t in ours]
            for held in [*kept, ours[3]]:
                held.zero_()
            assert [None if t.grad is None else t.grad.tolist() for t in ours] == [
                None if t is None else t.tolist() for t in before], step.__name__


class GivesWhatItSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0], None


def test_a_gradient_that_is_an_input_is_copied():
    def step(w, u, v, x):
        GivesWhatItSaved.apply(w, x).sum().backward()
        x.add_(1)
    translated = sot.to_static(step)
    for _ in range(2):
        ours, plain = leaves(""), leaves("")
        translated(*ours)
        step(*plain)
        assert seen(ours) == seen(plain)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_gradient_of_a_sparse_embedding_stays_sparse(backend):
    weight, scale = torch.rand(5, 3, requires_grad=True), torch.rand(3, requires_grad=True)

    def fn(i):
        (F.embedding(i, weight, sparse=True).sin() * scale).sum().backward()
        gradient = weight.grad
        weight.grad = None
        return gradient.is_sparse, gradient.to_dense().cos()

    translated = sot.to_static(fn, backend=backend)
    for i in (torch.tensor([0, 3, 3]), torch.tensor([1, 1, 2]), torch.tensor([4, 0, 1, 2])):
        torch.testing.assert_close(translated(i), fn(i))
