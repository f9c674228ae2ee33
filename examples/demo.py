"""Two models, translated and compared with plain PyTorch: python examples/demo.py  (or: make demo)

ResNet-50 and BERT-base (random weights, a paragraph of text) run inference and three training steps, from
the same weights and random numbers each time: plain, under a translator, and under
torch.compile(backend="eager"). Exit status 1 unless each is one graph without breaks, and outputs and
gradients are plain PyTorch's.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded

import torch
from resnet import resnet50
from rich.console import Console
from rich.table import Table
from text import batch, masked_batch
from torch import Tensor, nn

import sot
from sot.reports.build import report_of
from sot.reports.recording import Recording, recorded

TOLERANCE = 1e-5
STEPS = 3
Inputs = dict[str, Tensor]


# ---- the models ----


@dataclass(frozen=True)
class Job:
    """One model and what to run it on.  `loss` gets the model's output and the training inputs."""

    name: str
    make: Callable[[], nn.Module]
    inference: Callable[[], Inputs]
    training: Callable[[], Inputs]
    loss: Callable[[Any, Inputs], Tensor]


def images() -> Inputs:
    return {"x": torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(0))}


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig())


REPORT = "build/demo-report.html"
JOBS = {
    "resnet": Job(
        "ResNet-50",
        resnet50,
        images,
        images,
        lambda output, inputs: nn.functional.cross_entropy(output, torch.tensor([3, 7])),
    ),
    "bert": Job("BERT-base", bert, batch, masked_batch, lambda output, inputs: output.loss),
}


# ---- the translators ----


@dataclass
class Counter:
    """A backend that counts the graphs it is given and runs them as they are."""

    graphs: int = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return gm.forward


def plain(model: nn.Module, backend: Counter) -> nn.Module:
    return model


def with_sot(model: nn.Module, backend: Counter) -> nn.Module:
    sot.reset()
    return sot.to_static(model, backend=backend)


def with_torch_compile(model: nn.Module, backend: Counter) -> nn.Module:
    torch._dynamo.reset()
    return torch.compile(model, backend=backend)  # backend="eager" that counts


TRANSLATORS = {"plain": plain, "sot": with_sot, "torch.compile": with_torch_compile}


# ---- running them ----


@dataclass
class Run:
    """What one model did in one mode under one translator."""

    graphs: int = 0
    calls: list[float] = field(default_factory=list)  # seconds of each call of the model
    steps: list[float] = field(default_factory=list)  # seconds with backward and the optimizer, in training
    outputs: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)

    @property
    def warm(self) -> float:
        return statistics.median((self.steps or self.calls)[1:])

    @property
    def capture(self) -> float:
        return self.calls[0] - statistics.median(self.calls[1:])


@contextmanager
def timed(seconds: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - start)


def tensors(output: Any) -> list[Tensor]:
    return [output] if isinstance(output, Tensor) else [v for v in output.values() if isinstance(v, Tensor)]


def infer(job: Job, model: nn.Module, translate: Callable[..., nn.Module]) -> Run:
    run, backend, inputs = Run(), Counter(), job.inference()
    translated = translate(model.eval(), backend)
    with torch.no_grad():
        for _ in range(8):
            with timed(run.calls):
                output = translated(**inputs)
    run.outputs = tensors(output)
    run.graphs = backend.graphs
    return run


