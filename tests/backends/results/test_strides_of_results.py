"""Strides of the results of compiled graphs are PyTorch's."""
from __future__ import annotations

import pytest
import torch

import sot


@pytest.mark.parametrize("grad", [False, True])
def test_inductor_keeps_channels_last(grad):
    def doubled(x):
        return torch.cat([x, x], 1), torch.cat([x, x.relu()], 1), torch.stack([x, x])
    x = torch.arange(96.0).view(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).requires_grad_(grad)
    translated = sot.to_static(doubled, backend="inductor")
    for _ in range(2):
        got, want = translated(x), doubled(x)
        torch.testing.assert_close(got, want, check_stride=True)
        if grad:
            torch.testing.assert_close(*(torch.autograd.grad([(y * y).sum() for y in ys], x) for ys in (got, want)))


def test_parts_of_a_result_stay_views_of_it():
    def parts(x):
        y = torch.cat([x, x], 1)
        return y, y[:, 1:], x[0]
    x = torch.arange(96.0).view(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    y, part, of_x = sot.to_static(parts, backend="inductor")(x)
    y.add_(1), of_x.add_(1)
    assert torch.equal(part, y[:, 1:]) and torch.equal(of_x, x[0])
