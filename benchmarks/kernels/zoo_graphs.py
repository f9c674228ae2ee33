"""The training graphs of real models, lowered whole: kernels, calls of operators, bytes and memory, beside Inductor's
scheduler.

    python benchmarks/kernels/zoo_graphs.py --kept build/zoo_graphs.jsonl --filter '^(plain|timm)/' --minutes 20
    python benchmarks/kernels/zoo_graphs.py --kept build/zoo_eval.jsonl --eval --alone        without Inductor: faster
    python benchmarks/kernels/zoo_graphs.py --alone --modules build/modules                   for compile_kernels.py

A model of the zoo is called in training mode, forward and backward, or with ``--eval`` as it is used. Each captured
graph is lowered, scheduled and written as a module for a GPU, but PyTorch executes it, after our passes, so results and
gradients are compared with eager's. With ``--interpreter`` Triton's interpreter executes the kernels. Inductor gets the
same captured graph, and schedules it without compiling. Both count for the CPU: each buffer of a step once. Operators
that are called are counted, over all models. What is finished is a line of the file, so a run that was stopped goes on.
"""
from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT.parent / "shared" / "zoo"
sys.path[:0] = [str(ZOO), str(ROOT / "benchmarks")]     # zoo is that of ZOO
os.environ["TRITON_INTERPRET"] = "1"
os.environ |= {"HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}

import torch
from common import Row, markdown
from paper import predicted
from torch import fx

import sot
from sot.backends.eager import eager
from sot.backends.selection import Triton
from sot.backends.triton.compiler import Compiler
from sot.backends.triton.source.module_source import module
from sot.graph.kernels.program import Extern
from sot.graph.kernels.schedule import Cost, cost


@dataclasses.dataclass(frozen=True)
class Way:
    """How models are run.

    Arguments:
        training: in training mode, with a backward pass.
        alone: Inductor is not asked.
        interpreted: kernels run in Triton's interpreter.
        modules: a folder for the modules of the graphs, which ``compile_kernels.py`` compiles.
    """

    training: bool = True
    alone: bool = False
    interpreted: bool = False
    modules: Path | None = None


class Lowered(Compiler):
    """The Triton backend without kernels: graphs are lowered and written, and PyTorch executes them."""

    def __init__(self, way: Way, name: str) -> None:
        super().__init__("cpu", way.interpreted)
        self.folder, self.name = way.modules, name.replace("/", "_")
        self.costs: dict[str, list[Cost]] = {}
        self.predicted: dict[str, float] = {}
        self.called: Counter[str] = Counter()

    def compile_or_raise(self, graph: fx.GraphModule, title: str, symbolic: Any = None) -> Callable[..., Any]:
        if self.interpreted:
            return super().compile_or_raise(graph, title, symbolic)
        program = self.lowered(graph)
        made = module(program, f"{self.name}, {title}", interpreted=False)
        self.costs.setdefault(title, []).append(cost(program))
        if self.folder:
            (self.folder / f"{self.name}_{title}_{len(self.costs[title])}.py").write_text(made.text)
        self.called.update(str(step.target) for step in program.steps if isinstance(step, Extern))
        self.predicted[title] = self.predicted.get(title, 0.0) + predicted(program, "H200")
        graph.recompile()
        return lambda inputs: graph.forward(*inputs)


@dataclasses.dataclass(frozen=True)
class Named(Triton):
    """For SOT this is the backend "triton", so it gets pieces of graphs where a backend that compiles does."""

    ask: Callable[..., Any] = eager

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return self.ask(gm, example_inputs)


# ---- Inductor --------------------------------------------------------------------------------------------------
class Counted(Exception):
    """Inductor has scheduled a graph."""


class Scheduled:
    """What Inductor's scheduler makes of captured graphs, by title: kernels, calls, bytes."""

    def __init__(self) -> None:
        self.costs: dict[str, list[tuple[int, int, int]]] = {}

    def count(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
        from torch._inductor import compile_fx
        from torch._inductor.graph import GraphLowering
        from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode

        def instead(graph: Any) -> None:
            graph.init_wrapper_code()
            graph._update_scheduler()
            nodes = [n for n in graph.scheduler.nodes if not isinstance(n, NopKernelSchedulerNode)]
            calls = sum(isinstance(n, ExternKernelSchedulerNode) for n in nodes)
            title = "backward" if graph.is_backward else "inference" if graph.is_inference else "forward"
            self.costs.setdefault(title, []).append((len(nodes) - calls, calls, int(graph.count_bytes()[0])))
            raise Counted

        def inner(graph: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Callable[..., Any]:
            before = sum(map(len, self.costs.values()))
            kept = copy.deepcopy(graph)
            try:
                compile_fx.compile_fx_inner(graph, inputs, **how)
            except Exception:
                if sum(map(len, self.costs.values())) == before:
                    raise
            return lambda *values: kept.forward(*values)
        old, GraphLowering.compile_to_module = GraphLowering.compile_to_module, instead
        try:
            with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
                compile_fx.compile_fx(gm, list(inputs), inner_compile=inner)
        finally:
            GraphLowering.compile_to_module = old


# ---- one model -------------------------------------------------------------------------------------------------
def loss_of(zoo: Any, result: Any) -> torch.Tensor | None:
    parts = [t.abs().float().mean() if t.is_complex() else t.float().square().mean() for t in zoo.flatten(result)
             if isinstance(t, torch.Tensor) and t.requires_grad]
    return torch.stack(parts).sum() if parts else None


def called(zoo: Any, fn: Any, args: tuple, kwargs: dict[str, Any], parameters: list[torch.Tensor]) -> list[Any]:
    """Results and gradients."""
    torch.manual_seed(1)
    for p in parameters:
        p.grad = None
    args, kwargs = copy.deepcopy((args, kwargs))
    result = fn(*args, **kwargs)
    loss = loss_of(zoo, result)
    if loss is not None:
        loss.backward()
    return [*zoo.flatten(result), *(p.grad.to_dense() for p in parameters if p.grad is not None)]


def measured(name: str, way: Way) -> Row:
    import zoo
    package, _, case = name.partition("/")
    torch.manual_seed(0)
    fn, args, kwargs = zoo.package(package).build(case)
    modules = [fn] if isinstance(fn, torch.nn.Module) else list(getattr(fn, "_modules_list", []))
    for one in modules:
        one.train(way.training)
    parameters = [p for m in modules for p in m.parameters() if p.requires_grad]
    buffers = [b for m in modules for b in m.buffers()]
    before = [b.clone() for b in buffers]

    def call(f: Any) -> list[Any]:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
        with torch.set_grad_enabled(way.training):
            return called(zoo, f, args, kwargs, parameters)
    wanted = call(fn)
    again = zoo.compare(wanted, call(fn), 1e-3, 1e-4)[0]
    ours, theirs, errors = Lowered(way, name), Scheduled(), []

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            if not way.alone:
                theirs.count(copy.deepcopy(gm), inputs)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {str(error)[:120]}")
        return ours(gm, inputs)
    translated = sot.to_static(fn, backend=Named(ask=backend))
    for _ in range(2):      # Python may run the first calls
        call(translated)
    got = call(translated)
    same = zoo.compare(wanted, got, 1e-3, 1e-4)
    row: Row = {"model": name, "right": bool(same[0]) or not again, "falls back": ours.failed, "called": ours.called}
    if not row["right"]:
        row["why"] = str(same[1])
    if errors:
        row["Inductor fails"] = errors[0]
    row["graphs"] = {title: ours_and_theirs(mine, theirs.costs.get(title, []), ours.predicted[title])
                     for title, mine in ours.costs.items()}
    return row


def ours_and_theirs(mine: list[Cost], theirs: list[tuple[int, int, int]], seconds: float) -> Row:
    found: Row = {"graphs": len(mine), "kernels": sum(c.kernels for c in mine), "calls": sum(c.externs for c in mine),
                  "bytes": sum(c.bytes for c in mine), "peak": max(c.peak for c in mine), "us": 1e6 * seconds}
    if len(mine) == len(theirs):
        found["theirs"] = [sum(column) for column in zip(*theirs, strict=True)]
    return found


# ---- tables ----------------------------------------------------------------------------------------------------
def kept(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: Sequence[Row]) -> list[Row]:
    found = []
    for row in rows:
        for title, one in row.get("graphs", {}).items():
            kernels, calls, size = one.get("theirs") or (None, None, None)
            found.append({"model": row["model"], "graph": title, "kernels": one["kernels"], "Inductor's": kernels,
                          "calls": one["calls"], "its calls": calls, "bytes": one["bytes"], "its bytes": size,
                          "ratio": one["bytes"] / size if size else None, "predicted us": one["us"]})
    return found


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: Sequence[Row]) -> str:
    all_rows = table(rows)
    pairs = [r for r in all_rows if r["ratio"] and r["Inductor's"] and r["kernels"]]
    return (f"{len(rows)} models, right: {sum(bool(r.get('right')) for r in rows)}, "
            f"falling back: {sum(bool(r.get('falls back')) for r in rows)}, "
            f"not run: {sum('failed' in r for r in rows)}. "
            f"In {len(pairs)} of {len(all_rows)} graphs the ratio to Inductor has a geometric mean of "
            f"{mean([r['ratio'] for r in pairs]):.3f} in bytes and of "
            f"{mean([r['kernels'] / r[INDUCTOR] for r in pairs]):.3f} in kernels; "
            f"{sum(r['ratio'] > 1.05 for r in pairs)} graphs are over 1.05 in bytes.")


INDUCTOR = "Inductor's"


def apart(name: str, way: Way, seconds: int) -> Row:
    """The row of a model, from a process of its own, which may crash or take too long."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=lambda: writing.send(tried(name, way)))
    child.start()
    writing.close()
    try:
        return reading.recv() if reading.poll(seconds) else {"model": name, "failed": f"not in {seconds} s"}
    except EOFError:
        return {"model": name, "failed": "the process has crashed"}
    finally:
        child.kill()
        child.join()


def tried(name: str, way: Way) -> Row:
    try:
        return measured(name, way)
    except Exception as error:
        return {"model": name, "failed": f"{type(error).__name__}: {str(error)[:200]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "zoo_graphs.jsonl")
    parser.add_argument("--filter", default=".")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--seconds", type=int, default=90, help="for one model")
    parser.add_argument("--eval", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without Inductor")
    parser.add_argument("--interpreter", action="store_true", help="run the kernels in Triton's interpreter")
    parser.add_argument("--modules", type=Path, help="where to write the modules of the graphs")
    options = parser.parse_args()
    if options.modules:
        options.modules.mkdir(parents=True, exist_ok=True)
    way = Way(not options.eval, options.alone or options.interpreter, options.interpreter, options.modules)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import tvshim  # noqa: F401  torchvision beside a CPU build of torch
    import zoo  # noqa: F401
    from torch._inductor import compile_fx  # noqa: F401  imported before children are made
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    done, end = {r["model"] for r in kept(options.kept)}, time.monotonic() + 60 * options.minutes
    with options.kept.open("a") as file:
        for name in (ZOO / "cases.txt").read_text().split():
            if name in done or not re.search(options.filter, name) or time.monotonic() > end:
                continue
            file.write(json.dumps(apart(name, way, options.seconds)) + "\n")
            file.flush()
    rows = kept(options.kept)
    print(markdown(table(rows)))
    print(summary(rows))
    called: Counter[str] = sum((Counter(row.get("called", {})) for row in rows), Counter())
    print(", ".join(f"{name} {n}" for name, n in called.most_common(40)))
    for row in rows:
        if not row.get("right") or row.get("falls back"):
            print({k: v for k, v in row.items() if k != "graphs"})


if __name__ == "__main__":
    main()
