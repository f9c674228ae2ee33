"""``torch.autograd.grad`` with respect to results from which other results of the same compiled graph are computed."""
from __future__ import annotations

import sys
import warnings

import pytest
import torch
from harness import Programs
from torch.nn import functional as F

import sot
from sot.backends import BackendWarning

programs = Programs()


@programs
def of_one_result(h, k, loss, w, v):
    return torch.autograd.grad(loss, h)


@programs
def of_all_results(h, k, loss, w, v):
    return torch.autograd.grad([loss * 2, k.sum()], [k, h, loss])


@programs
def from_inside_and_outside(h, k, loss, w, v):
    return torch.autograd.grad(loss + h.square().sum() + k.sum(), h, allow_unused=True)


@programs
def of_a_result_and_of_weights(h, k, loss, w, v):
    return torch.autograd.grad(loss, [w, h, v, k])


@programs
def of_an_edge(h, k, loss, w, v):
    return torch.autograd.grad(loss, [torch.autograd.graph.get_gradient_edge(h)])


@programs
def before_the_backward_pass(h, k, loss, w, v):
    found = torch.autograd.grad(loss, h, retain_graph=True)
    loss.backward()
    return *found, w.grad, v.grad


@programs
def with_a_history(h, k, loss, w, v):
    gradient, = torch.autograd.grad(loss, h, create_graph=True)
    (gradient.square().sum() + loss).backward()
    return gradient, w.grad, v.grad


@programs
def of_what_is_not_used(h, k, loss, w, v):
    other = torch.ones(2, requires_grad=True)
    gradients = torch.autograd.grad(loss, [other, h], retain_graph=True, allow_unused=True)
    zeros = torch.autograd.grad(loss, [h, other], retain_graph=True, materialize_grads=True)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(loss, [h, other])
    return gradients, zeros


@programs
def of_a_result_behind(h, k, loss, w, v):
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(h.sum(), [k])


@programs
def of_something_else(h, k, loss, w, v):
    return torch.autograd.grad(w.sum(), [w, h, v], allow_unused=True)


@programs
def with_hooks(h, k, loss, w, v):
    h.register_hook(lambda g: g * 3)
    k.register_hook(lambda g: g + 1)
    return torch.autograd.grad(loss, [h, k])


@programs
def of_several_losses(h, k, loss, w, v):
    return torch.autograd.grad([loss], [h], [torch.arange(3.0)], is_grads_batched=True)


def found(look, translate, drop=0.0):
    torch.manual_seed(0)
    w, v = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)

    def f(x):
        h = F.dropout((x @ w).sin(), drop)
        k = h.exp()
        return h, k, (k * v).sum() + h.sum()
    translated = translate(f)
    return [look(*translated(torch.randn(4, 4)), w, v) for _ in range(2)], torch.rand(2)


@programs.each
def test_gradients_are_pythons(fn):
    torch.testing.assert_close(found(fn, lambda f: sot.to_static(f, backend="aot_eager")), found(fn, lambda f: f))


def test_gradients_through_dropout():
    """The graph runs again with the same random numbers."""
    got = found(from_inside_and_outside, lambda f: sot.to_static(f, backend="aot_eager"), 0.5)
    torch.testing.assert_close(got, found(from_inside_and_outside, lambda f: f, 0.5))


def test_inductor_gives_the_whole_gradient():
    torch.testing.assert_close(found(of_a_result_and_of_weights, lambda f: sot.to_static(f, backend="inductor")),
                               found(of_a_result_and_of_weights, lambda f: f))


def test_gradients_of_two_graphs_at_once():
    def both(translate):
        w = torch.arange(1.0, 4, requires_grad=True)
        first, second = translate(lambda x: (x * w, (x * w).sin())), translate(lambda x: (x.exp(), x.exp() * w))
        h, y = first(torch.ones(3))
        k, z = second(y)
        return torch.autograd.grad((z + y).sum(), [h, k, y, w], allow_unused=True)
    torch.testing.assert_close(both(lambda f: sot.to_static(f, backend="aot_eager")), both(lambda f: f))


def test_a_graph_that_cannot_run_again_says_so_once():
    w, state = torch.ones(3, requires_grad=True), torch.zeros(100_000)

    @sot.to_static(backend="aot_eager")
    def f(x):
        state.add_(x[0])
        h = x * w
        return h, h * h

    def gradient():
        h, y = f(torch.ones(3))
        return torch.autograd.grad((y + h).sum(), h)[0].tolist()
    with pytest.warns(BackendWarning, match="see only a part"):
        assert gradient() == [1, 1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradient() == [3, 3, 3]


def test_hooks_see_the_stack_that_they_see_without_such_a_graph():
    """Warnings name a line by the number of frames."""
    def stack():
        names, frame = [], sys._getframe(2)     # without this function and the hook
        while frame is not None and frame.f_code is not here:
            names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        return names

    def of(run):
        seen, x = [], torch.ones(3, requires_grad=True)
        x.register_hook(lambda gradient: seen.append(stack()))
        run(x)
        return seen

    here = sys._getframe().f_code
    runs = [lambda x: x.sin().sum().backward(), lambda x: torch.autograd.grad(x.sin().sum(), x)]
    engine = torch.autograd._engine_run_backward
    torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward
    try:
        plain = [of(run) for run in runs]
    finally:
        torch.autograd._engine_run_backward = engine
    results = sot.to_static(lambda x: (y := x * 2, y.sin()), backend="aot_eager")(torch.ones(3, requires_grad=True))
    assert torch.equal(torch.autograd.grad(results[1].sum(), results[0])[0], results[0].detach().cos())
    assert [of(run) for run in runs] == plain
