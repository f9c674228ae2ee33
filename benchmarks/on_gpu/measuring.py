"""How things are measured on a GPU: time, device time of each kernel, memory, one process at a time.

Several processes compile at once, because compilers use one core for most of their time. Whoever compiles holds the
lock file shared and whoever measures holds it alone, so nothing is measured beside another process.
"""
from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

DRY = "--dry-run" in sys.argv
Timed = Callable[[], Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How large everything is: ``elements`` of float32 in a tensor, ``width`` of a row, ``classes``, ``tensors``."""

    device: str
    elements: int
    width: int
    classes: int
    tensors: int
    repeats: int


REAL = Scale("cuda", 2**25, 4096, 32768, 100, 30)     # 128 MB
SMALL = Scale("cpu", 2**10, 64, 64, 3, 1)
SCALE = SMALL if DRY else REAL
DEVICE, ELEMENTS = SCALE.device, SCALE.elements
LOCK = "SOT_GPU_LOCK"       # the variable that names the lock file


@contextlib.contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Hold the GPU alone, to measure, or beside others, to compile."""
    if LOCK not in os.environ:
        yield
        return
    with open(os.environ[LOCK], "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def empty_caches() -> None:
    """Nothing is found on disk, by us, by Triton or by Inductor: a first call compiles."""
    folder = tempfile.mkdtemp(prefix="sot-gpu-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("SOT_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[name] = str(Path(folder) / name)


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def milliseconds(run: Timed) -> float:
    """The median of single runs, by the device's own clock, with a cold cache."""
    if DRY:
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    cold = torch.empty(2**28, dtype=torch.int8, device=DEVICE)
    for _ in range(3):
        run()
    samples = []
    for _ in range(SCALE.repeats):
        cold.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end))
    return statistics.median(samples)


def seconds(run: Timed) -> tuple[Any, float]:
    """What a call gives, and how long it takes until the device is done."""
    wait()
    start = time.perf_counter()
    result = run()
    wait()
    return result, time.perf_counter() - start


def kernels_of(run: Timed, largest: int = 8) -> Row:
    """The device time of one call in milliseconds, and its ``largest`` kernels: name, number, milliseconds."""
    if DRY:
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profiled.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times.setdefault(event.name, []).append(event.device_time_total / 1e3)
    slowest = sorted(times, key=lambda name: -sum(times[name]))[:largest]
    return {"device, ms": sum(map(sum, times.values())), "launches": sum(map(len, times.values())),
            "kernels": [[name[:70], len(times[name]), sum(times[name])] for name in slowest]}


def peak_of(run: Timed) -> Row:
    """The most memory that one call takes, beside what is there already, in MB."""
    if DRY:
        return {}
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return {"peak, MB": (torch.cuda.max_memory_allocated() - before) / 2**20}


# How far results may be from eager's, of the largest of them: kernels round less often, and add in another order.
TOLERANCES = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 5e-2}


def compare(got: Any, expected: Any, precision: str) -> None:
    """Raises an AssertionError if a result is not eager's."""
    for ours, eager in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        if isinstance(eager, torch.Tensor) and eager.is_floating_point():
            far = ((ours.float() - eager.float()).abs().max() / eager.float().abs().max().clamp(min=1e-30)).item()
            if not far <= TOLERANCES[precision]:
                raise AssertionError(f"a result is {far:.1e} away from eager's")
