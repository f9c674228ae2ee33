"""Graphs compiled to Triton kernels on a GPU, beside eager PyTorch and torch.compile, in one run.

    python benchmarks/gpu.py --markdown benchmarks/results/GPU.md

Bandwidth: of kernels that only move memory (64 MB and more), as a share of a copy's on the device. Speed: of whole
models, forward and training step, as a ratio to eager (larger is faster), and the seconds that the first call takes,
nothing being cached by either compiler. Our results are compared with eager's before they are timed. What cannot run
here (a model whose package is missing, a translator that fails) is a cell that says so, and a traceback.

What is measured is kept at once, in build/gpu.jsonl: a run that was stopped goes on. `--only bandwidth` and the like
measure a part, `--minutes 9` stops in time. `--dry-run` goes through all of it on the CPU, small, with Triton's
interpreter: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"      # first calls are to compile
os.environ["TRITON_INTERPRET"] = str(int("--dry-run" in sys.argv))

import torch
import torch.nn.functional as F
import triton
from common import MODELS, Kept, Row, loss_of, markdown
from torch import nn
from torch.utils._pytree import tree_leaves

import sot
from sot.backends.triton.compiler import Compiler

DRY = "--dry-run" in sys.argv
Timed = Callable[[], Any]


@dataclass(frozen=True)
class Scale:
    """How large everything is: ``elements`` of float32 in a tensor, ``width`` of a row, ``classes``, ``tensors``."""

    device: str
    elements: int
    width: int
    classes: int
    tensors: int
    repeats: int


REAL = Scale("cuda", 2**25, 4096, 32768, 100, 30)     # 128 MB
SMALL = Scale("cpu", 2**10, 64, 64, 3, 1)
SCALE = SMALL if DRY else REAL
DEVICE, ELEMENTS = SCALE.device, SCALE.elements


def milliseconds(run: Timed) -> float:
    """The median of single runs, by the device's own clock, with a cold cache."""
    if DRY:
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    cold = torch.empty(2**28, dtype=torch.int8, device=DEVICE)
    for _ in range(3):
        run()
    samples = []
    for _ in range(SCALE.repeats):
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


def norms(width: int = SCALE.width) -> dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]]:
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


def copy_bandwidth() -> float:
    """GB/s of a copy on the device, reading and writing counted."""
    source = random(ELEMENTS * 2)
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e6


