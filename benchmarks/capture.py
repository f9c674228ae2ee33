"""Seconds of the first call of a model, sot beside torch.compile(backend="eager").

Each sample is a process of its own, and the two translators take turns. "first call" is the first
translated call of that process; "capture" is the first call of the model when a small function has been
translated before, so what the translator imports on first use is not in it. Ratios are of the medians.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from common import MODELS, TRANSLATORS, Row, in_fresh_process, medians, run_benchmark, translate

ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # capture is single-threaded, and the model should not wait for cores


def small(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


def first_call(translator: str, model_name: str, warm_up: str) -> Row:
    """One sample: seconds of the first call and of the third."""
    torch.manual_seed(0)
    model, inputs = MODELS[model_name]()
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
    return [compare(model, warm_up, repeats) for model in MODELS for warm_up in ("cold", "warm")]


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
        "limit": 0.7,
        "repeats": repeats,
    }


if __name__ == "__main__":
    run_benchmark(__doc__, measure, first_call, repeats=3)
