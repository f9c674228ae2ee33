"""What recording a report costs a running program, in CPU time: the same program with and without, by turns.

    python benchmarks/reporting.py

The goal is 3 %. The least of several turns counts, because other load only adds.
"""
from __future__ import annotations

import time
from collections.abc import Callable

import torch

import sot
from sot.reports.recording import Recording, recorded

TURNS, SECONDS = 15, 0.15
MODEL = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(8)))
X = torch.randn(32, 64)


def one_graph(x):
    return MODEL(x)


def eight_breaks(x):
    for layer in MODEL:
        x = layer(x)
        if x.sum() > 1e9:
            x = x + 1
    return x


def one_operation(x):
    return x + 1


def in_python(x):
    for layer in MODEL:
        x = layer(x)
    return x


def seconds(step: Callable[..., object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        step(X)
    return (time.process_time() - start) / calls


def cost(f: Callable[..., object]) -> tuple[float, float]:
    """Seconds of a call of a function that was captured before the recording, and of one captured within it."""
    plain, watched = sot.to_static(f, backend="eager"), sot.to_static(f, backend="eager")
    seconds(plain, 300)
    with recorded(Recording("cost")):
        seconds(watched, 300)       # captures, and counts the first operations one by one
        calls = max(int(SECONDS / seconds(watched, 100)), 1)
        turns = [(seconds(plain, calls), seconds(watched, calls)) for _ in range(TURNS)]
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def cost_of_counting() -> tuple[float, float]:
    """Seconds of a call that Python runs, without a recording and with one that has counted the first operations."""
    turns = []
    for _ in range(TURNS // 3):
        calls = int(SECONDS / seconds(in_python, 100))
        without = seconds(in_python, calls)
        with recorded(Recording("counting")):
            seconds(in_python, 300)
            turns.append((without, seconds(in_python, calls)))
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = [(f.__name__, *cost(f)) for f in (one_graph, eight_breaks, one_operation)]
        rows.append(("in_python", *cost_of_counting()))
    for name, without, with_recording in rows:
        print(f"{name:15} {without * 1e6:8.2f} us {with_recording * 1e6:8.2f} us "
              f"{100 * (with_recording / without - 1):+5.1f} %")


if __name__ == "__main__":
    main()
