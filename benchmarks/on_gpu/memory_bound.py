"""Kernels that only move memory: bandwidth as a share of a copy's, and the time of other block sizes."""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from on_gpu.measuring import DEVICE, DRY, ELEMENTS, SCALE, Row, compare, empty_caches, kernels_of, milliseconds, turn

import sot
from sot.backends.triton import tuning
from sot.backends.triton.compiler import Compiler

Case = tuple[Callable[..., Any], Callable[[], list[Any]]]


def random(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=grad)


def norms(width: int = SCALE.width) -> dict[str, Case]:
    def given(weights: int) -> list[torch.Tensor]:
        return [random(ELEMENTS // width, width, grad=True), *(random(width, grad=True) for _ in range(weights))]
    return {
        "softmax": (lambda x: x.softmax(-1), lambda: given(0)),
        "layer norm": (lambda x, w, b: F.layer_norm(x, (width,), w, b), lambda: given(2)),
        "RMS norm": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, lambda: given(1))}


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target)


def adam(parameters: list[torch.Tensor], gradients: list[torch.Tensor], means: list[torch.Tensor],
         squares: list[torch.Tensor]) -> list[Any]:
    done = []
    for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
        m, v = m.lerp(g, 0.1), v * 0.999 + 0.001 * g * g
        done.append((p - 0.001 * m / (v.sqrt() + 1e-8), m, v))
    return done


CASES: dict[str, Case] = {
    "pointwise chain": (lambda x, y: (x * y + x).sigmoid() * y - x, lambda: [random(ELEMENTS), random(ELEMENTS)]),
    **norms(),
    "cross-entropy": (cross_entropy, lambda: [
        random(ELEMENTS // SCALE.classes, SCALE.classes, grad=True),
        torch.randint(0, SCALE.classes, (ELEMENTS // SCALE.classes,), device=DEVICE)]),
    f"Adam, {SCALE.tensors} tensors": (adam, lambda: [
        [random(ELEMENTS // (4 * SCALE.tensors)).abs() for _ in range(SCALE.tensors)] for _ in range(4)]),
    "transposed sum": (lambda x, y: x.t() + y, lambda: [
        random(ELEMENTS // SCALE.width, SCALE.width), random(SCALE.width, ELEMENTS // SCALE.width)]),
    "sum of columns": (lambda x: x.sum(0), lambda: [random(ELEMENTS // SCALE.width, SCALE.width)]),
    "sum of all": (lambda x: x.sum(), lambda: [random(ELEMENTS)]),
}


def copy_bandwidth() -> Row:
    """GB/s of a copy on the device, reading and writing counted."""
    source = random(ELEMENTS * 2)
    target = torch.empty_like(source)
    with turn(alone=True):
        return {"GB/s": 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e6}


def bandwidth(name: str) -> Row:
    """GB/s of the forward pass and, if there are gradients, of the backward pass; beside torch.compile's times."""
    fn, arguments = CASES[name]
    compiler, args = Compiler(DEVICE, interpreted=DRY, strict=True), arguments()
    ways: dict[str, Any] = {"": sot.to_static(fn, backend=compiler)}
    if not DRY:
        ways["torch.compile's "] = torch.compile(fn)
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    with turn(alone=False):
        seed = torch.randn_like(fn(*args)) if leaves else None
        passes = {way: passes_of(run, args, leaves, seed) for way, run in ways.items()}
    found: Row = {}
    with turn(alone=True):
        moved = {"forward": compiler.made[0].cost.bytes, "backward": compiler.made[-1].cost.bytes}
        for way, runs in passes.items():
            for which, run in runs.items():
                found[f"{way}{which}"] = moved[which] / milliseconds(run) / 1e6
                found |= {f"{way}{which} {key}": value for key, value in kernels_of(run).items()}
    return found


def passes_of(run: Callable[..., Any], args: list[Any], leaves: list[torch.Tensor], seed: Any,
              ) -> dict[str, Callable[[], Any]]:
    """The passes of a function as calls without arguments. They have run once, and were right."""
    output = run(*args)
    passes: dict[str, Callable[[], Any]] = {"forward": lambda: run(*args)}
    if leaves:
        passes["backward"] = functools.partial(torch.autograd.grad, output, leaves, seed, retain_graph=True)
    return passes


def checked(name: str) -> Row:
    """The results of the kernels, and the gradients, are eager's."""
    fn, arguments = CASES[name]
    args = arguments()
    run = sot.to_static(fn, backend=Compiler(DEVICE, interpreted=DRY, strict=True))
    output, expected = run(*args), fn(*args)
    compare(output, expected, "fp32")
    if leaves := [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]:
        seed = torch.randn_like(output)
        compare(*(torch.autograd.grad(o, leaves, seed) for o in (output, expected)), "fp32")
    return {"right": 1}


def block_sizes(name: str) -> Row:
    """For each kernel: the milliseconds with the sizes that are chosen, the fastest sizes, and theirs."""
    fn, arguments = CASES[name]
    empty_caches()      # what is found in a cache has no kernels to look at
    compiler, args = Compiler(DEVICE, interpreted=DRY, strict=True), arguments()
    with turn(alone=False):
        output = sot.to_static(fn, backend=compiler)(*args)
        if leaves := [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]:
            torch.autograd.grad(output, leaves, torch.randn_like(output))
    found: Row = {}
    for made in compiler.made if not DRY else ():
        for kernel in made.program.kernels() if made.program else ():
            with turn(alone=False):     # compiled beside others, then found in the cache
                tried = {blocks: time_of(kernel, blocks) for blocks in tuning.candidates(kernel)}
            with turn(alone=True):
                times = {blocks: time_of(kernel, blocks) if math.isfinite(ms) else ms for blocks, ms in tried.items()}
            first, best = next(iter(times)), min(times, key=lambda blocks: times[blocks])
            found[f"{made.title} {kernel.name}"] = [
                times[first], times[best], str(dataclasses.astuple(first)), str(dataclasses.astuple(best))]
    return found


def time_of(kernel: Any, blocks: Any) -> float:
    try:
        return tuning.on_device(kernel, blocks)
    except Exception:       # too many registers, too much shared memory
        return math.inf
