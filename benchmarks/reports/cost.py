"""What recording a report costs a running program, in CPU time: the same program with and without, by turns.

    python benchmarks/reports/cost.py

The goal is 3 %. A turn measures both, one right after the other, in alternating order. The median of the turns' ratios
counts, because other load changes from turn to turn; the quartiles say how much.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch

import sot
from sot.reports.recording import Recording, recorded

TURNS, SECONDS = 100, 0.03
MODEL = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(8)))
X = torch.randn(32, 64)
Turn = tuple[float, float]      # seconds of a call, without a recording and with one


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


def captured(f: Callable[..., object]) -> Iterator[Turn]:
    """Turns of a function that was captured before the recording, and of one captured within it."""
    plain, watched = sot.to_static(f, backend="eager"), sot.to_static(f, backend="eager")
    seconds(plain, 300)
    with recorded(Recording("cost")):
        seconds(watched, 5000)      # captures, and counts the first operations one by one
        calls = max(int(SECONDS / seconds(watched, 100)), 1)
        for turn in range(TURNS):
            if turn % 2:
                yield seconds(plain, calls), seconds(watched, calls)
            else:
                with_recording = seconds(watched, calls)
                yield seconds(plain, calls), with_recording


def left_to_python(f: Callable[..., object]) -> Iterator[Turn]:
    """Turns of a function that Python runs, without a recording and with one that has counted the first operations."""
    calls = int(SECONDS / seconds(f, 300))
    for turn in range(TURNS):
        measured = {}
        for active in (turn % 2 == 0, turn % 2 == 1):
            with recorded(Recording("counting")) if active else nullcontext():
                seconds(f, 400)
                measured[active] = seconds(f, calls)
        yield measured[False], measured[True]


def main() -> None:
    torch.set_num_threads(1)
    rows = [*((f, captured) for f in (one_graph, eight_breaks, one_operation)), (in_python, left_to_python)]
    for f, measure in rows:
        with torch.no_grad():
            turns = list(measure(f))
        low, middle, high = statistics.quantiles([b / a - 1 for a, b in turns], n=4)
        print(f"{f.__name__:15} {statistics.median(a for a, _ in turns) * 1e6:8.2f} us   "
              f"{100 * middle:+5.1f} % (quartiles {100 * low:+5.1f} and {100 * high:+5.1f} %)", flush=True)


if __name__ == "__main__":
    main()
