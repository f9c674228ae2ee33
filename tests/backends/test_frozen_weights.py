"""Inductor's option ``freezing``: a graph for inference has the values of weights as constants, while they stay."""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._inductor import compile_fx, config

import sot

X = torch.linspace(-1, 1, 12).view(1, 3, 2, 2)
FREEZING = {"freezing": True}


class Model(nn.Module):
    """A convolution and a batch norm, which become one operation if their weights are constants."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


class Counting(Model):
    """A buffer that a call changes."""

    def forward(self, x):
        self.calls.add_(1)
        return super().forward(x) * self.calls


def made(kind=Model):
    torch.manual_seed(0)
    model = kind().eval()
    model.norm.running_mean.normal_()
    return model


@pytest.fixture
def graphs(monkeypatch):
    """The ATen graphs that inductor compiles, which run as they are: their operators and their numbers of inputs."""
    found = []

    def inner(gm, inputs, **kwargs):
        found.append(([str(n.target) for n in gm.graph.nodes if n.op == "call_function"], len(inputs)))
        return compile_fx.make_boxed_func(gm.forward)
    monkeypatch.setattr(compile_fx, "_compile_fx_inner", inner)
    torch._dynamo.reset()
    return found


@pytest.mark.parametrize("how", ["options", "configuration"])
def test_weights_are_constants_as_with_torch(graphs, how):
    model = made()
    with config.patch(freezing=True), torch.no_grad():
        torch.compile(model, options=FREEZING)(X)
    with config.patch(freezing=how == "configuration"), torch.no_grad():
        compiled = sot.compile(model, options=FREEZING if how == "options" else None)
        torch.testing.assert_close(compiled(X), model(X))
    theirs, ours = graphs
    assert ours == theirs and ours[1] == 1      # only X is an input


def test_without_the_option_weights_are_inputs(graphs):
    with torch.no_grad():
        sot.compile(made())(X)
    assert graphs[0][1] == 7


def test_with_gradients_weights_are_inputs(graphs):
    model = made()
    compiled = sot.compile(model, options=FREEZING)
    compiled(X).sum().backward()
    assert model.conv.weight.grad is not None and graphs[0][1] == 7


@pytest.mark.parametrize("change", [
    lambda model: model.conv.weight.mul_(2),
    lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
    lambda model: setattr(model.conv, "weight", nn.Parameter(torch.ones(4, 3, 1, 1))),
    lambda model: model.norm.running_var.fill_(3)], ids=["in place", "state dict", "another object", "buffer"])
def test_a_changed_weight_counts(graphs, change):
    model = made()
    compiled = sot.compile(model, options=FREEZING)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), model(X))
        change(model)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), model(X))
    assert [inputs for _, inputs in graphs] == [1, 1]


def test_a_buffer_that_the_graph_changes_is_no_constant(graphs):
    model, plain = made(Counting), made(Counting)
    compiled = sot.compile(model, options=FREEZING)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(X), plain(X))
    assert model.calls == 3 and [inputs for _, inputs in graphs] == [2]


def test_weights_of_inference_mode_are_inputs_because_their_changes_do_not_show(graphs):
    with torch.inference_mode():
        model = made()
        compiled = sot.compile(model, options=FREEZING)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), model(X))
            model.conv.weight.mul_(2)


def test_frozen_weights_with_sizes_that_vary(graphs):
    model = made()
    compiled = sot.compile(model, options=FREEZING, dynamic=True)
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = X.expand(rows, 3, 2, 2).clone()
            torch.testing.assert_close(compiled(x), model(x))
    assert len(graphs) == 1


@pytest.mark.slow
def test_inductor_compiles_a_frozen_graph():
    model = made()
    compiled = sot.compile(model, options=FREEZING)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))
        model.conv.bias.add_(1)
        torch.testing.assert_close(compiled(X), model(X))


def test_the_reason_of_the_next_capture_names_the_weight(graphs):
    model = made()
    translated = sot.to_static(lambda x: model(x), backend="inductor", options=FREEZING)
    with torch.no_grad():
        translated(X)
        model.conv.weight.mul_(2)
        translated(X)
    (reason,) = translated.captures[1].recompile_reasons
    assert "model.conv.weight is the constant of the compiled graph, got new values" in reason.text
