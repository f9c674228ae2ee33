"""What the launch of a kernel costs Python: our generated function beside Triton's own ``kernel[grid](...)``.

    python benchmarks/kernels/launching.py

Needs triton but no GPU: the driver is the fake one of the tests, which does nothing.
"""
from __future__ import annotations

import os
import statistics
import sys
import tempfile
import timeit
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "support")]
os.environ.pop("TRITON_INTERPRET", None)

import torch
from common import Row, markdown
from fake_gpu import Launch, install

from sot.backends.triton import runtime
from sot.backends.triton.launching import launchers

CALLS = 20000
TEXT = """
import triton
import triton.language as tl
from sot.backends.triton.launching import Launcher


@triton.jit
def add({names}, n0, ROWS: tl.constexpr):
    p = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store({last} + p, {loads}, p < n0)


launch_add = Launcher(add, {types}, {{"ROWS": 1024}}, {{"num_warps": 4}})
"""


def measured(tensors: int, folder: Path) -> Row:
    names = [f"in{i}" for i in range(tensors)]
    path = folder / f"add{tensors}.py"
    loads = " + ".join(f"tl.load({name} + p, p < n0)" for name in names[:-1])
    path.write_text(TEXT.format(names=", ".join(names), last=names[-1], loads=loads,
                                types={**dict.fromkeys(names, "*fp32"), "n0": "i32"}))
    launcher, = launchers(runtime.load(path))
    args = [torch.empty(1024) for _ in names]
    ways = {"ours, us": lambda: launcher(1, *args, 1024),
            "Triton's, us": lambda: launcher.kernel[(1,)](*args, 1024, ROWS=1024, num_warps=4)}
    for way in ways.values():
        way()
    times = {name: statistics.median(timeit.repeat(way, number=CALLS, repeat=5)) / CALLS * 1e6
             for name, way in ways.items()}
    return {"tensors": tensors, **times, "ratio": times["ours, us"] / times["Triton's, us"]}


if __name__ == "__main__":
    Launch.__call__ = lambda self, *args: None      # type: ignore[method-assign]
    install()
    with tempfile.TemporaryDirectory() as made:
        print(markdown([measured(n, Path(made)) for n in (2, 4, 8)]))
