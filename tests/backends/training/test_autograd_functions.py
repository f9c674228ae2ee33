"""Autograd functions of the program: what their code reads is guarded, and numbers are inputs of compiled graphs."""
from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from harness import Programs, every_call
from torch.autograd.function import once_differentiable

import sot

numbers, steps = Programs(), Programs()
W = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
HELD = SimpleNamespace(factor=1.0, factors=[1.0], table={"a": 1.0})


@dataclasses.dataclass
class Config:
    factor: float = 1.0


CONFIG = Config()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g * ctx.factor, None


class ByTheClass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.is_float = isinstance(factor, float)
        return x * (3 if ctx.is_float else 5)

    @staticmethod
    def backward(ctx, g):
        return g * (2 if ctx.is_float else 7), None


class ReadsInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * HELD.factor + CONFIG.factor

    @staticmethod
    def backward(ctx, g):
        return g * 2


class ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * HELD.factor + HELD.factors[0] * HELD.table["a"]


class Newer(torch.autograd.Function):
    @staticmethod
    def forward(x, factor, more):
        return x * factor + more, (x * more).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor, ctx.more = inputs
        ctx.save_for_backward(x, output[0])

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * ctx.factor + y.sin() + x * h, None, None


class WithIntermediates(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, factor):
        softened = (x * factor).tanh()
        ctx.save_for_backward(softened, y)
        ctx.power = math.sqrt(factor)
        return softened @ y.T

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        softened, y = ctx.saved_tensors
        first = (g @ y) * (1 - softened ** 2) * ctx.power if ctx.needs_input_grad[0] else None
        return first, g.T @ softened if ctx.needs_input_grad[1] else None, None


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        y, largest = x * factor, x.argmax()
        ctx.mark_non_differentiable(largest)
        ctx.save_for_backward(largest)
        return y, largest

    @staticmethod
    def backward(ctx, g, _):
        return g * ctx.saved_tensors[0], None


@numbers
def an_argument(v):
    return Scaled.apply(W.sin(), v)


@numbers
def a_reversal(v):
    return Reversed.apply(W.sin(), v).cos()


@numbers
def the_class_of_a_number(v):
    return ByTheClass.apply(W.sin(), v)


@numbers
def read_in_forward(v):
    return ReadsInForward.apply(W.sin())


@numbers
def read_in_backward(v):
    return ReadsInBackward.apply(W.sin())


@numbers
def several_results(v):
    y, s = Newer.apply(W.sin(), v, 2)
    return y.cos() + s


@numbers
def intermediates(v):
    return WithIntermediates.apply(W.sin(), W, v)


@numbers
def one_tensor_twice(v):
    return WithIntermediates.apply(W, W, v)


@numbers
def a_part_that_needs_no_gradient(v):
    return WithIntermediates.apply(W.detach(), W, v)


@numbers
def not_differentiable(v):
    y, largest = Marked.apply(W.sin(), v)
    return y + largest


@numbers
def a_second_derivative(v):
    w = W.sin()
    y = Scaled.apply(w, v).pow(3) + Newer.apply(w, v, 3)[0]
    g, = torch.autograd.grad(y.sum(), w, create_graph=True)
    return g * v


def set_factor(v):
    HELD.factor = CONFIG.factor = HELD.factors[0] = HELD.table["a"] = v


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@numbers.each
def test_a_number_that_changes_is_compiled_twice(fn, backend):
    compiled = every_call(backend)
    count = []

    def counting(gm, inputs):
        count.append(gm)
        return compiled(gm, inputs)
    translated = sot.to_static(fn, backend=counting)
    for i in range(6):
        set_factor(0.5 + 0.25 * i)
        results = [f(0.5 + 0.25 * i) for f in (translated, fn)]
        grads = [torch.autograd.grad(result.sum(), W)[0] for result in results]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*grads)
    assert len(count) <= (2 if backend == "aot_eager" else 3)
    assert not any(capture.stopped for capture in translated.captures)


@pytest.mark.slow
def test_inductor_takes_the_numbers():
    translated = sot.to_static(intermediates, backend="inductor")
    for i in range(4):
        results = [f(0.5 + 0.25 * i) for f in (translated, intermediates)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(result.sum(), W)[0] for result in results))
    assert len(translated.captures) <= 2


