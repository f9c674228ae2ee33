"""How many modules a graph needs for 200 pairs of batch and length, what making one costs, and what choosing one costs
a call. Kernels run in Triton's interpreter.

    python benchmarks/kernels/sizes.py
"""
from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import sot
from sot.backends.triton.compiler import Compiler
from sot.backends.triton.variants import Variants

SETS = 200
W = torch.randn(16, 16)
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer norm, GELU": lambda x: F.gelu(F.layer_norm(x, (16,))),
    "softmax over the length": lambda x: x.softmax(1) * x.shape[1],
    "attention": lambda x: F.softmax((x @ W) @ x.transpose(1, 2) / 4, -1) @ x,
    "cross-entropy": lambda x: F.cross_entropy(x.reshape(-1, 16), x.reshape(-1, 16).argmax(1)),
    "causal mask": lambda x: (x @ x.transpose(1, 2)).tril().sum(-1),
    "mean over the batch": lambda x: x - x.mean(0),
    "shifted": lambda x: x[:, 1:] - x[:, :-1],
}


def main() -> None:
    chosen = random.Random(0)
    sizes = [(chosen.randint(2, 6), chosen.randint(2, 200)) for _ in range(SETS)]
    variants: list[Variants] = []
    made, another = list[float](), Variants.another

    def timed(self: Variants, inputs: list, values: tuple) -> Callable:
        start = time.perf_counter()
        try:
            return another(self, inputs, values)
        finally:
            made.append(time.perf_counter() - start)
            variants.append(self)

    Variants.another = timed    # type: ignore[method-assign]
    print("| program | graphs | modules of a graph, at most | refused | seconds to make one | fits, us |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, f in PROGRAMS.items():
        variants.clear(), made.clear()
        run = sot.to_static(f, backend=Compiler("cpu", interpreted=True, strict=True), dynamic=True)
        for batch, length in sizes:
            x = torch.randn(batch, length, 16, requires_grad=True)
            run(x).sum().backward()
        graphs = {id(v): v for v in variants}.values()
        most = max(len(v.ranges) + len(v.fixed) for v in graphs)
        checks = [time_of(v) for v in graphs if v.ranges]
        refused = sum(bool(v.refused) for v in graphs)
        print(f"| {name} | {len(graphs)} | {most} | {refused} | {statistics.mean(made):.2f} | {max(checks):.2f} |",
              flush=True)
        sot.reset()


def time_of(variants: Variants) -> float:
    """Microseconds of a check of the last module."""
    fits, _ = variants.ranges[-1]
    values = [3] * len(variants.symbols.places)
    start = time.perf_counter()
    for _ in range(10_000):
        fits(*values)
    return (time.perf_counter() - start) * 100


if __name__ == "__main__":
    main()
