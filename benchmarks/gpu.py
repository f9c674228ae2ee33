"""Graphs compiled to Triton kernels on a GPU, beside eager PyTorch and torch.compile, in one run.

    python benchmarks/gpu.py --markdown benchmarks/results/GPU.md

Bandwidth: of kernels that only move memory (64 MB and more), as a share of a copy's on the device. Speed: of whole
models, forward and training step, as a ratio to eager (larger is faster), and the seconds that the first call takes.
What cannot run here (a model whose package is missing, a translator that fails) is a line that says so.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import MODELS, Row, loss_of, markdown
from torch import nn

import sot

DEVICE = "cuda"
ELEMENTS = 2**25     # 128 MB of float32
Timed = Callable[[], Any]


def milliseconds(run: Timed, repeats: int = 30) -> float:
    """The median of single runs, by the device's own clock, with a cold cache."""
    cold = torch.empty(2**28, dtype=torch.int8, device=DEVICE)
    for _ in range(3):
        run()
    samples = []
    for _ in range(repeats):
        cold.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end))
    return statistics.median(samples)


# ---- bandwidth ----
def random(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=grad)


def norms(width: int = 4096) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    rows = ELEMENTS // width
    yield "softmax", lambda x: x.softmax(-1), [random(rows, width, grad=True)]
    yield "layer norm", lambda x, w, b: F.layer_norm(x, (width,), w, b), [
        random(rows, width, grad=True), random(width, grad=True), random(width, grad=True)]
    yield "RMS norm", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, [
        random(rows, width, grad=True), random(width, grad=True)]


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target)


def adam(parameters: list[torch.Tensor], gradients: list[torch.Tensor], means: list[torch.Tensor],
         squares: list[torch.Tensor]) -> list[Any]:
    done = []
    for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
        m, v = m.lerp(g, 0.1), v * 0.999 + 0.001 * g * g
        done.append((p - 0.001 * m / (v.sqrt() + 1e-8), m, v))
    return done


def copy_bandwidth() -> float:
    """GB/s of a copy on the device, reading and writing counted."""
    source = random(ELEMENTS * 2)
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e6


def bandwidth() -> Iterator[Row]:
    from sot.backends.triton.compiler import Compiler

    full = copy_bandwidth()
    yield {"what": "copy", "GB/s": full}
    cases: list[tuple[str, Callable[..., Any], list[Any]]] = [
        ("pointwise chain", lambda x, y: (x * y + x).sigmoid() * y - x, [random(ELEMENTS), random(ELEMENTS)]),
        *norms(),
        ("cross-entropy", cross_entropy, [random(ELEMENTS // 32768, 32768, grad=True),
                                          torch.randint(0, 32768, (ELEMENTS // 32768,), device=DEVICE)]),
        ("Adam, 100 tensors", adam, [[random(ELEMENTS // 400) for _ in range(100)] for _ in range(4)]),
    ]
    for name, fn, args in cases:
        try:
            yield from passes(name, fn, args, Compiler(DEVICE, interpreted=False), full)
        except Exception as error:
            yield {"what": name, "which": f"failed: {type(error).__name__}: {str(error)[:80]}"}
        sot.reset()


def passes(name: str, fn: Callable[..., Any], args: list[Any], compiler: Any, full: float) -> Iterator[Row]:
    """Forward and, if there are gradients, backward."""
    run = sot.to_static(fn, backend=compiler)
    output = run(*args)
    yield moved(name, "forward", compiler.made[0].cost.bytes, milliseconds(lambda: run(*args)), full)
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if leaves:
        seed = torch.randn_like(output)
        backward = functools.partial(torch.autograd.grad, output, leaves, seed, retain_graph=True)
        backward()
        yield moved(name, "backward", compiler.made[-1].cost.bytes, milliseconds(backward), full)


def moved(name: str, which: str, size: int, ms: float, full: float) -> Row:
    return {"what": name, "which": which, "GB/s": size / ms / 1e6, "of a copy": size / ms / 1e6 / full}


# ---- models ----
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


def make_llama() -> tuple[nn.Module, dict[str, Any]]:
    return LlamaBlock(), {"x": torch.randn(4, 512, 2048)}


def make_resnet() -> tuple[nn.Module, dict[str, Any]]:
    return MODELS["ResNet-50"](rows=32, size=224)


WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda m: m,
    "sot": lambda m: sot.to_static(m, backend="triton"),
    "torch.compile": torch.compile,
    "reduce-overhead": lambda m: torch.compile(m, mode="reduce-overhead"),
}


def speed(name: str, make: Callable[[], Any], dtype: torch.dtype, training: bool) -> Row:
    row: Row = {"model": name, "type": str(dtype)[6:], "what": "training step" if training else "inference"}
    eager = math.nan
    for way, translate in WAYS.items():
        sot.reset()
        torch._dynamo.reset()
        torch.manual_seed(0)
        try:
            module, inputs = make()
            module = module.to(DEVICE, dtype).train(training)
            inputs = {k: v.to(DEVICE, dtype if v.is_floating_point() else None) if isinstance(v, torch.Tensor) else v
                      for k, v in inputs.items()}
            run = step_of(translate(module), module, inputs, training)
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            row[f"{way} first, s"] = time.perf_counter() - start
            ms = milliseconds(run)
        except Exception as error:
            row[way] = f"failed: {type(error).__name__}"
            continue
        eager = ms if way == "eager" else eager
        row[f"{way}, ms" if way == "eager" else way] = ms if way == "eager" else eager / ms
    return row


def step_of(model: Any, module: nn.Module, inputs: dict[str, Any], training: bool) -> Timed:
    if not training:
        def infer() -> Any:
            with torch.no_grad():
                return model(**inputs)
        return infer
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(**inputs)).backward()
        optimizer.step()
    return step


def models() -> Iterator[Row]:
    cases = {"ResNet-50": make_resnet, "Llama-style block": make_llama,
             "BERT-base": lambda: MODELS["BERT-base"](length=128), "GPT-2 small": lambda: MODELS["GPT-2 small"](128)}
    for dtype in (torch.float32, torch.bfloat16):
        for training in (False, True):
            for name, make in cases.items():
                yield speed(name, make, dtype, training)


def geometric_mean(rows: list[Row], way: str) -> float:
    found = [math.log(r[way]) for r in rows if isinstance(r.get(way), float)]
    return math.exp(statistics.fmean(found)) if found else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    moves, speeds = list(bandwidth()), list(models())
    means = ", ".join(f"{way} {geometric_mean(speeds, way):.2f}" for way in list(WAYS)[1:])
    text = "\n\n".join([
        f"# On {torch.cuda.get_device_name()}, torch {torch.__version__}", "    python benchmarks/gpu.py",
        "## Bandwidth", markdown(moves), "## Speed, as a ratio to eager", markdown(speeds),
        f"Geometric means: {means}.",
    ])
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