@steps
def the_whole_step(v, w):
    y = Reversed.apply(w @ w.T, v)
    loss = Scaled.apply(y.sin(), 2.0).sum() + WithIntermediates.apply(w, w.detach(), v).sum()
    loss.backward()
    w.data.sub_(w.grad * 0.1)
    w.grad = None
    return loss.detach()


@steps
def what_the_program_has_changed_before(v, w):
    HELD.factor = v
    y = ReadsInForward.apply(w)
    HELD.factor = v * 2
    ReadsInForward.apply(y).sum().backward()
    return y.detach(), w.grad.clone()


class GoesBackwardInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x @ y).tanh()

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            x, y = (v.detach().requires_grad_() for v in ctx.saved_tensors)
            torch.autograd.backward((x @ y).tanh(), g)
        return x.grad, y.grad


class DifferentiatesInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            loss = (x.sin() * factor).logsumexp(0).sum()
            ctx.save_for_backward(*torch.autograd.grad(loss, x))
        return loss.detach()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


@steps
def gradients_inside_of_gradients(v, w):
    y = GoesBackwardInside.apply(GoesBackwardInside.apply(w, w.T * v), w)
    loss = y.sum() + DifferentiatesInForward.apply(y, v)
    loss.backward()
    w.data.sub_(w.grad * 0.1)
    w.grad = None
    return loss


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@steps.each
def test_a_step_is_one_graph(fn, backend):
    translated = sot.to_static(fn, backend=every_call(backend))
    mine, plain = (W.detach().clone().requires_grad_() for _ in range(2))
    for i in range(6):
        torch.testing.assert_close(translated(0.5 + 0.1 * i, mine), fn(0.5 + 0.1 * i, plain))
        torch.testing.assert_close(mine, plain)
    assert not any(capture.stopped for capture in translated.captures)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(HELD.factor)

    @staticmethod
    def backward(ctx, g):
        return g * HELD.factor


class Logged(torch.autograd.Function):
    log: list = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Logged.log.append(g.sum().item())
        return g * HELD.factor


class ViewedAndLogged(torch.autograd.Function):
    """The frame of its forward makes a leaf, which no compiled graph can return."""

    @staticmethod
    def forward(ctx, x):
        Logged.log.append(0)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * HELD.factor


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("cls", [InPlace, Logged, ViewedAndLogged])
def test_a_function_that_cannot_be_captured_is_pythons(cls, backend):
    def f():
        return cls.apply(W.sin()).cos()
    translated = sot.to_static(f, backend=backend)
    for v in (1.0, 2.0, 3.0):
        set_factor(v)
        results = [g() for g in (translated, f)]
        Logged.log.clear()
        torch.testing.assert_close(*(torch.autograd.grad(result.sum(), W)[0] for result in results))
        torch.testing.assert_close(*results)
        assert len(set(Logged.log)) <= 1 and len(Logged.log) in (0, 2)


class RefusedInTheMiddle(torch.autograd.Function):
    """What stops its capture is in a block that turns gradients on."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            Logged.log.append(torch.is_grad_enabled())
        return g * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_stay_on_where_a_capture_stops_within_a_function(backend):
    def f(w):
        loss = RefusedInTheMiddle.apply(w.sin()).cos().sum()
        loss.backward()
        return loss, torch.is_grad_enabled()
    translated, mine, plain = sot.to_static(f, backend=backend), W.detach().clone(), W.detach().clone()
    for _ in range(3):
        got, wanted = (g(w.requires_grad_()) for g, w in ((translated, mine), (f, plain)))
        torch.testing.assert_close(got[0], wanted[0])
        torch.testing.assert_close(mine.grad, plain.grad)
        assert got[1] is wanted[1] and got[0].requires_grad


class ChangesAWeight(torch.autograd.Function):
    """Its backward adds to the gradient of a weight. A trace of it would put one of the trace's tensors there."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Logged.log.append(0)
        with torch.enable_grad():
            (HELD.weight * 2).sin().sum().backward()
        return g + HELD.weight.grad.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_code_of_a_function_does_not_run_in_a_trace(backend):
    def f(x):
        y = ChangesAWeight.apply(x.sin()).cos()
        y.sum().backward()
        return y.detach()
    found = []
    for g in (sot.to_static(f, backend=backend), f):
        Logged.log.clear()
        HELD.weight = torch.ones(2, requires_grad=True)
        for _ in range(3):
            x = torch.ones(3, requires_grad=True)
            found.append([g(x), x.grad, HELD.weight.grad.clone(), len(Logged.log)])
    torch.testing.assert_close(found[:3], found[3:])
