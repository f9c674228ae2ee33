"""Recurrent networks with backends that trace. Dropout between the layers: values, gradients, random numbers. Sequences
that are long, or whose length varies: PyTorch runs the network between compiled pieces, and no steps are unrolled.
"""
from functools import partial

import pytest
import torch
from harness import every_call
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

import sot
from sot.graph.fake_rules import recurrence

NETWORKS = {
    "lstm": lambda: nn.LSTM(4, 6, 2, dropout=0.5),
    "lstm_both_ways": lambda: nn.LSTM(4, 6, 2, dropout=0.5, bidirectional=True),
    "lstm_projected": lambda: nn.LSTM(4, 6, 2, dropout=0.5, proj_size=3),
    "lstm_without_bias": lambda: nn.LSTM(4, 6, 2, dropout=0.5, bias=False),
    "gru_batch_first": lambda: nn.GRU(4, 6, 3, dropout=0.3, batch_first=True),
    "rnn_tanh": lambda: nn.RNN(4, 6, 2, dropout=0.5),
    "rnn_relu_both_ways": lambda: nn.RNN(4, 6, 2, dropout=0.5, nonlinearity="relu", bidirectional=True),
}
X = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
LENGTHS = {False: torch.tensor([3, 2]), True: torch.tensor([2, 2, 1])}


def padded(network, x):
    return network(x)[0]


def packed(network, x):
    sequence = pack_padded_sequence(x, LENGTHS[network.batch_first], batch_first=network.batch_first)
    return pad_packed_sequence(network(sequence)[0])[0]


def result_of(make, wrap, call):
    torch.manual_seed(0)
    network = make()
    x = X.clone().requires_grad_()
    translated = wrap(lambda x: call(network, x))
    out = translated(x)
    out.square().sum().backward()
    return [out, x.grad, *(p.grad for p in network.parameters()), torch.rand(1)]


@pytest.mark.slow
@pytest.mark.parametrize("call", [padded, packed])
@pytest.mark.parametrize("name", NETWORKS)
def test_traced_networks_drop_as_pytorch_does(name, call):
    want = result_of(NETWORKS[name], lambda f: f, call)
    got = result_of(NETWORKS[name], lambda f: sot.to_static(f, backend=every_call("aot_eager")), call)
    torch.testing.assert_close(got, want)


@pytest.mark.slow
def test_inductor_drops():
    """It draws other random numbers than PyTorch: with dropout of 1 only the biases of the last layer are left."""
    make = lambda: nn.GRU(4, 6, 2, dropout=1.0)     # noqa: E731
    want = result_of(make, lambda f: f, padded)
    got = result_of(make, lambda f: sot.to_static(f, backend="inductor"), padded)
    torch.testing.assert_close(got[:-1], want[:-1])


