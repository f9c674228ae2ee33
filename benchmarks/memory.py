"""Peak memory of a training step after capture, beside plain PyTorch's: of a captured model, and of a whole step.

Each sample is a process of its own: three steps, then the kernel's high-water mark is reset, then a step.
"step" is how far that step rises above what was resident before it, and has the limit; "peak" is the whole
process, with the code that a translator imports. Linux only.
"""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import Row, in_fresh_process, loss_of, make_bert, make_resnet, medians, run_benchmark, translate

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
NAMES = ("plain", "sot", "torch.compile")
MODELS: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "ResNet-50": lambda: make_resnet(rows=8, size=128),
    "BERT-base": lambda: make_bert(length=256),
}
# Large blocks go back to the system when they are freed, so that what is resident is what is in use.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}


def mebibytes(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.M)
    assert found, f"no {field} in {STATUS}"
    return int(found[1]) / 1024


KINDS = (("step", "eager"), ("whole step", "eager"), ("whole step", "inductor"))


def step_memory(translator: str, model_name: str, kind: str, backend: str) -> Row:
    torch.manual_seed(0)
    model, inputs = MODELS[model_name]()
    model.train()
    if kind == "step":
        run = functools.partial(step, model, translate(translator, model, backend), inputs)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        run = functools.partial(translate(translator, whole_step, backend), model, optimizer, inputs)
    for _ in range(3):
        run()
    gc.collect()
    CLEAR.write_text("5")  # the high-water mark starts again from here
    before = mebibytes("VmRSS")
    run()
    peak = mebibytes("VmHWM")
    return {"step": peak - before, "peak": peak}


def step(model: torch.nn.Module, translated: Any, inputs: dict[str, Any]) -> None:
    loss_of(translated(**inputs)).backward()
    model.zero_grad(set_to_none=True)


def whole_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, inputs: dict[str, Any]) -> torch.Tensor:
    """Old gradients are there when it begins, and new ones when it ends."""
    optimizer.zero_grad()
    loss = loss_of(model(**inputs))
    loss.backward()
    optimizer.step()
    return loss.detach()


def compare(model: str, kind: str, backend: str, repeats: int) -> list[Row]:
    samples: dict[str, list[Row]] = {name: [] for name in NAMES}
    for _ in range(repeats):
        for name in NAMES:
            samples[name].append(in_fresh_process(__file__, name, model, kind, backend, environment=GIVE_BACK))
    found = {name: medians(rows) for name, rows in samples.items()}
    return [
        {
            "model": model,
            "what": kind,
            "backend": backend,
            "measure": f"{key}, MiB",
            **{name: found[name][key] for name in NAMES},
            "sot / plain": found["sot"][key] / found["plain"][key],
            "limit": 1.02 if key == "step" else None,
            "repeats": repeats,
        }
        for key in ("step", "peak")
    ]


def measure(repeats: int) -> list[Row]:
    return [row for model in MODELS for kind, backend in KINDS for row in compare(model, kind, backend, repeats)]


if __name__ == "__main__":
    run_benchmark(__doc__, measure, step_memory, repeats=3)
