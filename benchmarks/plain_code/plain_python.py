"""Programs without tensors, after those of pyperformance: what a translator costs where it has nothing to do.

Each program runs while the translator is on for everything, as with sot.enable(), and plainly, in turns, after a
warm-up; a process of its own for each sample and translator. The figures are time in that of plain Python.

The floor is what an evaluator costs that only hands frames on (null_evaluator.c): with any evaluator set, CPython calls
functions through C rather than in the loop that runs their caller.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import random
import re
import shlex
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch._dynamo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import TRANSLATORS, Row, in_fresh_process, medians, run_benchmark

import sot

WARM_UP, TURNS = 60, 25
LIMIT = 1.15
NULL = "null evaluator"


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


# ---- fib: calls and nothing else ----
def fib(n: int = 22) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "fib": fib,
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


def null_evaluator() -> ModuleType:
    """null_evaluator.c, compiled for this Python."""
    source = Path(__file__).with_name("null_evaluator.c")
    name = source.stem
    with tempfile.TemporaryDirectory() as folder:
        made = str(Path(folder, name + ".so"))
        compiler = shlex.split(sysconfig.get_config_var("CC")) + ["-O2", "-shared", "-fPIC"]
        subprocess.run([*compiler, "-I" + sysconfig.get_path("include"), str(source), "-o", made], check=True)
        loader = importlib.machinery.ExtensionFileLoader(name, made)
        spec = importlib.util.spec_from_file_location(name, made, loader=loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module


Timed = Callable[[Callable[[], Any]], tuple[float, float]]  # seconds with something on for everything, and without it


def timed_with_sot() -> Timed:
    def timed(program: Callable[[], Any]) -> tuple[float, float]:
        taken = seconds(program)
        with sot.disable():
            return taken, seconds(program)

    sot.enable(backend="eager")
    return timed


def timed_with_torch_compile() -> Timed:
    def timed(program: Callable[[], Any]) -> tuple[float, float]:
        with torch._dynamo.optimize("eager"):
            taken = seconds(program)
        return taken, seconds(program)

    torch._dynamo.config.raise_on_ctx_manager_usage = False  # it is no more offered so, but it is still there
    return timed


def timed_with_null_evaluator() -> Timed:
    evaluator = null_evaluator()

    def timed(program: Callable[[], Any]) -> tuple[float, float]:
        evaluator.on()
        taken = seconds(program)
        evaluator.off()
        return taken, seconds(program)

    return timed


TIMED = dict(zip(TRANSLATORS, (timed_with_sot, timed_with_torch_compile), strict=True)) | {
    NULL: timed_with_null_evaluator
}


def ratios(which: str) -> Row:
    """One sample: of each program, the time with it on in that without, in turns in this process."""
    timed = TIMED[which]()
    found = {}
    for name, program in PROGRAMS.items():
        for _ in range(WARM_UP):
            timed(program)
        turns = [timed(program) for _ in range(TURNS)]
        on, plain = (statistics.median(column) for column in zip(*turns, strict=True))
        found[name] = on / plain
    return found


def measure(repeats: int) -> list[Row]:
    samples: dict[str, list[Row]] = {name: [] for name in TIMED}
    for _ in range(repeats):
        for name in TIMED:
            samples[name].append(in_fresh_process(__file__, name))
    found = {name: medians(taken) for name, taken in samples.items()}
    rows = [row(program, {name: ratio[program] for name, ratio in found.items()}, repeats) for program in PROGRAMS]
    means = {name: statistics.geometric_mean(ratio.values()) for name, ratio in found.items()}
    return [*rows, row("all: geometric mean", means, repeats)]


def row(name: str, found: dict[str, float], repeats: int) -> Row:
    return {
        "program": name,
        "measure": "time of plain Python's",
        "sot": found["sot"],
        "torch.compile": found["torch.compile"],
        "floor": found[NULL],
        "limit": LIMIT,
        "repeats": repeats,
    }


if __name__ == "__main__":
    run_benchmark(__doc__, measure, ratios, repeats=3)