def losses(network, batches, wrap):
    """The losses of training steps with a network of 6 features, and the step."""
    torch.manual_seed(0)
    network, head = network(), nn.Linear(6, 1)
    optimizer = torch.optim.SGD([*network.parameters(), *head.parameters()], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = head(network(x)[0]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    step = wrap(step)
    return [step(x) for x in batches], step


@pytest.mark.slow
def test_a_training_step_is_one_graph_and_learns_as_pytorch_does():
    training = partial(nn.GRU, 4, 6, 2, dropout=0.5), [X] * 4
    want, _ = losses(*training, lambda f: f)
    got, step = losses(*training, lambda f: sot.to_static(f, backend=every_call("aot_eager")))
    torch.testing.assert_close(got, want)
    assert not any(capture.stopped for capture in step.captures)


@pytest.mark.slow
def test_dropout_that_changes_and_none():
    def run(wrap):
        torch.manual_seed(0)
        network = nn.GRU(4, 6, 2)

        def fn(x, p):
            network.dropout = p
            return network(x)[0]
        fn = wrap(fn)
        return [fn(X, p) for p in (0.0, 0.1, 0.2, 0.3, 0.0)]
    torch.testing.assert_close(run(lambda f: sot.to_static(f, backend=every_call("aot_eager"))), run(lambda f: f))


def test_a_backend_that_runs_its_graph_as_it_is_gets_the_network_whole():
    targets = []

    def backend(module, inputs):
        targets.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    want = result_of(NETWORKS["lstm"], lambda f: f, padded)
    got = result_of(NETWORKS["lstm"], lambda f: sot.to_static(f, backend=backend), padded)
    assert all(map(torch.equal, got, want)) and targets


class Kept:
    """A backend that compiles, and keeps the targets of the nodes of each graph. The first shows SOT that it does."""

    def __init__(self) -> None:
        self.graphs: list[set] = []

    def __call__(self, module, inputs):
        self.graphs.append({node.target for node in module.graph.nodes})
        return lambda *args: module(*args)


LONG = {
    "gru": lambda: nn.GRU(4, 6),
    "gru_batch_first_both_ways": lambda: nn.GRU(4, 6, batch_first=True, bidirectional=True),
    "lstm": lambda: nn.LSTM(4, 6, batch_first=True),
    "lstm_with_dropout": lambda: nn.LSTM(4, 6, 2, dropout=0.5),
    "lstm_projected": lambda: nn.LSTM(4, 6, proj_size=3),
    "rnn": lambda: nn.RNN(4, 6, 2, nonlinearity="relu"),
}


def read(network):
    def call(x, w):
        rows, states = network((x * w).cos())
        return rows.sin(), states
    return call


def check_lengths(name, backend, lengths, grad=True):
    """Calls with these lengths give PyTorch's results, strides, gradients and random numbers. The translation."""
    network, w = LONG[name](), torch.ones(4, requires_grad=True)
    plain, translated = read(network), sot.to_static(read(network), backend=backend)
    for n in lengths:
        x, found = torch.randn(n, n + 2, 4), []
        for call in (plain, translated):
            torch.manual_seed(n)
            with torch.set_grad_enabled(grad):
                results = tree_leaves(call(x, w))
            gradients = torch.autograd.grad(sum(r.square().sum() for r in results), [w, *network.parameters()]
                                            ) if grad else ()
            found.append([*results, *gradients, torch.rand(1)])
            found[-1] += [torch.tensor(r.stride()) for r in results]
        torch.testing.assert_close(found[1], found[0])
    return sot.translation_of(translated)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name, backend", [
    *((name, backend) for name in LONG for backend in ("eager", "aot_eager")),
    *(pytest.param(name, "inductor", marks=pytest.mark.slow)
      for name in ("gru_batch_first_both_ways", "lstm_projected")),
])
def test_two_captures_serve_all_lengths(name, backend, grad):
    lengths = [2, 3, 2] if backend == "inductor" else [5, 7, 4, 12, 9, 5]      # it compiles some kernels a step
    translation = check_lengths(name, backend, lengths, grad)
    assert len(translation.captures) == 2
    assert not any(capture.stopped for capture in translation.captures)


@pytest.mark.parametrize("name", LONG)
def test_a_compiler_does_not_get_a_network_of_many_steps(name):
    backend = Kept()
    translation = check_lengths(name, backend, [40, 40])
    assert len(translation.captures) == 1
    _, before, after = backend.graphs
    assert "cos" in before and "sin" in after
    assert not {torch.gru, torch.lstm, torch.rnn_relu, recurrence} & (before | after)


def test_what_follows_a_network_is_compiled_for_symbolic_sizes():
    """Its inputs are tensors. Of a tuple a compiler would make symbols of its own, and one for sizes that are equal
    at its first call, such as this length and the size of the projection.
    """
    inputs = []

    def backend(module, examples):
        inputs.append(examples)
        return lambda *args: module(*args)
    check_lengths("lstm_projected", backend, [2, 3, 4])
    assert all(isinstance(value, (torch.Tensor, torch.SymInt)) for examples in inputs for value in examples)
    assert all(any(isinstance(size, torch.SymInt) for size in value.shape)
               for value in inputs[-1] if isinstance(value, torch.Tensor) and value.dim() == 3)


def test_a_short_network_is_compiled():
    backend = Kept()
    check_lengths("gru", backend, [3, 3])
    assert len(backend.graphs) == 1 and torch.gru in backend.graphs[0]


def test_a_training_step_with_a_long_network_learns_as_pytorch_does():
    training = partial(nn.GRU, 4, 6), [torch.ones(n, 2, 4) / n for n in (30, 30, 31, 32, 33)]
    want, _ = losses(*training, lambda f: f)
    got, step = losses(*training, lambda f: sot.to_static(f, backend=every_call("aot_eager")))
    torch.testing.assert_close(got, want)
    assert "gru of many steps" in str(next(capture.stopped for capture in step.captures if capture.stopped))
