"""Whether a backward pass may raise because of an index, after the program has changed an input."""
import copy

import pytest
import torch
from harness import caught, same
from torch import nn

import sot

BACKENDS = ["eager", "aot_eager"]


class Picks(torch.autograd.Function):
    """Its backward has indices of its own."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        index, = ctx.saved_tensors
        return grad[index], None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chosen", [
    lambda y: y.topk(2)[0], lambda y: y.max(-1)[0], lambda y: y.sort(-1)[0], lambda y: y[torch.where(y[:, 0] > 0)[0]],
    lambda y: y.gather(1, y.argmax(1, keepdim=True)), lambda y: y.new_zeros(4, 3).index_add(0, y.argmax(1), y)])
def test_a_backward_pass_does_not_refuse_the_indices_of_its_forward_pass(chosen, backend):
    model, mean, log = nn.Linear(4, 3), torch.zeros(()), []

    def step(x):
        log.append(1)
        y = chosen(model(x))
        mean.mul_(0.9).add_(y.detach().mean())
        y.square().sum().backward()
        return y.detach()

    start = copy.deepcopy(model.state_dict())
    translated, found = sot.to_static(step, backend=backend), []
    for call in step, translated:
        model.load_state_dict(start), mean.zero_(), log.clear(), model.zero_grad()
        found.append([(call(torch.arange(n * 4.0).reshape(n, 4).sin()), mean.clone(), len(log),
                       [p.grad.clone() for p in model.parameters()]) for n in (5, 5, 6)])
    assert same(*found) is None
    assert not any("which may raise" in str(c.stopped) for c in translated.captures)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_pass_with_indices_of_its_own_may_refuse_them(backend):
    total, log = torch.zeros(2), []

    def step(x, index):
        log.append(1)
        y = Picks.apply(x * x.new_ones(2).requires_grad_(), index)
        total.add_(y.detach())
        y.sum().backward()
        return y.detach()

    found = []
    for call in step, sot.to_static(step, backend=backend):
        total.zero_(), log.clear()
        found.append([(caught(call, torch.ones(2), torch.tensor(index)), total.clone(), len(log))
                      for index in ([0, 1], [1, 0], [0, 7], [0, 1])])
    assert same(*found) is None
