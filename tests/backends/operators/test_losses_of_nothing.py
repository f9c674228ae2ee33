"""Losses of tensors without elements, whose gradients torch's rules would divide by zero."""
import pytest
import torch
import torch.nn.functional as F

import sot

BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
LOSSES = [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss, F.binary_cross_entropy_with_logits]


def of_arguments(loss, x, n):
    return loss(x[:n].detach().requires_grad_(), torch.ones(n))


def of_a_mask(loss, x, n):
    mask = torch.arange(4) < n
    return loss(x[mask], torch.ones(4)[mask])


@pytest.mark.parametrize("of", [of_arguments, of_a_mask])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_and_gradients(backend, loss, of):
    def step(x, n):
        result = of(loss, x, n)
        result.backward()
        return result.detach()
    translated = sot.to_static(step, backend=backend)
    for n in (4, 0, 2, 3, 0):
        mine, theirs = (torch.arange(4.0).requires_grad_() for _ in range(2))
        torch.testing.assert_close(translated(mine, n), step(theirs, n), equal_nan=True)
        torch.testing.assert_close(mine.grad, theirs.grad, equal_nan=True)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_of_arguments(loss, reduction):
    def gradient(x, y):
        return torch.autograd.grad(loss(x, y, reduction=reduction).sum(), x)[0]
    translated = sot.to_static(gradient, backend="aot_eager")
    for n in (0, 3, 0):
        x, y = torch.arange(float(n)).requires_grad_(), torch.ones(n)
        torch.testing.assert_close(translated(x, y), gradient(x, y))
