"""Programs that a GPU backend is measured by, small: each a function and its arguments, by name.

``INDUCTOR`` holds the bytes that Inductor's scheduler counts for the same graphs (torch 2.13, forward and backward);
``benchmarks/kernels/inductor_bytes.py`` prints them. ``COUNTS`` holds how many kernels, and how many calls of
operators, are made of them.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Program = tuple[Callable[..., Any], tuple, tuple]     # a function, its arguments, further parameters


def random(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape, requires_grad=grad)


class TransformerBlock(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ResNetBlock(nn.Module):
    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(inner)))


def of_module(module: nn.Module, *args: Any) -> Program:
    return (lambda *a: module(*a)), args, tuple(module.parameters())


def layer_norm_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (64,), weight, bias)) * x


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


def gelu_mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, up)), down)


def adam(parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = mean.lerp(gradient, 0.1)
    square = square * 0.999 + 0.001 * gradient * gradient
    return parameter - 0.01 * mean / (square.sqrt() + 1e-8), mean, square


def lstm_step() -> Program:
    cell = nn.LSTMCell(16, 16)
    return (lambda x, h, c: cell(x, (h, c))), (random(4, 16), random(4, 16), random(4, 16)), tuple(cell.parameters())


PROGRAMS: dict[str, Callable[[], Program]] = {
    "layer norm, GELU, multiply": lambda: (layer_norm_gelu, (random(128, 64), random(64), random(64)), ()),
    "softmax": lambda: (lambda x: x.softmax(-1), (random(128, 64),), ()),
    "cross-entropy": lambda: (cross_entropy, (random(32, 50), torch.randint(0, 50, (32,))), ()),
    "RMS norm": lambda: (rms_norm, (random(16, 64), random(64)), ()),
    "rotary embedding": lambda: (rotary, (random(2, 4, 8, 16), random(8, 16, grad=False),
                                          random(8, 16, grad=False)), ()),
    "GELU MLP": lambda: (gelu_mlp, (random(16, 32), random(64, 32), random(32, 64)), ()),
    "Adam step": lambda: (adam, (random(100, grad=False), random(100, grad=False), random(100, grad=False),
                                 random(100, grad=False).abs()), ()),
    "transformer block": lambda: of_module(TransformerBlock(), random(2, 8, 32)),
    "ResNet block": lambda: of_module(ResNetBlock(), random(2, 8, 6, 6)),
    "LSTM step": lstm_step,
}
COUNTS: dict[str, list[tuple[int, int]]] = {
    "layer norm, GELU, multiply": [(1, 0), (2, 0)],
    "softmax": [(1, 0), (1, 0)],
    "cross-entropy": [(2, 0), (1, 0)],
    "RMS norm": [(1, 0), (2, 0)],
    "rotary embedding": [(1, 0), (1, 0)],
    "GELU MLP": [(1, 2), (1, 4)],
    "Adam step": [(1, 0)],
    "transformer block": [(4, 5), (7, 9)],
    "ResNet block": [(3, 2), (3, 2)],
    "LSTM step": [(1, 2), (2, 4)],
}
INDUCTOR: dict[str, tuple[int, ...]] = {
    "layer norm, GELU, multiply": (67072, 199680),
    "softmax": (65536, 98304),
    "cross-entropy": (13728, 13320),
    "RMS norm": (8512, 21120),
    "rotary embedding": (21504, 22016),
    "GELU MLP": (36864, 69632),
    "Adam step": (2800,),
    "transformer block": (155648, 287680),
    "ResNet block": (47392, 59968),
    "LSTM step": (16128, 26368),
}
