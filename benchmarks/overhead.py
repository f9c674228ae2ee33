"""Microseconds that a warm call costs beyond its graph, sot beside torch.compile(backend="eager").

The overhead is a call of the translated function less a call of the graph's own callable with the inputs that
the translator gives it.  All four are timed in turns in one process, on one thread; medians over the rounds.
"""

from __future__ import annotations

import statistics
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import TRANSLATORS, Row, reset, run_as_it_is, run_benchmark, translate


def one_op(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def new_one_op() -> Callable[[torch.Tensor], torch.Tensor]:
    """With a code object of its own, so that the translators keep out of each other's way."""
    return types.FunctionType(one_op.__code__.replace(), globals())


def many_layers() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(100)))


# What is called, its argument, calls a round, and the most microseconds it may cost (None: no limit yet).
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], int, float | None]] = {
    "one operation": (new_one_op, (4,), 5000, 5.0),
    "100 Linear layers": (many_layers, (1, 4), 200, None),
}


@dataclass(eq=False)
class Recorder:
    """A backend that keeps its graph and what the graph is called with."""

    graph: Any = None
    arguments: Sequence[Any] = ()

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graph = gm.forward

        def run(*arguments: Any) -> Any:
            self.arguments = arguments
            return gm.forward(*arguments)

        return run


def prepare(
    translator: str, make: Callable[[], Any], x: torch.Tensor
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The translated call and the graph's own call."""
    recorder = Recorder()
    translate(translator, make(), recorder)(x)
    graph, arguments = recorder.graph, recorder.arguments
    if graph is None:
        raise SystemExit(f"{translator} captured nothing")
    reset(translator)
    translated = translate(translator, make(), run_as_it_is)
    translated(x)
    return (lambda: translated(x)), (lambda: graph(*arguments))


def microseconds(call: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def overheads(case: str, repeats: int) -> dict[str, list[float]]:
    make, shape, calls, _ = CASES[case]
    x = torch.ones(shape)
    pairs = {name: prepare(name, make, x) for name in TRANSLATORS}
    found: dict[str, list[float]] = {name: [] for name in TRANSLATORS}
    for _ in range(repeats):
        for name, (translated, graph) in pairs.items():
            found[name].append(microseconds(translated, calls) - microseconds(graph, calls))
    return found


def compare(case: str, repeats: int) -> Row:
    ours, theirs = (statistics.median(values) for values in overheads(case, repeats).values())
    return {
        "case": case,
        "measure": "overhead, us",
        "sot": ours,
        "torch.compile": theirs,
        "ratio": ours / theirs,
        "limit, us": CASES[case][3],
        "repeats": repeats,
    }


def measure(repeats: int) -> list[Row]:
    torch.set_num_threads(1)
    with torch.no_grad():
        return [compare(case, repeats) for case in CASES]


if __name__ == "__main__":
    run_benchmark(__doc__, measure, None, repeats=15)
