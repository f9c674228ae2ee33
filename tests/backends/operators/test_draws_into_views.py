"""Random numbers that are drawn into memory that is not contiguous: their order depends on that memory, so a graph that
is compiled calls an operator for them, or is cut around them.
"""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sot

DRAWS = {
    "normal_": lambda x: x.normal_(),
    "uniform_": lambda x: x.uniform_(-1, 1),
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "exponential_": lambda x: x.exponential_(),
    "dropout by keywords": lambda x: torch.dropout(x, train=True, p=0.4),
    "dropout in place": lambda x: F.dropout(x, 0.5, inplace=True),
    "alpha_dropout, which draws into a tensor that is laid out like x": lambda x: F.alpha_dropout(x, 0.3, True),
}
LAYOUTS = {
    "dense": lambda x: x.clone(),
    "transposed": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "every second": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
    "a part of each row": lambda x: torch.cat([x, x], 2)[..., :7],
}


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("draw", DRAWS)
def test_the_numbers_are_those_of_python(draw, layout, backend, fresh):
    def f(x):
        y = DRAWS[draw](x * 1 if layout == "dense" else x)
        return y * 2 + 1, x + y, torch.rand(2)
    torch.manual_seed(3)
    made = torch.randn(4, 4, 7)
    run = sot.to_static(f, backend=backend)
    for _ in range(2):
        mine, theirs = LAYOUTS[layout](made), LAYOUTS[layout](made)
        torch.manual_seed(0)
        expected = f(theirs)
        torch.manual_seed(0)
        torch.testing.assert_close((run(mine), mine), (expected, theirs))


def test_the_graph_is_compiled_around_them(fresh):
    """Where the operator does not do it; the graph stays one."""
    compiled = []

    def counting(gm, inputs):
        compiled.append([node.target for node in gm.graph.nodes if node.op.startswith("call")])
        return lambda *args: gm.forward(*args)

    def f(x):
        return F.alpha_dropout(x.relu().t(), 0.5, True).sin()
    x = torch.randn(4, 20)
    torch.manual_seed(0)
    expected = f(x)
    torch.manual_seed(0)
    run = sot.to_static(f, backend=counting, full_graph=True)
    assert torch.equal(run(x), expected)
    pieces = compiled[1:]       # it was not known that the backend compiles
    assert ["relu" in names for names in pieces] == [True, False] and "sin" in pieces[1]
    assert not any(torch.nn.functional.alpha_dropout in names for names in pieces)


def test_gradients_go_through_dropout_in_place(fresh):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop = nn.Linear(6, 8), nn.Dropout(0.4, inplace=True)

        def forward(self, x):
            return self.drop(self.first(x).transpose(0, 1)).sum(0)
    torch.manual_seed(1)
    net, x = Net(), torch.randn(5, 6)
    gradients = []
    for run in (net, sot.to_static(net, backend="aot_eager")):
        net.zero_grad()
        torch.manual_seed(0)
        run(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    torch.testing.assert_close(*gradients)


def views_of_an_argument(x):
    y = x.squeeze(0)
    z = y.normal_() + torch.rand(7, 1)
    part = y[-3, None]
    part.index_put_((part > 0,), torch.tensor(2.0))
    return torch.atan2(y, z), part, x * 2


def views_of_an_intermediate(x):
    y = x.double()
    z = y.transpose(0, -1).log_normal_()
    total = y.add_(y).sum() * y
    return z[1::2] * 2, total.sub_(1), y


@pytest.mark.parametrize("backend", ["aot_eager", "triton"])
@pytest.mark.parametrize("program", [views_of_an_argument, views_of_an_intermediate])
def test_views_around_them_are_changed(program, backend, fresh):
    """AOTAutograd refuses to trace such changes after the draw."""
    run = sot.to_static(program, backend=backend)
    for _ in range(2):
        mine, theirs = (torch.arange(14.0)[::2] if "argument" in program.__name__ else torch.ones(4, 5)
                        for _ in range(2))
        torch.manual_seed(0)
        expected = program(theirs)
        torch.manual_seed(0)
        torch.testing.assert_close((run(mine), mine), (expected, theirs))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_step_that_drops_from_transposed_tensors_is_one_graph(backend, fresh):
    """The backward pass is part of the graph, so it could not be cut: Python ran the step."""
    def trained(translate):
        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.3)
        opt = torch.optim.SGD(layer.parameters(), 0.1)

        def step(x, rate):
            opt.param_groups[0]["lr"] = rate
            opt.zero_grad()
            loss = layer(x.transpose(0, 1)).square().mean()
            loss.backward()
            opt.step()
            return loss.detach()
        run = translate(step)
        return [run(torch.ones(3, 5, 8) * i, i / 50) for i in range(1, 6)], [*layer.parameters()], torch.rand(2), run

    *expected, _ = trained(lambda step: step)
    *found, run = trained(lambda step: sot.to_static(step, backend=backend))
    torch.testing.assert_close(found, expected)
    assert len(run.graphs) <= 2 and not run.explain().breaks
