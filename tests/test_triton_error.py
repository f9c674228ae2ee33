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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_at_most_twice_eagers(name, dtype):
    f = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((48, 48), (48,)))
    exact, eager = results(f, x.double(), w.double()), results(f, x, w)
    ours = results(sot.to_static(f, backend=Kernels()), x, w)
    for got, usual, right in zip(ours, eager, exact, strict=True):
        assert got.dtype == usual.dtype
        assert error(got, right) <= 2 * error(usual, right)
    assert len(leaves(ours)) == 3
    sot.reset()


def error(got: Tensor, exact: Tensor) -> float:
    return (got.double() - exact).abs().mean().item()