def train(job: Job, model: nn.Module, translate: Callable[..., nn.Module]) -> Run:
    run, backend, inputs = Run(), Counter(), job.training()
    translated = translate(model.train(), backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        torch.manual_seed(step)  # dropout draws the same numbers every time
        with timed(run.steps):
            optimizer.zero_grad()
            with timed(run.calls):
                output = translated(**inputs)
            job.loss(output, inputs).backward()
            optimizer.step()
        run.outputs += [value.detach() for value in tensors(output)]
        run.gradients += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    run.graphs = backend.graphs
    return run


# ---- comparing ----


@dataclass(frozen=True)
class Row:
    """A line of the table: one model in one mode."""

    name: str
    runs: dict[str, Run]
    breaks: list[Any]
    guards: list[Any]
    translator: str

    @property
    def run(self) -> Run:
        return self.runs[self.translator]

    def output_difference(self) -> float:
        return largest_difference(self.run.outputs, self.runs["plain"].outputs)

    def gradient_difference(self) -> float | None:
        wanted = self.runs["plain"].gradients
        return largest_difference(self.run.gradients, wanted) if wanted else None

    def problems(self) -> Iterator[str]:
        if self.run.graphs != 1:
            yield f"{self.run.graphs} graphs where there should be one"
        for found in self.breaks:
            yield f"a break: {found}"
        if not self.output_difference() <= TOLERANCE:
            yield f"outputs differ by {self.output_difference():.1e}"
        if not (self.gradient_difference() or 0.0) <= TOLERANCE:
            yield f"gradients differ by {self.gradient_difference():.1e}"


def largest_difference(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest over all tensors of max|got - wanted| / max|wanted|; infinite if they do not correspond."""
    if [t.shape for t in got] != [t.shape for t in wanted]:
        return float("inf")
    return max(relative_difference(a, b) for a, b in zip(got, wanted, strict=True))


def relative_difference(got: Tensor, wanted: Tensor) -> float:
    difference = (got - wanted).abs().max().item()
    scale = wanted.abs().max().item()
    return difference / scale if scale else difference


def explained(job: Job, model: nn.Module, mode: str) -> tuple[list[Any], list[Any]]:
    """Breaks and guards, as sot.explain sees them."""
    sot.reset()
    inputs = job.training() if mode == "train" else job.inference()
    with torch.set_grad_enabled(mode == "train"):
        explanation = sot.explain(model.train(mode == "train"))(**inputs)
    return list(explanation.breaks), list(explanation.guards)


def compare(job: Job, mode: str, translator: str) -> Row:
    torch.manual_seed(0)
    original = job.make()
    execute = train if mode == "train" else infer
    runs = {
        name: execute(job, copy.deepcopy(original), TRANSLATORS[name])
        for name in dict.fromkeys(["plain", translator, "torch.compile"])
    }
    breaks, guards = explained(job, original, mode) if translator == "sot" else ([], [])
    return Row(f"{job.name}, {mode}", runs, breaks, guards, translator)


# ---- showing ----


def table(rows: list[Row], translator: str) -> Table:
    shown = Table(
        title=f"{translator} beside plain PyTorch and torch.compile(backend='eager')",
        caption="ms: a warm call, in training the whole step; capture: the first call less a warm one",
    )
    shown.add_column("model, mode", no_wrap=True)
    for heading in (
        "graphs",
        "breaks",
        "guards",
        "capture\ns",
        "torch.compile\ncapture s",
        "outputs\ndiffer by",
        "gradients\ndiffer by",
        "plain\nms",
        f"{translator}\nms",
        "torch.compile\nms",
    ):
        shown.add_column(heading, justify="right")
    for row in rows:
        shown.add_row(row.name, *cells(row))
    return shown


def cells(row: Row) -> Iterator[str]:
    reference, gradients = row.runs["torch.compile"], row.gradient_difference()
    yield from map(str, (row.run.graphs, len(row.breaks), len(row.guards)))
    yield f"{row.run.capture:.2f}"
    yield f"{reference.capture:.2f}"
    yield f"{row.output_difference():.1g}"
    yield "-" if gradients is None else f"{gradients:.1g}"
    for run in (row.runs["plain"], row.run, reference):
        yield f"{run.warm * 1e3:.0f}"


def two_breaks(x: Tensor) -> Tensor:
    """Looks at its data twice, so it is three graphs with Python in between."""
    y = torch.sin(x) * 2
    if y.mean() > 0:
        y = y + 1
    largest = max(y.flatten().tolist())
    return torch.relu(y) / largest


def show_report(console: Console) -> None:
    console.print("\nA function with two breaks, as sot.explain shows it:\n", style="bold")
    sot.reset()
    with recorded(Recording("make demo")) as recording:
        print(sot.explain(two_breaks)(torch.linspace(-1, 2, 12).reshape(3, 4)))
        sot.explain(resnet50().eval())(torch.randn(1, 3, 64, 64))
    report_of(recording).save(REPORT)
    console.print(f"The same as a page, with ResNet-50: {REPORT}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*JOBS, []], help="which models; without any, all")
    parser.add_argument("--translator", choices=["sot", "torch.compile"], default="sot")
    options = parser.parse_args()
    console, rows = Console(width=None if sys.stdout.isatty() else 132), []
    for key in options.models or JOBS:
        for mode in ("eval", "train"):
            with console.status(f"{JOBS[key].name}, {mode}"):
                rows.append(compare(JOBS[key], mode, options.translator))
    console.print(table(rows, options.translator))
    problems = [f"{row.name}: {problem}" for row in rows for problem in row.problems()]
    for problem in problems:
        console.print(problem, style="red")
    if options.translator == "sot":
        show_report(console)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
