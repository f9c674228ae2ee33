"""A batch size that takes 100 values, a step number, a growing cache: captures and time, beside torch.compile.

    python benchmarks/dynamic.py

Times are those of all calls together, the captures among them; ``warm`` is one more round over the same calls.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import sot

SIZES = range(2, 102)
MODEL = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))


def batch(x: torch.Tensor) -> torch.Tensor:
    return MODEL(x).view(x.shape[0], 2, 4).sum(1) / x.shape[0]


def step(x: torch.Tensor, n: int, rate: float) -> torch.Tensor:
    return x - rate * x.cos() + n


def grow(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    return torch.cat([cache, x], 1)


def attend(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    keys = grow(x, cache)
    return (x @ keys.transpose(1, 2) * 32 ** -0.5).softmax(-1) @ keys


CASES: dict[str, tuple[Callable[..., Any], list[tuple]]] = {
    "100 batch sizes": (batch, [(torch.randn(n, 32),) for n in SIZES]),
    "100 steps and rates": (step, [(torch.randn(8), n, 0.1 / n) for n in SIZES]),
    "a cache of 100 lengths": (attend, [(torch.randn(1, 1, 32), torch.randn(1, n, 32)) for n in SIZES]),
}


def seconds(fn: Callable[..., Any], calls: list[tuple]) -> float:
    start = time.perf_counter()
    for args in calls:
        fn(*args)
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    torch.compile(torch.sin, backend="eager")(torch.ones(2))      # what is imported late is no part of a capture
    sot.to_static(lambda x: x + 1, backend="eager")(torch.ones(2))
    print(f"{'':24} {'captures':>8} {'first s':>8} {'warm us':>8} {'compile: first':>14} {'warm':>8} {'plain':>8}")
    for name, (fn, calls) in CASES.items():
        torch._dynamo.reset()
        ours, theirs = sot.to_static(fn, backend="eager"), torch.compile(fn, backend="eager")
        first = [seconds(each, calls) for each in (ours, theirs)]
        rounds = [[seconds(each, calls) / len(calls) * 1e6 for each in (ours, theirs, fn)] for _ in range(15)]
        warm = [statistics.median(column) for column in zip(*rounds, strict=True)]
        captures = len(sot.api.translation_of(ours).captures)
        print(f"{name:24} {captures:>8} {first[0]:>8.3f} {warm[0]:>8.1f} {first[1]:>14.3f} {warm[1]:>8.1f} "
              f"{warm[2]:>8.1f}")


if __name__ == "__main__":
    main()
