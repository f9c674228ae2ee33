"""Gradients inside of a captured function: torch.autograd.grad, backward(), .grad, attributes of tensors."""
from __future__ import annotations

import copy

import pytest
import torch
from harness import check, check_by, every_call, outcome, same
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


# ---- functions of autograd that autograd does not record
class Through(torch.autograd.Function):
    """It is given a module and keeps it on its context. What it returns beside the tensor is seen by the program."""

    @staticmethod
    def forward(ctx, x, module, log):
        ctx.save_for_backward(x)
        ctx.module, ctx.needed = module, ctx.needs_input_grad
        log.append(torch.is_grad_enabled())
        return module(x) * 2, ctx.needed[0]

    @staticmethod
    def backward(ctx, g, _):
        return g * 2, None, None


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        kept.append(ctx)
        return x + 1


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        return x


class Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, why):
        raise ValueError(why["why"])


LAYER = torch.nn.Linear(4, 4)


def with_a_module(x):
    log = []
    return Through.apply(x, LAYER, log), log


def with_a_module_and_no_gradients(x):
    log = []
    with torch.no_grad():
        return Through.apply(x, LAYER, log), log


def context_kept(x):
    kept = []
    y = Kept.apply(x, kept)
    return y, type(kept[0]).__name__, kept[0].needs_input_grad


def argument_returned(x):
    y = Same.apply(x, [])
    return y, y is x


def error_caught(x):
    try:
        return Refused.apply(x, {"why": "too much"})
    except ValueError as e:
        return x + 1, str(e), torch.is_grad_enabled()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("fn", "needs_grad", "graphs"), [
    (with_a_module, False, 1), (with_a_module_and_no_gradients, False, 1), (with_a_module_and_no_gradients, True, 1),
    (error_caught, False, 1), (with_a_module, True, None), (context_kept, False, None),
    (argument_returned, False, None)])
def test_a_function_that_autograd_does_not_record_is_its_forward(fn, needs_grad, graphs, backend):
    """Capture once wanted every function as a node, whose arguments a module and a list of the program cannot be."""
    x = torch.arange(8.0).reshape(2, 4).requires_grad_(needs_grad)
    check_by(backend, fn, x, breaks=0 if graphs else None)


# ---- functions of autograd that the call makes
class Scaled(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        return g * ctx.k


def power(k):
    class Power(torch.autograd.Function):
        """A product."""

        @staticmethod
        def forward(x, y):
            return x * y * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y * k, g * x * k
    return Power


def of_a_class_made_here(x, k):
    class Times(Scaled):
        scale = 3

        @staticmethod
        def forward(ctx, a):
            ctx.k = k * Times.scale
            return a * ctx.k
    return Times.apply(Times.apply(x)), Times.__name__


def of_two_classes(x, k):
    first, second = power(k), power(k + 1)
    y = first.apply(x, second.apply(x, x + 1))
    return y, first is second, first.__doc__, issubclass(first, torch.autograd.Function)


def gradient_of_a_made_class(x, k):
    return torch.autograd.grad(power(k).apply(x, x).sum(), x, create_graph=True)


def made_class_without_gradients(x, k):
    with torch.no_grad():
        return power(k).apply(x, x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [of_a_class_made_here, of_two_classes, gradient_of_a_made_class,
                                made_class_without_gradients], ids=lambda f: f.__name__)
def test_a_function_of_autograd_that_the_call_makes_is_in_the_graph(fn, backend):
    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for k in (2, 2, 3, 4, 5):
        want, got = outcome(fn, (G.detach().requires_grad_(), k), {}), outcome(
            translated, (G.detach().requires_grad_(), k), {})
        for part in ("result", "raised", "grads"):
            assert not same(getattr(got, part), getattr(want, part), part)


def test_a_function_of_autograd_that_is_returned_is_whole():
    """Its metaclass has made the class of its nodes."""
    translated = sot.to_static(lambda x, k: (power(k), x + k))
    for k in (2, 2, 3):
        made, _ = translated(X, k)
        x = G.detach().requires_grad_()
        y = made.apply(x, x)
        y.sum().backward()
        assert type(y.grad_fn).__name__ == "PowerBackward" and not same(x.grad, 2 * X * k)


def of_parameters(model, x):
    """The first step of MAML and of a Hessian-vector product."""
    found = torch.autograd.grad(model(x).pow(2).sum(), model.parameters(), create_graph=True)
    weights = torch.autograd.grad(model(x).sum(), (p for p in model.parameters() if p.ndim > 1))
    listed = torch.autograd.grad(model(x).pow(3).sum(), nn.ParameterList(model.parameters()))
    return found, weights, listed


def backward_to_parameters(model, x):
    model.zero_grad()
    model(x).pow(2).sum().backward(inputs=filter(lambda p: p.ndim > 1, model.parameters()))
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("fn", [of_parameters, backward_to_parameters])
def test_gradients_of_any_iterable_of_tensors_are_in_the_graph(fn):
    model, translated = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), sot.to_static(fn, backend="eager")
    for factor in (1, 2, 3):
        assert same(fn(model, X * factor), translated(model, X * factor)) is None
    assert not translated.explain().breaks


def test_gradients_of_no_tensor_raise_as_in_python():
    def fn(x):
        return torch.autograd.grad(x.sum(), iter(()))

    check(fn, G)


def test_sparse_gradients_of_weighted_bags_are_in_the_graph_for_any_number_of_indices():
    def step(bags, indices, offsets, weights):
        loss = bags(indices, offsets, weights).square().sum()
        bags.zero_grad()
        loss.backward()
        return loss.detach()

    plain = nn.EmbeddingBag(9, 4, mode="sum", sparse=True)
    bags, translated = copy.deepcopy(plain), sot.to_static(step, backend="eager", full_graph=True)
    for count in (5, 6, 8, 9):
        args = torch.arange(count), torch.tensor([0, 2, 2]), torch.rand(count)
        assert same(translated(bags, *args), step(plain, *args)) is None
        assert same(bags.weight.grad.coalesce().values(), plain.weight.grad.coalesce().values()) is None
    assert len(translated.captures) <= 3    # without a gradient, with one, and for any size


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("view", [lambda z: z.view_as(z), lambda z: z[:2], lambda z: z.as_subclass(torch.Tensor),
                                  lambda z: z[:2].requires_grad_()], ids=["view_as", "part", "as_subclass", "own"])
def test_a_view_that_was_made_without_gradients_gets_none(view, backend):
    def step(y, w, steps):
        steps += 1      # Python cannot run the frame again
        loss = (y * w.sum()).sum()
        loss.backward()
        return loss.detach()

    def gradients(call):
        z, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        with torch.no_grad():
            y = view(z)
        assert y.is_leaf and y.requires_grad
        steps = torch.zeros(1)
        call(y, w, steps)
        return y.grad, z.grad, w.grad, steps

    captured = sot.to_static(step, backend=backend)
    captured(torch.ones_like(view(torch.ones(3)), requires_grad=True), torch.ones(3, requires_grad=True),
             torch.zeros(1))
    assert not same(gradients(captured), gradients(step), "gradients")
