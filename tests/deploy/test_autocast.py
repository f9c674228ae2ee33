"""Mixed precision in a saved model: regions of autocast inside it, and one that it is saved in."""
import pytest
import torch
from torch import nn

import sot
from sot import InputSpec


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.first(x)
            with torch.autocast("cpu", enabled=False):
                z = self.second(y.float())
            y = self.third(z)
        return y, self.first(x) + y


@pytest.mark.parametrize("outside", [False, True])
def test_autocast_is_part_of_the_file(tmp_path, outside):
    model = Mixed().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outside):
        loaded = sot.load(sot.save(model, tmp_path / "m", input_spec=[InputSpec((None, 4))]))
    x = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outside):
        want = model(x)
    for got, expected in zip(loaded(x), want, strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected)
    assert not torch.is_autocast_enabled("cpu")


def test_a_model_with_autocast_trains_on(tmp_path):
    model = Mixed()
    loaded = sot.load(sot.save(model, tmp_path / "m", input_spec=[InputSpec((None, 4))]))
    x = torch.randn(3, 4)
    for each in loaded, model:
        each(x)[1].float().square().sum().backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(dict(loaded.named_parameters())[name].grad, weight.grad)
