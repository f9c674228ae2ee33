"""When the graph of a training step runs, the gradients of the last step are gone from memory, as in plain Python."""
import weakref

import pytest
import torch
from torch import nn

import sot

X = torch.linspace(-1, 1, 12).reshape(3, 4)
TOKENS = torch.tensor([[0, 1], [2, 3]])


class Watching:
    """A backend whose graphs note whether the gradient that ``parameter`` had before the call is gone."""

    def __init__(self, parameter):
        self.parameter, self.seen = parameter, []

    def __call__(self, gm, inputs):
        def call(*args):
            self.seen.append(self.old() is None)
            return gm(*args)
        return call


def trained(step, model, inputs, calls=4):
    """What calls of a step give: in plain Python, and captured; and whether each graph ran without old gradients."""
    results = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        module = model()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        first = next(module.parameters())
        watching = Watching(first)
        run = sot.to_static(step, backend=watching) if is_captured else step
        seen = []
        for _ in range(calls):
            watching.old = weakref.ref(first.grad) if first.grad is not None else lambda: None
            try:
                seen.append(run(module, optimizer, inputs))
            except Exception as error:
                seen.append((type(error), str(error)))
            seen.append(first.grad.clone() if first.grad is not None else None)
        results.append(seen)
    torch.testing.assert_close(*results, rtol=0, atol=0)
    return watching.seen


def linear():
    return nn.Linear(4, 2)


def language():
    return nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2))


def by_the_optimizer(module, optimizer, x):
    optimizer.zero_grad()
    loss = module(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def by_the_module(module, optimizer, x):
    module.zero_grad()
    loss = module(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def one_by_one(module, optimizer, x):
    for p in module.parameters():
        p.grad = None
    loss = module(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("step", [by_the_optimizer, by_the_module, one_by_one])
def test_they_are_released(step):
    assert trained(step, linear, X)[-2:] == [True, True]


@pytest.mark.parametrize("step", [by_the_optimizer, by_the_module])
def test_they_are_released_where_an_operation_may_raise(step):
    """An index may be too large. Then Python runs the step from the start."""
    assert trained(step, language, TOKENS)[-2:] == [True, True]


def after_reading(module, optimizer, x):
    total = sum(p.grad.sum() for p in module.parameters() if p.grad is not None)
    return by_the_optimizer(module, optimizer, x) + total


def after_adding(module, optimizer, x):
    module(x).sum().backward()
    optimizer.step()
    return by_the_optimizer(module, optimizer, x)


def with_zeros(module, optimizer, x):
    optimizer.zero_grad(set_to_none=False)
    loss = module(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("step", [after_reading, after_adding, with_zeros])
def test_those_that_the_step_reads_are_kept(step):
    assert trained(step, linear, X)[-2:] == [False, False]


def returned(module, optimizer, x):
    old = [p.grad for p in module.parameters()]
    return by_the_optimizer(module, optimizer, x), old


def test_those_that_the_step_returns_are_kept():
    assert trained(returned, linear, X)[-2:] == [False, False]


def test_a_step_that_raises_has_released_them_too():
    """Whether the program has asked for them before shows when Python runs the step again."""
    def counting(module, optimizer, x):
        for p in module.parameters():
            if p.grad is not None:
                found.append(p)
        optimizer.zero_grad()
        loss = module(tokens).square().mean()
        loss.backward()
        return loss.detach()

    seen = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        found, tokens, module = [], TOKENS.clone(), language()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        step = sot.to_static(counting, backend="eager") if is_captured else counting
        for _ in range(3):
            step(module, optimizer, X)
        tokens[0] = 9
        with pytest.raises(IndexError):
            step(module, optimizer, X)
        seen.append((len(found), [p.grad for p in module.parameters()]))
    assert seen[0] == seen[1] == (9, [None, None, None])


def test_code_of_a_class_of_parameters_runs_as_often_as_in_python():
    class Watched(nn.Parameter):
        def __getattribute__(self, name):
            if name == "grad":
                told.append("read")
            return super().__getattribute__(name)

        def __setattr__(self, name, value):
            told.append("set")
            super().__setattr__(name, value)

    def step():
        weight.grad = None
        weight.square().sum().backward()

    seen = []
    for run in (step, sot.to_static(step, backend="eager")):
        told, weight = [], Watched(torch.ones(2))
        for _ in range(3):
            run()
        seen.append([*told])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_that_the_rest_of_a_step_does_not_read(backend):
    """After a break in a loop over the gradients, an optimizer of some of the weights reads some of them."""
    def weights_after(translate):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        weights = [*model.parameters()]
        optimizer = torch.optim.AdamW(weights[::2], 1e-2)

        def step(x):
            model(x).square().mean().backward()
            for _, weight in enumerate(weights):
                sot.graph_break()
                weight.grad.div_(2)
            optimizer.step()
            for weight in weights:
                weight.grad = None
        step = translate(step)
        for _ in range(4):
            step(torch.randn(4, 3))
        return step, weights
    translated, got = weights_after(lambda step: sot.to_static(step, backend=backend))
    _, want = weights_after(lambda step: step)
    assert all(map(torch.equal, got, want)) and all(weight.grad is None for weight in got)
    assert "INTERNAL" not in {c.stopped.reason.name for c in sot.translation_of(translated).captures if c.stopped}
