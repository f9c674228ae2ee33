"""Seconds of the first call of a model and of the import, sot beside torch.compile(backend="eager").

Each sample is a process of its own, and the two translators take turns. "first call" is the first
translated call of that process; "capture" is the first call of the model when a small function has been
translated before, so what the translator imports on first use is not in it. "import" is what importing the
translator takes where torch is imported already. Ratios are of the medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from common import (
    MODELS,
    TRANSLATORS,
    Row,
    in_fresh_process,
    make_linear,
    make_recurrent,
    medians,
    run_benchmark,
    translate,
)

PROGRAMS = MODELS | {"100 Linear layers": make_linear, "500 GRUCell steps": make_recurrent}
LIMITS = {"100 Linear layers": 0.15, "500 GRUCell steps": 1.0}  # seconds; of the others 0.7
# What is imported after torch: of sot, whose names are loaded on first use, what a program needs that translates
# something, too. torch itself imports packages that ask for it (sot is one of them); here it does not.
IMPORTS = {"sot": ("import sot", "from sot import to_static"), "torch.compile": ("import torch._dynamo",) * 2}
IMPORT_LIMIT = 0.06
TIME_IMPORT = """
import time, torch
start = time.perf_counter()
{}
print(time.perf_counter() - start)
"""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # capture is single-threaded, and the model should not wait for cores


def small(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


def first_call(translator: str, model_name: str, warm_up: str) -> Row:
    """One sample: seconds of the first call and of the third."""
    torch.manual_seed(0)
    model, inputs = PROGRAMS[model_name]()
    with torch.no_grad():
        model.eval()(**inputs)  # what PyTorch itself sets up on first use
        if warm_up == "warm":
            translate(translator, small)(torch.ones(3))
        translated = translate(translator, model)
        seconds = [seconds_of_call(translated, inputs) for _ in range(3)]
    return {"first": seconds[0], "warm": seconds[2]}


def seconds_of_call(model: Any, inputs: dict[str, Any]) -> float:
    start = time.perf_counter()
    model(**inputs)
    return time.perf_counter() - start


def measure(repeats: int) -> list[Row]:
    rows = [compare(model, warm_up, repeats) for model in PROGRAMS for warm_up in ("cold", "warm")]
    return rows + [compare_imports(index, repeats) for index in range(len(IMPORTS["sot"]))]


def seconds_to_import(statement: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", TIME_IMPORT.format(statement)],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def compare_imports(index: int, repeats: int) -> Row:
    samples: dict[str, list[float]] = {name: [] for name in TRANSLATORS}
    for _ in range(repeats):
        for name in TRANSLATORS:
            samples[name].append(seconds_to_import(IMPORTS[name][index]))
    ours, theirs = (statistics.median(samples[name]) for name in TRANSLATORS)
    return {
        "model": IMPORTS["sot"][index],
        "measure": "import, s",
        "sot": ours,
        "torch.compile": theirs,
        "ratio": ours / theirs,
        "limit": IMPORT_LIMIT if index == 0 else None,
        "repeats": repeats,
    }


def compare(model: str, warm_up: str, repeats: int) -> Row:
    samples: dict[str, list[Row]] = {name: [] for name in TRANSLATORS}
    for _ in range(repeats):
        for name in TRANSLATORS:
            samples[name].append(in_fresh_process(__file__, name, model, warm_up, environment=ONE_THREAD))
    ours, theirs = (medians(samples[name]) for name in TRANSLATORS)
    return {
        "model": model,
        "measure": "first call, s" if warm_up == "cold" else "capture, s",
        "sot": ours["first"],
        "torch.compile": theirs["first"],
        "ratio": ours["first"] / theirs["first"],
        "sot, warm call": ours["warm"],
        "limit": LIMITS.get(model, 0.7),
        "repeats": repeats,
    }


if __name__ == "__main__":
    run_benchmark(__doc__, measure, first_call, repeats=3)
