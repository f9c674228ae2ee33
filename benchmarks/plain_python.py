"""Programs without tensors, after those of pyperformance: what a translator costs where it has nothing to do.

Each program runs while the translator is on for everything, as with sot.enable(), and plainly, in turns, after a
warm-up; a process of its own for each sample and translator. The figures are time in that of plain Python.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch._dynamo
from common import TRANSLATORS, Row, in_fresh_process, medians, run_benchmark

import sot

WARM_UP, TURNS = 60, 25
LIMIT = 1.15


# ---- nbody: floats in lists ----
BODIES = [
    ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 39.47),
    ([4.84, -1.16, -0.10], [0.60, 2.81, -0.02], 0.037),
    ([8.34, 4.12, -0.40], [-1.01, 1.82, 0.008], 0.011),
]


def advance(bodies: list, step: float) -> None:
    for i, (here, speed, mass) in enumerate(bodies):
        for there, other_speed, other_mass in bodies[:i]:
            apart = [a - b for a, b in zip(here, there, strict=True)]
            pull = step / sum(d * d for d in apart) ** 1.5
            for axis, distance in enumerate(apart):
                speed[axis] -= distance * other_mass * pull
                other_speed[axis] += distance * mass * pull
    for here, speed, _ in bodies:
        for axis in range(3):
            here[axis] += step * speed[axis]


def nbody() -> float:
    bodies = [(list(here), list(speed), mass) for here, speed, mass in BODIES]
    for _ in range(150):
        advance(bodies, 0.001)
    return bodies[0][0][0]


# ---- queens: generators that call themselves ----
def place(n: int, columns: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    row = len(columns)
    if row == n:
        yield columns
        return
    for column in range(n):
        if all(column != c and abs(column - c) != row - r for r, c in enumerate(columns)):
            yield from place(n, (*columns, column))


def queens() -> int:
    return sum(1 for _ in place(6))


# ---- richards: small methods of objects ----
class Packet:
    def __init__(self, kind: int) -> None:
        self.kind, self.data = kind, 0

    def step(self) -> int:
        self.data = (self.data + self.kind) % 26
        return self.data


class Task:
    def __init__(self, name: int) -> None:
        self.queue: list[Packet] = [Packet(name + i) for i in range(4)]
        self.handled = 0

    def take(self) -> Packet:
        return self.queue.pop(0)

    def run(self, other: Task) -> None:
        packet = self.take()
        self.handled += packet.step()
        other.add(packet)

    def add(self, packet: Packet) -> None:
        self.queue.append(packet)


def richards() -> int:
    tasks = [Task(i) for i in range(6)]
    for turn in range(1500):
        tasks[turn % 6].run(tasks[(turn + 1) % 6])
    return sum(task.handled for task in tasks)


# ---- data: comprehensions, dicts, text ----
def records() -> str:
    rows = [{"id": i, "name": f"row {i}", "tags": [str(i % k) for k in range(1, 6)]} for i in range(150)]
    return json.dumps({row["name"]: row for row in json.loads(json.dumps(rows))}, sort_keys=True)


WORD = re.compile(r"[a-z]+(\d+)")


def words() -> int:
    text = " ".join(f"word{i} other" for i in range(600))
    counts: dict[str, int] = {}
    for found in WORD.finditer(text):
        counts[found.group(1)[-1]] = counts.get(found.group(1)[-1], 0) + 1
    return sum(sorted(counts.values())[:3])


def sieve() -> int:
    flags = [True] * 6000
    for i in range(2, 78):
        if flags[i]:
            for j in range(i * i, len(flags), i):
                flags[j] = False
    return sum(flags)


def spectral() -> float:
    def entry(i: int, j: int) -> float:
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)

    vector = [1.0] * 30
    for _ in range(4):
        vector = [sum(entry(i, j) * v for j, v in enumerate(vector)) for i in range(30)]
    return vector[0]


def shuffled() -> int:
    generator = random.Random(1)
    numbers = list(range(1500))
    generator.shuffle(numbers)
    return sorted(numbers, key=lambda n: -n)[3]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "nbody": nbody,
    "queens": queens,
    "richards": richards,
    "records": records,
    "words": words,
    "sieve": sieve,
    "spectral norm": spectral,
    "shuffled": shuffled,
}


# ---- measuring ----
def seconds(program: Callable[[], Any]) -> float:
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


def on_and_plain(translator: str, program: Callable[[], Any]) -> tuple[float, float]:
    """Seconds with the translator on for everything (sot is, as long as this runs) and without it."""
    if translator == "sot":
        taken = seconds(program)
        with sot.disable():
            return taken, seconds(program)
    with torch._dynamo.optimize("eager"):
        taken = seconds(program)
    return taken, seconds(program)


def ratios(translator: str) -> Row:
    """One sample: of each program, the time with the translator on in that without, in turns in this process."""
    if translator == "sot":
        sot.enable(backend="eager")
    else:
        torch._dynamo.config.raise_on_ctx_manager_usage = False  # it is no more offered so, but it is still there
    found = {}
    for name, program in PROGRAMS.items():
        for _ in range(WARM_UP):
            on_and_plain(translator, program)
        turns = [on_and_plain(translator, program) for _ in range(TURNS)]
        on, plain = (statistics.median(column) for column in zip(*turns, strict=True))
        found[name] = on / plain
    return found


def measure(repeats: int) -> list[Row]:
    samples: dict[str, list[Row]] = {name: [] for name in TRANSLATORS}
    for _ in range(repeats):
        for name in TRANSLATORS:
            samples[name].append(in_fresh_process(__file__, name))
    ours, theirs = (medians(samples[name]) for name in TRANSLATORS)
    rows = [row(name, ours[name], theirs[name], repeats) for name in PROGRAMS]
    means = [statistics.geometric_mean(found.values()) for found in (ours, theirs)]
    return [*rows, row("all: geometric mean", *means, repeats)]


def row(name: str, ours: float, theirs: float, repeats: int) -> Row:
    return {
        "program": name,
        "measure": "time of plain Python's",
        "sot": ours,
        "torch.compile": theirs,
        "limit": LIMIT,
        "repeats": repeats,
    }


if __name__ == "__main__":
    run_benchmark(__doc__, measure, ratios, repeats=3)
