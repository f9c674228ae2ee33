"""The inputs of a graph that has many: those that are arguments change with each call, the others hardly ever, and each
call of the graph gets the ones that are there now."""
from __future__ import annotations

import threading
import types

import pytest
import torch
from harness import Counter
from torch import nn

import sot

X = torch.arange(3.0)


class Net(nn.Module):
    """More weights than a call collects anew each time."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(30)])

    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x)
        return x + y


def expected(net, x, y):
    for layer in net.layers:
        x = layer(x)
    return x + y


def as_it_is(graph, examples):
    return graph.forward


def as_a_function(graph, examples):
    return lambda *args: graph(*args)


BACKENDS = [as_it_is, as_a_function]


def warm_net(backend):
    torch.manual_seed(0)
    net = Net()
    sot.to_static(net, backend=backend)
    for _ in range(8):
        net(X, X)
    return net


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_call_gets_what_is_there_now(backend):
    net = warm_net(backend)
    changes = [lambda: setattr(net.layers[3], "weight", nn.Parameter(torch.ones(3, 3))),
               lambda: net.layers.__setitem__(4, nn.Linear(3, 3)),
               lambda: setattr(net.layers[5], "__dict__", dict(vars(nn.Linear(3, 3)))),
               lambda: net.layers[6].weight.data.zero_(),
               lambda: setattr(net.layers[7].bias, "data", torch.ones(3)),
               lambda: net.load_state_dict(Net().state_dict(), assign=True)]
    for i, change in enumerate(changes * 2):
        change()
        for x in (X, X + i, X - i):
            assert torch.equal(net(x, X), expected(net, x, X)), i
            assert torch.equal(net(X, x), expected(net, X, x)), i


def elsewhere(call):
    """What a call gives in another thread, while this one waits: a graph's own thread runs what it calls plainly."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(300)
    return found[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_while_the_graph_of_another_runs(backend):
    others, found, net = [], [], None

    def asks_others(graph, examples):
        run = backend(graph, examples)

        def call(*args):
            if others:
                x = others.pop()
                found.append((x, elsewhere(lambda: net(x, X))))
            return run(*args)
        return types.MethodType(lambda self, *args: call(*args), graph) if backend is as_it_is else call

    net = warm_net(asks_others)
    for i in range(3):
        others += [X - i, X - 2 * i, X - 3 * i]
        assert torch.equal(net(X + i, X), expected(net, X + i, X)), i
        assert len(found) == 3
        for x, result in found:
            assert torch.equal(result, expected(net, x, X)), i
        found.clear()


def test_a_graph_that_raises_after_another_call():
    """Eager PyTorch runs it with the inputs of the call that failed."""
    failing, found, net = [], [], None

    def fails(graph, examples):
        def run(*args):
            if failing:
                failing.pop()
                found.append(elsewhere(lambda: net(X + 5, X - 5)))
                raise RuntimeError("on purpose")
            return graph(*args)
        return run

    net = warm_net(fails)
    failing.append(True)
    with pytest.warns(UserWarning, match="on purpose"):
        assert torch.equal(net(X + 1, X + 2), expected(net, X + 1, X + 2))
    assert torch.equal(found[0], expected(net, X + 5, X - 5))


def test_many_tensors_of_an_argument():
    def total(xs, scale):
        result = xs[0]
        for x in xs[1:]:
            result = result + x * scale
        return result

    translated = sot.to_static(total, backend=Counter())
    for i in range(12):
        xs = [X + i * j for j in range(60)]
        scale = torch.tensor(float(i))
        for _ in range(2):
            assert torch.equal(translated(xs, scale), total(xs, scale)), i
            xs[i] = X * i


def test_calls_of_several_threads():
    net, failures = warm_net(as_a_function), []

    def ask(i):
        for j in range(100):
            x, y = X + i, X * j
            if not torch.equal(net(x, y), expected(net, x, y)):
                failures.append((i, j))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures
