"""Plain Python under SOT_ENABLE=1: programs in the manner of pyperformance, with the hook and without, in turns.

``python benchmarks/plain_python.py [--turns N] [--out FILE]`` prints the ratio of CPU times for each, and their
geometric mean.
"""
from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROUNDS = 5


def fib(n: int = 24) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    def plus(self, other: Point) -> Point:
        return Point(self.x + other.x, self.y + other.y)


def objects() -> None:
    point, one = Point(1, 2), Point(1, 1)
    for _ in range(40_000):
        point = point.plus(one)


def queens(size: int = 7, columns: tuple[int, ...] = ()) -> int:
    row = len(columns)
    if row == size:
        return 1
    return sum(queens(size, (*columns, c)) for c in range(size)
               if all(columns[i] != c and abs(columns[i] - c) != row - i for i in range(row)))


def generators() -> int:
    def squares() -> Iterator[int]:
        for i in range(200_000):
            yield i * i
    return sum(squares())


def spectral() -> list[float]:
    def element(i: int, j: int) -> float:
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)
    vector = [1.0] * 90
    for _ in range(4):
        vector = [sum(element(i, j) * vector[j] for j in range(90)) for i in range(90)]
    return vector


def text() -> None:
    table = {str(i): [i * 0.5] * 5 for i in range(100)}
    for _ in range(100):
        json.loads(json.dumps(table))
        re.sub(r"(\w+) (\d+)", lambda m: m[2] + m[1], "the quick brown fox jumps over 13 lazy dogs")


def paths() -> dict[int, int]:
    near: dict[int, int] = {}
    heap = [(0, 0)]
    while heap:
        cost, node = heapq.heappop(heap)
        if node not in near:
            near[node] = cost
            for step in (1, 7, 31):
                heapq.heappush(heap, (cost + step, (node * step + 1) % 4000))
    return near


def wrapped() -> None:
    def counted(fn: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any, **kwargs: Any) -> int:
            return fn(*args, **kwargs)
        return call
    add = counted(lambda a, b=1: a + b)
    for i in range(60_000):
        add(i, b=2)


PROGRAMS: tuple[Callable[[], Any], ...] = (fib, objects, queens, generators, spectral, text, paths, wrapped)


def times() -> dict[str, float]:
    """The least CPU seconds of each program in this process."""
    import torch  # noqa: F401  which enables the hook, if the environment asks for it
    found = {}
    for program in PROGRAMS:
        best = math.inf
        for _ in range(ROUNDS + 1):
            start = time.process_time()
            program()
            best = min(best, time.process_time() - start)
        found[program.__name__] = best
    return found


def measured(enabled: bool) -> dict[str, float]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SOT_ENABLE": "1" if enabled else "", "SOT_BUDGET": ""}
    done = subprocess.run([sys.executable, __file__, "--one"], env=env, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(times()))
        return
    turns = [(measured(False), measured(True)) for _ in range(options.turns)]
    rows = {name: round(min(e[name] for _, e in turns) / min(p[name] for p, _ in turns), 3) for name in turns[0][0]}
    mean = round(math.exp(sum(map(math.log, rows.values())) / len(rows)), 3)
    print(*(f"{name:12} {ratio:.2f}" for name, ratio in rows.items()), f"geometric mean {mean:.2f}", sep="\n")
    if options.out:
        made = {"turns": options.turns, "ratios": rows, "geometric mean": mean}
        options.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
