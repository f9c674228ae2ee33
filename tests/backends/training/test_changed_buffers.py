"""Compiled graphs that change buffers beside weights: they stay compiled where no gradient goes through the buffer."""
import pytest
import torch
from torch import nn

import sot


class Averages(nn.Module):
    """Updates averages of its weight without gradients."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        for name in ("first", "second"):
            self.register_buffer(name, torch.ones(4))

    def forward(self, x):
        with torch.no_grad():
            self.first.mul_(self.weight)
            self.second.addcmul_(self.weight, self.weight, value=0.1)
        return x * self.weight


@pytest.mark.parametrize("make", [
    Averages, lambda: nn.BatchNorm1d(4), lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True)])
def test_buffers_that_weights_change_without_gradients(make):
    def backend(gm, inputs):
        compiled = sot.backends.lookup_backend("aot_eager")(gm, inputs)
        return lambda *args: ran.append(1) or compiled(*args)
    ran, found = [], []
    for translate in (lambda model: model, lambda model: sot.to_static(model, backend=backend)):
        torch.manual_seed(0)
        model = make()
        call, x = translate(model), torch.randn(3, 4, 4)
        results = [call(x) for _ in range(3)]
        sum(results).sum().backward()
        found.append((results, [p.grad for p in model.parameters()], [*model.buffers()]))
    torch.testing.assert_close(*found)
    assert len(ran) == 3
