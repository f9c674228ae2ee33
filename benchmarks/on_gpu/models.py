"""Whole models on a GPU, each with one compiler: inference, training, whole steps, and lengths that vary."""
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import MODELS, loss_of
from on_gpu.measuring import (
    DEVICE,
    DRY,
    Row,
    Timed,
    compare,
    empty_caches,
    kernels_of,
    milliseconds,
    peak_of,
    seconds,
    turn,
)
from torch import nn

import sot

Made = tuple[nn.Module, dict[str, Any]]


class LlamaBlock(nn.Module):
    def __init__(self, width: int = 2048, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        angles = torch.outer(torch.arange(length, device=x.device, dtype=torch.float32),
                             torch.pow(10000.0, -torch.linspace(0, 1, q.shape[-1] // 2, device=x.device)))
        cosine, sine = (f(angles).repeat(1, 2).to(x.dtype) for f in (torch.cos, torch.sin))
        q, k = (t * cosine + torch.cat(tuple(-p if i else p for i, p in enumerate(t.chunk(2, -1)))[::-1], -1) * sine
                for t in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        inner = self.norm2(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


def make_llama(length: int = 512) -> Made:
    if DRY:
        return LlamaBlock(32, 2), {"x": torch.randn(2, length // 64, 32)}
    return LlamaBlock(), {"x": torch.randn(4, length, 2048)}


def make_convolution() -> Made:
    """For dry runs, in place of ResNet-50."""
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    return layers, {"input": torch.randn(2, 3, 8, 8)}


def make_gpt2(length: int) -> Made:
    model, inputs = MODELS["GPT-2 small"](length)
    return model, inputs | {"labels": inputs["input_ids"]}


CASES: dict[str, Callable[[], Made]] = {
    "ResNet-50": lambda: MODELS["ResNet-50"](rows=32, size=224), "Llama-style block": make_llama,
    "BERT-base": lambda: MODELS["BERT-base"](length=128), "GPT-2 small": lambda: make_gpt2(128)}
WHOLE_STEPS = ("Llama-style block", "BERT-base")
WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda m: m,
    "sot": lambda m: sot.to_static(m, backend="triton"),
    "sot reduce-overhead": lambda m: sot.to_static(m, backend="triton", mode="reduce-overhead"),
    "sot max-autotune": lambda m: sot.to_static(m, backend="triton", mode="max-autotune"),
    "torch.compile": torch.compile,
    "torch.compile reduce-overhead": lambda m: torch.compile(m, mode="reduce-overhead"),
}
if DRY:     # no CUDA graphs, nothing to tune, and no C++ compiler for Inductor
    CASES = {"convolution": make_convolution, "Llama-style block": make_llama}
    WHOLE_STEPS = ("Llama-style block",)
    for way in ("sot reduce-overhead", "sot max-autotune", "torch.compile reduce-overhead"):
        del WAYS[way]
    WAYS["torch.compile"] = lambda m: torch.compile(m, backend="eager")
BOTH = ("sot", "torch.compile")
PRECISIONS = {"bf16": (torch.bfloat16, "high"), "fp32": (torch.float32, "highest"), "tf32": (torch.float32, "high")}


def built(make: Callable[[], Made], dtype: torch.dtype, training: bool) -> Made:
    """A model and its inputs, the same each time."""
    torch.manual_seed(0)
    module, inputs = make()
    torch.manual_seed(1)
    return module.to(DEVICE, dtype).train(training), {
        k: v.to(DEVICE, dtype if v.is_floating_point() else None) if isinstance(v, torch.Tensor) else v
        for k, v in inputs.items()}


def speed(name: str, precision: str, what: str, way: str) -> Row:
    """Seconds of the first three calls, in which everything is compiled; milliseconds, kernels and memory of others."""
    os.environ["SOT_STRICT"] = "1"      # a graph that eager PyTorch would run fails
    dtype, matmul = PRECISIONS[precision]
    torch.set_float32_matmul_precision(matmul)
    make, training = CASES[name], what != "inference"
    with turn(alone="autotune" in way):
        sot.reset()
        torch._dynamo.reset()
        empty_caches()
        module, inputs = built(make, dtype, training)
        run = step_of(WAYS[way], module, inputs, what)
        result, first = seconds(run)
        first += sum(seconds(run)[1] for _ in range(2))
        if way.startswith("sot"):
            same, inputs = built(make, dtype, training)
            compare(result, seconds(step_of(WAYS["eager"], same, inputs, what))[0], precision)
            del same
        for _ in range(3):      # what is recorded at a later call is not measured
            run()
    with turn(alone=True):
        return {"first": first, "ms": milliseconds(run), **peak_of(run), **kernels_of(run)}


def step_of(way: Callable[[Any], Any], module: nn.Module, inputs: dict[str, Any], what: str) -> Timed:
    """Inference, a training step whose model is compiled, or one that is compiled as a whole, its optimizer too."""
    if what == "inference":
        model = way(module)

        def infer() -> Any:
            with torch.no_grad():
                return model(**inputs)
        return infer
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def step(model: Any) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(**inputs))
        loss.backward()
        optimizer.step()
        return loss.detach()
    if what == "whole step":
        return functools.partial(way(step), module)
    return functools.partial(step, way(module))


LENGTHS = (512, 384, 448, 320, 352, 500, 333, 128, 77, 505, 256, 411)


def varying(name: str, way: str) -> Row:
    """Inference of a length after the other: the seconds of all first calls, and milliseconds once each is known."""
    empty_caches()
    module, _ = built(CASES[name], torch.bfloat16, False)
    inputs = [built(functools.partial(make_llama, length), torch.bfloat16, False)[1] for length in LENGTHS]
    model = WAYS[way](module)

    @torch.no_grad()
    def all_lengths() -> list[Any]:
        return [model(**given) for given in inputs]
    with turn(alone=False):
        first = seconds(all_lengths)[1]
    with turn(alone=True):
        again = seconds(all_lengths)[1]
        return {"first": first, "second": again, "ms": milliseconds(all_lengths)}
