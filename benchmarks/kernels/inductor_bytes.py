"""The bytes that Inductor's scheduler says the graphs of ``tests/support/gpu_programs.py`` move, forward and backward.

    python benchmarks/kernels/inductor_bytes.py                       # the table INDUCTOR of that file
    python benchmarks/kernels/inductor_bytes.py --markdown FILE       # beside ours: kernels, calls, bytes, memory

Compiles on the CPU, which needs a C++ compiler; the count is of buffers and does not depend on the device. Ours runs in
Triton's interpreter.
"""
from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "support")]

import torch
import torch._inductor.metrics as metrics
from compiling import check_compiled
from gpu_programs import PROGRAMS
from torch.utils._pytree import tree_leaves

from sot.graph.kernels.memory import planned

COMMAND = "python benchmarks/kernels/inductor_bytes.py --markdown benchmarks/results/2026-11-21-inductor.md"


def counted(name: str) -> list[int]:
    torch.manual_seed(0)
    fn, args, parameters = PROGRAMS[name]()
    torch._dynamo.reset()
    metrics.reset()
    outputs = [t for t in tree_leaves(torch.compile(fn)(*args)) if isinstance(t, torch.Tensor) and t.requires_grad]
    forward = metrics.num_bytes_accessed
    if not outputs:
        return [forward]
    wanted = [t for t in (*args, *parameters) if t.requires_grad]
    torch.autograd.grad(sum((t * 0.5).square().sum() for t in outputs), wanted)
    return [forward, metrics.num_bytes_accessed - forward]


def table() -> Iterator[str]:
    """A row for each graph of each program; ours is checked against eager on the way."""
    yield "| program | graph | kernels | calls | bytes moved | Inductor's | ratio | allocated at most | without reuse |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in PROGRAMS:
        torch.manual_seed(0)
        fn, args, parameters = PROGRAMS[name]()
        made = check_compiled(fn, *args, parameters=parameters, rtol=1e-3, atol=1e-4)
        for one, theirs in zip(made, counted(name), strict=True):
            spent = one.cost
            plain = planned(one.program).without
            yield (f"| {name} | {one.title} | {spent.kernels} | {spent.externs} | {spent.bytes:,} | {theirs:,} | "
                   f"{spent.bytes / theirs:.2f} | {spent.peak:,} | {plain:,} |")


TEXT = """# Bytes moved, beside Inductor

What the schedules of `tests/support/gpu_programs.py` do to memory: launches of kernels, calls of operators, bytes read
and written (each buffer of a step once), and what is allocated at a time, results included, inputs not.
Inductor's bytes are those of its scheduler (`torch._inductor.metrics.num_bytes_accessed`, torch {torch}), for the same
programs on the CPU. A test asserts that no ratio is over 1.05 (`tests/triton/test_triton_programs.py`).

    {command}

{table}
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--markdown", type=Path)
    chosen = parser.parse_args()
    torch._logging.set_logs(inductor_metrics=True)
    torch._inductor.config.fx_graph_cache = False
    if chosen.markdown:
        lines = "\n".join(table())
        chosen.markdown.write_text(TEXT.format(torch=torch.__version__, command=COMMAND, table=lines))
    else:
        for name in PROGRAMS:
            print(f'    "{name}": {tuple(counted(name))},')