def bandwidth(kept: Kept) -> Iterator[Row]:
    copy = kept("bandwidth, copy", lambda: {"GB/s": copy_bandwidth()})
    yield {"what": "copy"} | copy
    cases: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
        "pointwise chain": (lambda x, y: (x * y + x).sigmoid() * y - x, lambda: [random(ELEMENTS), random(ELEMENTS)]),
        **norms(),
        "cross-entropy": (cross_entropy, lambda: [
            random(ELEMENTS // SCALE.classes, SCALE.classes, grad=True),
            torch.randint(0, SCALE.classes, (ELEMENTS // SCALE.classes,), device=DEVICE)]),
        f"Adam, {SCALE.tensors} tensors": (adam, lambda: [
            [random(ELEMENTS // (4 * SCALE.tensors)).abs() for _ in range(SCALE.tensors)] for _ in range(4)]),
    }
    for name, (fn, arguments) in cases.items():
        passes = kept(f"bandwidth, {name}", functools.partial(measured, fn, arguments))
        if "failed" in passes:
            yield {"what": name, "which": f"failed: {passes['failed']}"}
        for which, speed in passes.items() if "failed" not in passes else ():
            yield {"what": name, "which": which, "GB/s": speed, "of a copy": speed / copy.get("GB/s", math.nan)}


def measured(fn: Callable[..., Any], arguments: Callable[[], list[Any]]) -> Row:
    """GB/s of the forward pass and, if there are gradients, of the backward pass."""
    sot.reset()
    args, compiler = arguments(), Compiler(DEVICE, interpreted=DRY, strict=True)
    run = sot.to_static(fn, backend=compiler)
    output = run(*args)
    compare(output, fn(*args), "fp32")
    found = {"forward": compiler.made[0].cost.bytes / milliseconds(lambda: run(*args)) / 1e6}
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if leaves:
        seed = torch.randn_like(output)
        backward = functools.partial(torch.autograd.grad, output, leaves, seed, retain_graph=True)
        compare(backward(), torch.autograd.grad(fn(*args), leaves, seed), "fp32")
        found["backward"] = compiler.made[-1].cost.bytes / milliseconds(backward) / 1e6
    return found


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
    if DRY:
        return LlamaBlock(32, 2), {"x": torch.randn(2, 8, 32)}
    return LlamaBlock(), {"x": torch.randn(4, 512, 2048)}


def make_convolution() -> tuple[nn.Module, dict[str, Any]]:
    """For dry runs, in place of ResNet-50."""
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    return layers, {"input": torch.randn(2, 3, 8, 8)}


def make_resnet() -> tuple[nn.Module, dict[str, Any]]:
    return MODELS["ResNet-50"](rows=32, size=224)


WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda m: m,
    "sot": lambda m: sot.to_static(m, backend="triton"),
    "sot reduce-overhead": lambda m: sot.to_static(m, backend="triton", mode="reduce-overhead"),
    "torch.compile": torch.compile,
    "torch.compile reduce-overhead": lambda m: torch.compile(m, mode="reduce-overhead"),
}
if DRY:     # no CUDA graphs, and no C++ compiler for inductor
    del WAYS["sot reduce-overhead"], WAYS["torch.compile reduce-overhead"]
    WAYS["torch.compile"] = lambda m: torch.compile(m, backend="eager")
PRECISIONS = {"bf16": (torch.bfloat16, "high"), "fp32": (torch.float32, "highest"), "tf32": (torch.float32, "high")}
# How far results may be from eager's, of the largest of them: kernels round less often, and add in another order.
TOLERANCES = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 5e-2}


def compare(got: Any, expected: Any, precision: str) -> None:
    """Raises an AssertionError if a result is not eager's."""
    for ours, eager in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        if isinstance(eager, torch.Tensor) and eager.is_floating_point():
            far = ((ours.float() - eager.float()).abs().max() / eager.float().abs().max().clamp(min=1e-30)).item()
            if not far <= TOLERANCES[precision]:
                raise AssertionError(f"a result is {far:.1e} away from eager's")


def empty_caches() -> None:
    """Nothing is found on disk, by us, by Triton or by Inductor: a first call compiles."""
    folder = tempfile.mkdtemp(prefix="sot-gpu-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("SOT_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[name] = str(Path(folder) / name)


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def built(make: Callable[[], Any], dtype: torch.dtype, training: bool) -> tuple[nn.Module, dict[str, Any]]:
    """A model and its inputs, the same each time."""
    torch.manual_seed(0)
    module, inputs = make()
    return module.to(DEVICE, dtype).train(training), {
        k: v.to(DEVICE, dtype if v.is_floating_point() else None) if isinstance(v, torch.Tensor) else v
        for k, v in inputs.items()}


def first_of(run: Timed) -> tuple[Any, float]:
    """What the first call gives, and the seconds it takes."""
    torch.manual_seed(1)
    wait()
    start = time.perf_counter()
    result = run()
    wait()
    return result, time.perf_counter() - start


def timed(way: str, make: Callable[[], Any], precision: str, training: bool) -> Row:
    """Seconds of the first call, and milliseconds of the others."""
    dtype, matmul = PRECISIONS[precision]
    torch.set_float32_matmul_precision(matmul)
    sot.reset()
    torch._dynamo.reset()
    gc.collect()
    empty_caches()
    module, inputs = built(make, dtype, training)
    run = step_of(WAYS[way](module), module, inputs, training)
    result, seconds = first_of(run)
    if way.startswith("sot"):
        same, inputs = built(make, dtype, training)
        compare(result, first_of(step_of(same, same, inputs, training))[0], precision)
    return {"first": seconds, "ms": milliseconds(run)}


def speed(kept: Kept, name: str, make: Callable[[], Any], precision: str, training: bool) -> Row:
    what = "training step" if training else "inference"
    row: Row = {"model": name, "type": precision, "what": what}
    eager = math.nan
    for way in WAYS:
        found = kept(f"speed, {name}, {precision}, {what}, {way}",
                     functools.partial(timed, way, make, precision, training))
        if "ms" not in found:
            row[way] = f"failed: {found['failed']}" if found else None
            continue
        row[f"{way} first, s"] = found["first"]
        eager = found["ms"] if way == "eager" else eager
        row[f"{way}, ms" if way == "eager" else way] = eager if way == "eager" else eager / found["ms"]
    return row


def step_of(model: Any, module: nn.Module, inputs: dict[str, Any], training: bool) -> Timed:
    if not training:
        def infer() -> Any:
            with torch.no_grad():
                return model(**inputs)
        return infer
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(**inputs))
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def models(kept: Kept) -> Iterator[Row]:
    cases = {"ResNet-50": make_resnet, "Llama-style block": make_llama,
             "BERT-base": lambda: MODELS["BERT-base"](length=128), "GPT-2 small": lambda: MODELS["GPT-2 small"](128)}
    if DRY:
        cases = {"convolution": make_convolution, "Llama-style block": make_llama}
    for precision in PRECISIONS:
        for training in (False, True):
            for name, make in cases.items():
                yield speed(kept, name, make, precision, training)


def geometric_mean(rows: list[Row], way: str) -> float:
    found = [math.log(r[way]) for r in rows if isinstance(r.get(way), float)]
    return math.exp(statistics.fmean(found)) if found else math.nan


def compile_share(rows: list[Row]) -> float:
    """Our first calls beside those of torch.compile."""
    ours, theirs = "sot first, s", "torch.compile first, s"
    shares = [math.log(r[ours] / r[theirs]) for r in rows if ours in r and theirs in r]
    return math.exp(statistics.fmean(shares)) if shares else math.nan


BY_HAND = "## Without a GPU"       # what follows this heading in a file of results stays


def written(moves: list[Row], speeds: list[Row]) -> str:
    means = ", ".join(f"{way} {geometric_mean(speeds, way):.2f}" for way in list(WAYS)[1:])
    name = "no GPU: a dry run" if DRY else torch.cuda.get_device_name()
    return "\n\n".join([
        f"# On {name}, torch {torch.__version__}, triton {triton.__version__}", "    python benchmarks/gpu.py",
        "## Bandwidth", markdown(moves), "## Speed, as a ratio to eager", markdown(speeds),
        f"Geometric means: {means}. Compiling takes {compile_share(speeds):.2f} of torch.compile's time, in the mean.",
    ])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", default="", help="measure what a regular expression finds: bandwidth, 'BERT.*bf16'")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after these, begin nothing new")
    parser.add_argument("--kept", type=Path, default=Path("build/gpu.jsonl"), help="where measured values are kept")
    parser.add_argument("--dry-run", action="store_true", help="everything once, small, on the CPU")
    options = parser.parse_args()
    kept = Kept(options.kept, options.only, options.minutes)
    moves, speeds = list(bandwidth(kept)), list(models(kept))
    text = written(moves, speeds)
    print(text)
    if options.markdown:
        before = options.markdown.read_text() if options.markdown.exists() else ""
        _, heading, rest = before.partition(BY_HAND)
        options.markdown.write_text(f"{text}\n" + (f"\n{heading}{rest}" if heading else ""))


if __name__ == "__main__":
    main()
