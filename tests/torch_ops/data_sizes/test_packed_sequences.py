"""Packed sequences, whose sizes depend on the lengths, and sizes that are given as tensors."""
import pytest
import torch
from harness import same
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import sot
from sot.support.errors import Reason

LENGTHS = [3, 5, 2], [3, 5, 2], [4, 1, 1], [2, 6], [1, 1, 7, 3], [2, 2]
NETWORKS = {"LSTM": {}, "GRU": {"bidirectional": True}, "RNN": {"nonlinearity": "relu"}, "projected": {"proj_size": 2},
            "with dropout": {"dropout": 0.5}, "time first": {"batch_first": False}}


class Tagger(nn.Module):
    def __init__(self, kind, sort, **options) -> None:
        super().__init__()
        options = {"batch_first": True, **options}
        network = getattr(nn, kind, nn.LSTM)
        self.sort, self.first = sort, options["batch_first"]
        self.words, self.network = nn.Embedding(10, 4), network(4, 4, 2, **options)
        self.tags = nn.LazyLinear(3)

    def forward(self, words, lengths):
        row = pack_padded_sequence(self.words(words), lengths, self.first, enforce_sorted=self.sort)
        row, state = self.network(row)
        found, lengths = pad_packed_sequence(row, self.first)
        state = state[0] if isinstance(state, tuple) else state
        return self.tags(found).sum((0, 1)), state.sum(1), lengths


def batch(lengths, tagger):
    lengths = torch.tensor(sorted(lengths, reverse=True) if tagger.sort else lengths)
    words = torch.arange(len(lengths) * int(lengths.max())).reshape(len(lengths), -1) % 10
    return words if tagger.first else words.t(), lengths


def trained(tagger, call):
    """The results and gradients of a call, and the random number that is drawn afterwards."""
    torch.manual_seed(1)
    tagger.zero_grad()
    found = call()
    (found[0].sum() + found[1].sum()).backward()
    return [*found, *(p.grad.clone() for p in tagger.parameters()), torch.rand(1)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "backend"), [*((kind, "eager") for kind in NETWORKS), ("LSTM", "aot_eager"),
                                              ("with dropout", "aot_eager")])
def test_a_network_over_packed_sequences(kind, backend):
    torch.manual_seed(0)
    tagger = Tagger(kind, sort=kind == "LSTM", **NETWORKS[kind])
    tagger(*batch(LENGTHS[0], tagger))
    forward = sot.to_static(Tagger.forward, backend=backend)
    for lengths in LENGTHS:
        args = batch(lengths, tagger)
        wanted = trained(tagger, lambda: tagger(*args))     # noqa: B023
        assert same(wanted, trained(tagger, lambda: forward(tagger, *args))) is None    # noqa: B023
    assert not any(capture.fallback for capture in forward.captures)
    # PyTorch packs the sequences and runs the network: compilers do not trace it, and their sizes depend on the lengths
    assert {b.reason for b in forward.explain().breaks} == ({Reason.NOT_COMPILED} if backend == "aot_eager" else set())
    assert len(forward.graphs) <= 3 or backend != "eager"


def test_a_state_that_does_not_fit_is_refused_as_plain_pytorch_does():
    network = nn.GRU(2, 3)

    def f(x, lengths, state):
        return network(pack_padded_sequence(x, lengths), state)[1]
    made = sot.to_static(f, backend="eager")
    x, lengths = torch.ones(4, 2, 2), torch.tensor([4, 2])
    assert torch.equal(made(x, lengths, torch.ones(1, 2, 3)), f(x, lengths, torch.ones(1, 2, 3)))
    for state in (torch.ones(1, 5, 3), torch.ones(1, 1, 3)):
        with pytest.raises(RuntimeError, match="Expected hidden size") as refused:
            made(x, lengths, state)
        with pytest.raises(RuntimeError) as plain:
            f(x, lengths, state)
        assert str(refused.value) == str(plain.value)


SIZES = {
    "zeros": lambda x, n: torch.zeros(2, n) + x.sum(), "a list": lambda x, n: torch.ones([n, 3]) * x.sum(),
    "full": lambda x, n: torch.full((n,), 2.0) * x.sum(), "new": lambda x, n: x.new_zeros(n, 2) + 1,
    "expand": lambda x, n: x.sum().expand(n) * 2, "repeat": lambda x, n: x.repeat(n, 1) + 1,
    "twice": lambda x, n: torch.zeros(n) + torch.ones(n) * x.sum(), "view": lambda x, n: x.view(n, -1) * 2}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", SIZES.values(), ids=SIZES.keys())
def test_sizes_given_as_tensors(fn, backend):
    x, made = torch.arange(12.0).reshape(2, 6), sot.to_static(fn, backend=backend)
    for n in (2, 3, 6, 4, 1, 2):
        assert torch.equal(made(x, torch.tensor(n)), fn(x, torch.tensor(n)))
    assert len(made.graphs) <= 3


def test_sizes_that_are_no_integers_are_refused_as_plain_pytorch_does():
    made = sot.to_static(lambda x, n: torch.zeros(2, n) + x.sum(), backend="eager")
    for n in (torch.tensor(2.0), torch.tensor([2, 3])):
        with pytest.raises(TypeError):
            made(torch.ones(2), n)
