"""Recurrent networks on packed sequences: a file has torch's operators for them, of any batch and lengths."""
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import sot
from sot import InputSpec


class Packed(nn.Module):
    """A network on packed sequences, whose output is padded again."""

    def __init__(self, network, **options):
        super().__init__()
        self.network, self.options = network, options

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, state = self.network(packed)
        return pad_packed_sequence(output, batch_first=True, **self.options), state


class ToTheWholeLength(Packed):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        output, (state, _) = self.network(packed)
        return pad_packed_sequence(output, batch_first=True, padding_value=-1.0, total_length=x.shape[1]), state[-1]


MODELS = {
    "gru": lambda: Packed(nn.GRU(4, 5, batch_first=True)),
    "rnn": lambda: Packed(nn.RNN(4, 5, batch_first=True, nonlinearity="relu")),
    "lstm": lambda: Packed(nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), padding_value=2.0),
    "whole length": lambda: ToTheWholeLength(nn.LSTM(4, 5, batch_first=True)),
}
SPECS = {"named": [InputSpec(("batch", "length", 4)), InputSpec(("batch",), "int64")],
         "unnamed": [InputSpec((None, None, 4)), InputSpec((None,), "int64")]}


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_any_batch_and_lengths(tmp_path, make, spec):
    torch.manual_seed(0)
    model = make().eval()
    loaded = sot.load(sot.save(model, tmp_path / "m", input_spec=spec))
    for lengths in [5, 3, 1], [6, 6], [4, 3, 3, 2], [7]:
        x = torch.randn(len(lengths), 8, 4)
        torch.testing.assert_close(loaded(x, torch.tensor(lengths)), model(x, torch.tensor(lengths)))


@pytest.mark.slow
def test_a_loaded_network_trains_on(tmp_path):
    torch.manual_seed(0)
    model = MODELS["lstm"]()
    loaded = sot.load(sot.save(model, tmp_path / "m", input_spec=SPECS["named"]))
    x, lengths = torch.randn(3, 6, 4), torch.tensor([6, 2, 5])
    for each in model, loaded:
        each(x, lengths)[0][0].square().sum().backward()
    gradients = {name: p.grad for name, p in loaded.named_parameters()}
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad)


def test_lengths_that_the_network_refuses_raise(tmp_path):
    loaded = sot.load(sot.save(MODELS["gru"]().eval(), tmp_path / "m", input_spec=SPECS["named"]))
    with pytest.raises(RuntimeError, match="greater than 0"):
        loaded(torch.randn(2, 3, 4), torch.tensor([3, 0]))
