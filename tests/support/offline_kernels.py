"""Kernels of operators and programs as they are for a GPU, and what it takes to compile them without one."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from compiling import Kernels, copied, outcome
from gpu_programs import PROGRAMS
from operators import operators

import sot
from sot.backends.triton.source.module_source import module


def calls(names: Sequence[str]) -> Iterator[tuple[str, Any, tuple, list[torch.Tensor]]]:
    """Name, function, arguments, and the tensors whose gradients are wanted."""
    for name in names:
        if name in PROGRAMS:
            fn, args, parameters = PROGRAMS[name]()
        else:
            operator = operators()[name]
            kind = torch.float32 if torch.float32 in operator.dtypes else next(iter(operator.dtypes))
            grad = operator.supports_autograd and kind.is_floating_point
            sample = next(iter(operator.sample_inputs("cpu", kind, requires_grad=grad)))
            fn, args, parameters = called(operator.op, sample.kwargs), (sample.input, *sample.args), ()
        args = copied(args)
        leaves = torch.utils._pytree.tree_leaves(args)
        wanted = [t for t in (*leaves, *parameters) if isinstance(t, torch.Tensor) and t.requires_grad]
        yield name, fn, args, wanted


def called(op: Any, kwargs: dict[str, Any]) -> Any:
    return lambda *args: op(*args, **kwargs)


def written(names: Sequence[str], folder: Path) -> list[Path]:
    """The modules of these operators and programs, as they are for a GPU."""
    files = []
    for number, (name, fn, args, wanted) in enumerate(calls(names)):
        made = Kernels()
        outcome(sot.to_static(fn, backend=made), args, wanted)
        for i, one in enumerate(m for m in made.made if m.program is not None):
            files.append(folder / f"m{number}_{i}.py")
            files[-1].write_text(module(one.program, f"{name}, {one.title}", interpreted=False).text)
        sot.reset()
    return files


def compiled(files: Sequence[Path], folder: Path, jobs: int) -> list[dict[str, Any]]:
    """What each kernel takes of each kind of GPU."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder / "triton")}
    running = [subprocess.Popen(
        [sys.executable, "-m", "sot.backends.triton.offline", "80,90", *map(str, files[i::jobs])],
        env=environment, stdout=subprocess.PIPE, text=True) for i in range(jobs) if files[i::jobs]]
    texts = [process.communicate(timeout=3000)[0] for process in running]
    return [json.loads(line) for text in texts for line in text.splitlines()]
