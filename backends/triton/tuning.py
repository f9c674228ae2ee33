"""``mode="max-autotune"``: measures block sizes and warps, and caches the best for each kernel and kind of GPU.

It tries a handful of sizes around those of ``blocks.chosen``. ``measure`` is a function of a kernel and its block
sizes, so the search can be tested without a GPU.
"""
from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import triton
from triton.testing import do_bench

from sot.backends.triton import cache, runtime
from sot.backends.triton.source.blocks import chosen
from sot.backends.triton.source.kernel_source import Blocks
from sot.backends.triton.source.matmul import CANDIDATES, Matmul, Tiles
from sot.backends.triton.source.module_source import module
from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.ops import DTYPES
from sot.graph.kernels.program import Buffer, Extern, Program, Step
from sot.graph.kernels.sizes import varies
from sot.support.progress import working
from sot.torch_compat.graphs import unset_fake_temporarily

KERNELS = logging.getLogger("sot.kernels")
SUFFIX = ".tuning"
ROWS = (0.25, 0.5, 1, 2, 4)     # factors of the chosen sizes
SHAPES = ((1, 0.5), (1, 2), (2, 0.5), (0.5, 2))     # of rows and columns, where rows are not whole
WARPS = (0.5, 1, 2)
LARGEST = 1 << 15               # elements of a block; beyond it, registers spill

Measure = Callable[[Kernel, Blocks], float]     # milliseconds
MeasureProduct = Callable[[Program, Matmul, Tiles | None], float]


def candidates(kernel: Kernel) -> Iterator[Blocks]:
    """The sizes worth trying, beginning with the choice without measurement."""
    first = chosen(kernel)
    yield first
    sizes = [(rows, 1.0, warps) for rows in ROWS for warps in WARPS]
    sizes += [(rows, columns, 1) for rows, columns in SHAPES] if first.columns and not first.whole else []
    for rows, columns, warps in sizes:
        blocks = Blocks(int(first.rows * rows), int(first.columns * columns), first.whole, int(first.warps * warps))
        fits = 1 <= blocks.warps <= 32 and 1 <= blocks.rows * max(blocks.columns, 1) <= LARGEST and blocks.rows
        if fits and blocks != first and blocks.rows <= (kernel.loop or 2 * kernel.row_count - 1):
            yield blocks


class Tuner:
    """The block sizes of kernels: the fastest that ``measure`` has seen.

    Arguments:
        where: the kind of GPU. Results are not used for others.
    """

    def __init__(self, measure: Measure, where: str) -> None:
        self.measure, self.where = measure, where

    def __call__(self, kernel: Kernel) -> Blocks:
        if varies(n for _, n in kernel.rows + kernel.reduced):
            return chosen(kernel)       # for any size
        key = cache.key_of("tuning", str(kernel), self.where, triton.__version__)
        if path := cache.find(key, SUFFIX):
            return Blocks(**json.loads(path.read_text()))
        with working(f"measuring block sizes of {kernel.name}"):
            best = self._fastest(kernel)
        cache.add(key, json.dumps(dataclasses.asdict(best)), f"{kernel.name} on {self.where}", SUFFIX)
        return best

    def _fastest(self, kernel: Kernel) -> Blocks:
        times: dict[Blocks, float] = {}
        for blocks in candidates(kernel):
            try:
                times[blocks] = self.measure(kernel, blocks)
            except Exception as error:      # too many registers, too much shared memory
                KERNELS.debug("tuning %s: %s does not run: %s", kernel.name, blocks, error)
        best = min(times, key=lambda blocks: times[blocks], default=chosen(kernel))
        KERNELS.debug("tuning %s: %s, %.3f ms, of %d", kernel.name, best, times.get(best, 0.0), len(times))
        return best


class ProductTuner:
    """Decides whether a product and what follows it are one kernel, and with which tiles: the fastest by ``measure``.

    Arguments:
        measure: returns milliseconds for a step with these tiles or, with None, for an ATen call and a kernel.
    """

    def __init__(self, measure: MeasureProduct, where: str) -> None:
        self.measure, self.where = measure, where

    def __call__(self, program: Program, step: Matmul) -> Tiles | None:
        asked = f"{step.target} {[str(view) for view in step.args[0]]} {step.kernel}"
        key = cache.key_of("product", asked, self.where, triton.__version__, torch.get_float32_matmul_precision())
        if path := cache.find(key, SUFFIX):
            found = json.loads(path.read_text())
            return Tiles(**found) if found else None
        times: dict[Tiles | None, float] = {}
        with working("measuring a matrix product"):
            for tiles in (None, *CANDIDATES):
                try:
                    times[tiles] = self.measure(program, step, tiles)
                except Exception as error:
                    KERNELS.debug("tuning a product: %s does not run: %s", tiles, error)
        best = min(times, key=lambda tiles: times[tiles], default=None)
        text = json.dumps(dataclasses.asdict(best) if best else None)
        cache.add(key, text, f"matmul on {self.where}", SUFFIX)
        return best


def product_on_device(program: Program, step: Matmul, tiles: Tiles | None) -> float:
    """The time of a product and what follows it on the current GPU."""
    first = next(s for s in program.steps if isinstance(s, Extern) and step.product in s.written())
    steps: list[Step] = [first, step.kernel] if tiles is None else [dataclasses.replace(step, tiles=tiles)]
    given = [name for name in step.parameters() if name not in step.kernel.written()]
    outputs = tuple(program.buffers[name].view() for name in step.kernel.written())
    return timed(Program(given, {}, program.buffers, steps, outputs))


def on_device(kernel: Kernel, blocks: Blocks) -> float:
    """The time of a kernel on the current GPU. Index inputs contain numbers in range."""
    device = torch.device("cuda", torch.cuda.current_device())
    buffers = {name: Buffer(name, DTYPES[m.dtype], (m.size,), (1,), device) for name, m in kernel.buffers.items()}
    given = [name for name in kernel.buffers if name not in kernel.written() - kernel.changed()]
    program = Program(given, {}, buffers, [kernel], tuple(buffers[name].view() for name in kernel.written()))
    return timed(program, lambda _: blocks)


def timed(program: Program, choose: Callable[[Kernel], Blocks] | None = None) -> float:
    """The time of a program in milliseconds, with inputs of zeros. AOTAutograd compiles while it traces with fake
    tensors, which have no memory that a kernel could read.
    """
    with tempfile.TemporaryDirectory() as folder, unset_fake_temporarily():
        path = Path(folder) / "tuned.py"
        path.write_text(module(program, "tuning", False, choose=choose).text)
        run = runtime.load(path).run
        inputs = [torch.empty_strided(b.shape, b.strides, dtype=b.dtype, device=b.device).zero_()
                  for b in (program.buffers[name] for name in program.inputs)]
        return do_bench(lambda: run(list(inputs), ()), return_mode="median")
