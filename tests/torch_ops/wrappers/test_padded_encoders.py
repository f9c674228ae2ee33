"""``nn.TransformerEncoder`` with a padding mask, where PyTorch computes on nested tensors: one graph, same results."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import sot

# Padding on the right, of a whole sequence, none, on the left, and in the middle of a batch.
LENGTHS = [8, 5], [4, 4], [0, 3], [8, 8], [1, 2, 7]


def encoder(**settings):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **settings)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16)).eval()


def padding(lengths, left=False):
    mask = torch.arange(8)[None] >= torch.tensor(lengths)[:, None]
    return mask.flip(1) if left else mask


def assert_same(model, translated, mask):
    x = torch.randn(len(mask), 8, 16)
    with torch.no_grad():
        want, got = model(x, src_key_padding_mask=mask), translated(x, src_key_padding_mask=mask)
    assert torch.equal(want.isnan(), got.isnan())
    assert torch.equal(want.nan_to_num(), got.nan_to_num())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("settings", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=["relu", "first", "gelu"])
@pytest.mark.filterwarnings("ignore")
def test_padding_on_the_right(settings, backend):
    model = encoder(**settings)
    translated = sot.to_static(model, backend=backend)
    for lengths in LENGTHS:
        assert_same(model, translated, padding(lengths))
    assert all(capture.stopped is None for capture in sot.translation_of(translated).captures)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_padding_on_the_left(backend):
    model = encoder()
    translated = sot.to_static(model, backend=backend)
    for left in (True, False, True, True, True, False):
        assert_same(model, translated, padding([3, 5], left))


def test_with_gradients_and_in_training():
    model = encoder()
    x, mask = torch.randn(2, 8, 16), padding([3, 5])
    translated = sot.to_static(model, backend="eager", full_graph=True)
    assert torch.equal(translated(x, src_key_padding_mask=mask), model(x, src_key_padding_mask=mask))


class Layer(nn.TransformerEncoderLayer):
    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        made = super().forward(src, src_mask, src_key_padding_mask, is_causal)
        self.seen = made.is_nested, made.size(0), made.dtype
        return made


def test_a_layer_of_the_program_sees_the_nested_tensor():
    layer = Layer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    translated = sot.to_static(model, backend="eager")
    for _ in range(2):
        assert_same(model, translated, padding([3, 5]))
        assert model.layers[0].seen == (True, 2, torch.float32)


@pytest.mark.slow
def test_saved(tmp_path):
    model = encoder()
    with torch.no_grad():
        sot.save(model, tmp_path / "encoder", input_spec={
            "src": sot.InputSpec([None, None, 16], torch.float32),
            "src_key_padding_mask": sot.InputSpec([None, None], torch.bool)})
        loaded = sot.load(tmp_path / "encoder")
        for lengths in LENGTHS:
            for mask in padding(lengths), padding(lengths, left=True):
                x = torch.randn(len(mask), 8, 16)
                want, got = model(x, src_key_padding_mask=mask), loaded(x, src_key_padding_mask=mask)
                torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)
