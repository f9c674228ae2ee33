"""The bytes that Inductor's scheduler says the graphs of ``tests/gpu_programs.py`` move, forward and backward.

    python benchmarks/inductor_bytes.py

Compiles on the CPU, which needs a C++ compiler; the count is of buffers and does not depend on the device.
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import torch
import torch._inductor.metrics as metrics
from gpu_programs import PROGRAMS
from torch.utils._pytree import tree_leaves


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


if __name__ == "__main__":
    torch._logging.set_logs(inductor_metrics=True)
    torch._inductor.config.fx_graph_cache = False
    for name in PROGRAMS:
        print(f'    "{name}": {tuple(counted(name))},')
