"""A cost model on paper: how long a lowered graph takes on a GPU, from public figures, without one.

A kernel takes its launch and its bytes at the bandwidth of the memory. A call of the library takes its launch, and the
longer of its bytes at that bandwidth and its multiplications at the dense peak of its type. Nothing overlaps, and
caches do not help, so the figures are predictions to compare schedules by. None is measured.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from sot.graph.kernels.program import Extern, Program, View, allocates
from sot.graph.kernels.schedule import extern_bytes, is_view, kernel_bytes
from sot.graph.kernels.sizes import typical


@dataclasses.dataclass(frozen=True)
class Device:
    """Bytes of memory traffic and operations a second, from the maker's data sheets (SXM, dense), and what one launch
    in a stream costs on the device.
    """

    bandwidth: float
    tf32: float
    half: float
    float32: float
    launch: float = 2.5e-6

    def peak(self, dtype: torch.dtype) -> float:
        """Float32 products are not made in TF32 unless the program asks for it."""
        if dtype in (torch.float16, torch.bfloat16):
            return self.half
        tf32 = dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest"
        return self.tf32 if tf32 else self.float32


DEVICES = {"H100": Device(3.35e12, 494e12, 989e12, 67e12), "H200": Device(4.8e12, 494e12, 989e12, 67e12),
           "B200": Device(8.0e12, 1.1e15, 2.25e15, 75e12)}


def predicted(program: Program, device: str) -> float:
    """Seconds."""
    about = DEVICES[device]
    total = 0.0
    for step in program.steps:
        if isinstance(step, Extern):
            total += called(step, program, about)
        else:
            kernels: Any = getattr(step, "kernels", (step,))
            total += about.launch + sum(map(kernel_bytes, kernels)) / about.bandwidth
    return total


def called(step: Extern, program: Program, about: Device) -> float:
    if is_view(step) or allocates(step):
        return 0.0
    moved = extern_bytes(step, program.buffers) / about.bandwidth
    result = next((program.buffers[name] for name in step.outputs if name), None)
    return about.launch + max(moved, flops(step, program) / about.peak(result.dtype if result else torch.float32))


def flops(step: Extern, program: Program) -> float:
    """The multiplications and additions of products and convolutions; 0 for other operators."""
    name = str(getattr(step.target, "_schema", None) and step.target._schema.name).removeprefix("aten::")
    shapes = [tuple(map(typical, a.shape)) for a in step.args if isinstance(a, View)]
    made = [step.into] if step.into else [program.buffers[n] for n in step.outputs if n]
    results = [math.prod(map(typical, result.shape)) for result in made]
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        return 2.0 * results[0] * shapes[-1][-2]
    if name == "convolution":
        return 2.0 * results[0] * math.prod(shapes[1][1:])
    if name == "convolution_backward":     # as many for each gradient that is asked for
        gradient, _, weight = shapes[:3]
        return 2.0 * math.prod(gradient) * math.prod(weight[1:]) * sum(map(bool, step.args[-1][:2]))
    if "attention" in name and len(shapes) >= 3:
        *batch, length, width = shapes[-3 if "backward" not in name else 1]
        return (4.0 if "backward" not in name else 10.0) * math.prod(batch) * length * width * shapes[-2][-2]
    return 0.0
