"""Gradients inside of a captured function: torch.autograd.grad, backward(), .grad, attributes of tensors."""
from __future__ import annotations

import copy

import pytest
import torch
from harness import check, every_call, same
from torch import nn

import sot

torch.manual_seed(0)
X = torch.arange(12.0).reshape(3, 4) / 6
G = (torch.arange(12.0).reshape(3, 4) / 6).requires_grad_()
MLP = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

WHOLE: dict = {}


def whole(fn):
    WHOLE[fn.__name__] = fn
    return fn


@whole
def gradients(x):
    y = (x ** 2).sum()
    return torch.autograd.grad(y, x, retain_graph=True), torch.autograd.grad([y], [x], grad_outputs=[y.detach()])


@whole
def a_penalty(x):
    (g,) = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    return (g ** 2).sum()


@whole
def unused_inputs(x):
    w = x * 2
    return torch.autograd.grad(w.sum(), (x, w, x), allow_unused=True)


@whole
def backward(x):
    (x ** 2).sum().backward()
    return x.grad * 2


@whole
def backward_with_arguments(x):
    y = x ** 2
    y.backward(torch.ones_like(y), retain_graph=True)
    y.backward(gradient=torch.ones_like(y), inputs=[x])
    torch.autograd.backward([(x * 2).sum(), (x * 3).sum()])
    return x.grad


@whole
def accumulation(x):
    for i in range(3):
        (x * i).sum().backward()
    return x.grad


@whole
def accumulation_is_in_place(x):
    x.sum().backward()
    first = x.grad
    x.sum().backward()
    return first is x.grad, first, first.stride()


@whole
def writes_of_grad(x):
    x.grad = torch.ones_like(x)
    y = x.grad + 1
    x.sum().backward()
    z = x.grad.clone()
    x.grad = None
    return y, z, x.grad is None


@whole
def attributes(x):
    y = x * 2
    y.tag, y.other = "a", x
    had = hasattr(y, "tag")
    del y.tag
    x.note = [1, y]
    if getattr(y, "flag", False):
        y = y + 1
    return y, had, hasattr(y, "tag"), hasattr(x, "nope"), y.other is x, x.note


@whole
def attributes_that_are_missing(x):
    try:
        return x.nope
    except AttributeError as e:
        return str(e), x + 1


@pytest.mark.parametrize("fn", WHOLE.values(), ids=WHOLE)
def test_gradients_are_part_of_the_graph(fn):
    check(fn, G, graphs=1, breaks=0)


def test_attributes_of_tensors_are_written_to_them():
    def tag(x):
        x.tag = "seen"
        y = x * 2
        y.parent = x
        return y
    f, x = sot.to_static(tag), X.clone()
    assert f(x).parent is x and x.tag == "seen"

    def read(x):
        return x * (2 if hasattr(x, "tag") else 3)
    f = sot.to_static(read)
    assert torch.equal(f(x), x * 2) and torch.equal(f(X), X * 3) and torch.equal(f(x), x * 2)


def trained(step, calls=3):
    model = copy.deepcopy(MLP)
    losses = [step(model, X + i) for i in range(calls)]
    return losses, [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]


def descends(model, x):
    loss = model(x).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
    return loss.detach()


def descends_and_zeroes(model, x):
    model.zero_grad(set_to_none=False)
    loss = model(x).pow(2).mean()
    loss.backward()
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)
    return loss.detach()


def accumulates(model, x):
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("step", [descends, descends_and_zeroes, accumulates], ids=lambda f: f.__name__)
def test_a_training_step_is_one_graph(step, backend):
    translated = sot.to_static(step, backend=every_call(backend))
    assert same(trained(translated), trained(step)) is None
    captures = sot.translation_of(translated).captures
    assert not any(c.stopped for c in captures), [c.stopped for c in captures]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        print("backward of Doubled")
        return g * 2


def through_a_function(x):
    y = Doubled.apply(x).sum()
    return torch.autograd.grad(y, x)


def through_a_hook(x):
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    return y.grad, x.grad


def from_before(x):
    y = x * 2

    def inner(v):
        return torch.autograd.grad(v.sum(), x)
    return sot.to_static(inner)(y)


def without_history(x):
    try:
        x.detach().sum().backward()
    except RuntimeError as e:
        return str(e)


def freed(x):
    y = (x ** 2).sum()
    y.backward()
    try:
        y.backward()
    except RuntimeError as e:
        return str(e), x.grad


@pytest.mark.parametrize("fn", [through_a_function, through_a_hook, from_before, without_history, freed],
                         ids=lambda f: f.__name__)
def test_what_is_left_to_python_is_right(fn):
    check(fn, G)
