"""What changes at each call: batch sizes, a growing cache, a counter, a step number, a learning rate.

Captures and time, sot beside torch.compile(backend="eager") and plain Python, in turns in one process, on one
thread. "first" is all calls together, the captures among them; "warm" is a median call of more rounds over them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from common import TRANSLATORS, Row, own_code, reset, run_as_it_is, run_benchmark, translate
from torch import nn

SIZES = range(2, 102)
MODEL = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
MOST_CAPTURES = 2
Calls = list[tuple[Any, ...]]


def batch(x: torch.Tensor) -> torch.Tensor:
    return MODEL(x).view(x.shape[0], 2, 4).sum(1) / x.shape[0]


def grow(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    return torch.cat([cache, x], 1)


def attend(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    keys = grow(x, cache)
    return (x @ keys.transpose(1, 2) * 32**-0.5).softmax(-1) @ keys


class Counter(nn.Module):
    """Counts its calls, as modules do that change what they do with training."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x.cos() * self.count


def step_number(x: torch.Tensor, step: int) -> torch.Tensor:
    return x.cos() + step


def learning_rate(x: torch.Tensor, group: dict[str, float]) -> torch.Tensor:
    return x - group["lr"] * x.cos()


def both(x: torch.Tensor, step: int, rate: float) -> torch.Tensor:
    return x - rate * x.cos() + step


# What makes the callable (one of its own for each translator, for some keep state), and the arguments of its calls.
CASES: dict[str, tuple[Callable[[], Callable[..., Any]], Calls]] = {
    "100 batch sizes": (partial(own_code, batch), [(torch.randn(n, 32),) for n in SIZES]),
    "a cache of 100 lengths": (
        partial(own_code, attend),
        [(torch.randn(1, 1, 32), torch.randn(1, n, 32)) for n in SIZES],
    ),
    "a counter on a module": (Counter, [(torch.randn(8),) for _ in SIZES]),
    "a step number": (partial(own_code, step_number), [(torch.randn(8), n) for n in SIZES]),
    "a learning rate": (partial(own_code, learning_rate), [(torch.randn(8), {"lr": 0.1 / n}) for n in SIZES]),
    "a step number and a rate": (partial(own_code, both), [(torch.randn(8), n, 0.1 / n) for n in SIZES]),
}


class Counting:
    """The eager backend, and how many graphs it was given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return run_as_it_is(gm, example_inputs)


def seconds(fn: Callable[..., Any], calls: Calls) -> float:
    start = time.perf_counter()
    for args in calls:
        fn(*args)
    return time.perf_counter() - start


def compare(case: str, repeats: int) -> Row:
    make, calls = CASES[case]
    backends = {name: Counting() for name in TRANSLATORS}
    for name in TRANSLATORS:
        reset(name)
    translated = {name: translate(name, make(), backends[name]) for name in TRANSLATORS}
    callables = translated | {"plain": make()}
    first = {name: seconds(fn, calls) for name, fn in callables.items()}
    rounds = [{name: seconds(fn, calls) / len(calls) * 1e6 for name, fn in callables.items()} for _ in range(repeats)]
    warm = {name: statistics.median(each[name] for each in rounds) for name in callables}
    return {
        "case": case,
        **{f"{name}, captures": backend.graphs for name, backend in backends.items()},
        "limit, captures": MOST_CAPTURES,
        **{f"{name}, first, s": first[name] for name in TRANSLATORS},
        **{f"{name}, warm, us": value for name, value in warm.items()},
        "sot / plain": statistics.median(each["sot"] / each["plain"] for each in rounds),
        "repeats": repeats,
    }


def measure(repeats: int) -> list[Row]:
    torch.set_num_threads(1)
    for name in TRANSLATORS:  # what is imported late is no part of a capture
        translate(name, lambda x: x + 1)(torch.ones(2))
    return [compare(case, repeats) for case in CASES]


if __name__ == "__main__":
    run_benchmark(__doc__, measure, None, repeats=15)
