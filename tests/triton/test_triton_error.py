"""The error of results and gradients through kernels, against float64: at most twice eager's own."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, leaves
from torch import Tensor

import sot

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": lambda x, w: x.softmax(-1) * w, "log_softmax": lambda x, w: F.log_softmax(x, -1) + w,
    "layer norm": lambda x, w: F.layer_norm(x, (48,), w), "gelu": lambda x, w: F.gelu(x) * w,
    "layer norm written out": lambda x, w: (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        x.var(-1, keepdim=True, unbiased=False) + 1e-5) * w,
    "RMS norm written out": lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
    "gelu, by tanh": lambda x, w: F.gelu(x, approximate="tanh") + w, "silu": lambda x, w: F.silu(x) * w,
    "mean": lambda x, w: (x * w).mean(0), "variance": lambda x, w: x.var(0) * w,
    "sums so far": lambda x, w: (x * w / 16).view(-1).cumsum(0).view(48, 48),
    "products so far": lambda x, w: (1 + x * w / 100).cumprod(1), "sums from the end": lambda x, w: (
        x.flip(1).cumsum(1).flip(1) * w),
    "all": lambda x, w: (x * w).square().sum(), "logsumexp": lambda x, w: (x * w).logsumexp(1),
    "group norm": lambda x, w: F.group_norm(
        x.reshape(4, 8, 72), 4).reshape(48, 48) * w,
    "cross-entropy": lambda x, w: F.cross_entropy(x * w, torch.arange(48), reduction="none"),
    "attention": lambda x, w: attention(x.view(2, 2, 12, 48), w),
    "linear and relu": lambda x, w: F.relu(F.linear(x, x, w)), "collected": lambda x, w: (x * w).index_add(
        0, torch.arange(48) % 5, x),
}


def attention(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = x, x * w, x + w
    return (q @ k.transpose(-2, -1) / 7).softmax(-1) @ v


def results(f: Callable[..., Tensor], x: Tensor, w: Tensor) -> list[Tensor]:
    """The result, and the gradients of its squares."""
    x, w = (t.detach().clone().requires_grad_() for t in (x, w))
    result = f(x, w)
    return [result.detach(), *torch.autograd.grad(result.double().square().sum(), (x, w))]


def inputs(dtype: torch.dtype, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((48, 48), (48,)))
    return x, w


DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_at_most_twice_eagers(name, dtype):
    f = FUNCTIONS[name]
    x, w = inputs(dtype)
    exact, eager = results(f, x.double(), w.double()), results(f, x, w)
    ours = results(sot.to_static(f, backend=Kernels()), x, w)
    for got, usual, right in zip(ours, eager, exact, strict=True):
        assert got.dtype == usual.dtype
        assert error(got, right) <= 2 * error(usual, right)
    assert len(leaves(ours)) == 3
    sot.reset()


ONE_NUMBER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean cross-entropy": lambda x, w: F.cross_entropy(x * w, torch.arange(48)),
    "mean square error": lambda x, w: F.mse_loss(x * w, x), "norm": lambda x, w: (x * w).norm(),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ONE_NUMBER)
def test_the_error_of_one_number_is_at_most_twice_eagers(name, dtype):
    """In the mean of many inputs: the last bit of one number is chance."""
    run = sot.to_static(ONE_NUMBER[name], backend=Kernels())
    errors = []
    for seed in range(16):
        x, w = inputs(dtype, seed)
        exact = ONE_NUMBER[name](x.double(), w.double())
        errors.append([error(f(x, w), exact) for f in (run, ONE_NUMBER[name])])
    ours, eager = (sum(column) for column in zip(*errors, strict=True))
    assert ours <= 2 * eager
    sot.reset()


def error(got: Tensor, exact: Tensor) -> float:
    return (got.double() - exact).abs().mean().item()
