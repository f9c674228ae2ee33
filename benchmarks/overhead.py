"""Microseconds that a warm call costs beyond its graph, sot beside torch.compile(backend="eager").

The overhead is a call of the translated function less a call of the graph's own callable with the inputs that
the translator gives it.  All four are timed in turns in one process, on one thread; medians over the rounds.

A graph of many operations takes milliseconds, and the noise of these hides microseconds.  So each case is also
measured with the graph's result kept: after the capture, the graph's function does nothing but return that.
The rows of growth are of these: how much the overhead grows with the model. From about 1000 layers on, a graph has
more than 2000 inputs, and its frame does not fit into the memory that CPython keeps for frames (16 KB): at each call
the operating system is asked for more, and the processor forgets where memory is, which all that runs pays for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from common import TRANSLATORS, Row, make_decoder, make_linear, own_code, reset, run_benchmark, translate

Made = tuple[Callable[..., Any], dict[str, Any]]  # what is called, and its arguments


def one_op(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def make_one_op() -> Made:
    return own_code(one_op), {"x": torch.ones(4)}


@dataclass
class Case:
    make: Callable[[], Made]
    calls: int  # in a round
    limit: str | None = None
    keeps: tuple[bool, ...] = (False, True)


CASES: dict[str, Case] = {
    "one operation": Case(make_one_op, 5000, "1 us"),
    "10 Linear layers": Case(partial(make_linear, 10), 2000, keeps=(True,)),
    "100 Linear layers": Case(make_linear, 200, "3 us"),
    "900 Linear layers": Case(partial(make_linear, 900), 20, keeps=(True,)),
    "1000 Linear layers": Case(partial(make_linear, 1000), 20, keeps=(True,)),
    "a decoder of 24 layers": Case(make_decoder, 20, "1/20 of torch.compile"),
}
GROWTHS = ((10, 100), (100, 900), (100, 1000))  # layers
MEASURES = {False: "overhead, us", True: "overhead, result kept, us"}


def function_of(gm: torch.fx.GraphModule) -> Any:
    """A graph's function. torch.compile's graphs have none before they are called, or their text is asked for."""
    assert gm.code
    return gm.forward


@dataclass(eq=False)
class Recorder:
    """A backend that keeps what its graph is called with, and what that returned."""

    graphs: int = 0
    arguments: Sequence[Any] = ()
    result: Any = None

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            self.arguments, self.result = arguments, gm.forward(*arguments)
            return self.result

        self.graphs += 1
        return run


def keep_result(graph: Any, result: Any) -> None:
    """Have a graph's function, from now on, do nothing but return a result."""
    module, kept = graph.__self__, torch.fx.Graph()
    for node in module.graph.find_nodes(op="placeholder"):
        kept.placeholder(node.target)
    kept.output(kept.create_node("get_attr", "kept"))
    module.kept = result
    graph.__func__.__code__ = torch.fx.GraphModule({"kept": torch.nn.Module()}, kept).forward.__func__.__code__


def prepare(translator: str, make: Callable[[], Made], keep: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The translated call and the graph's own call."""
    recorder, graphs = Recorder(), []
    target, inputs = make()
    translate(translator, target, recorder)(**inputs)
    if recorder.graphs != 1:
        raise SystemExit(f"{translator} captured {recorder.graphs} graphs: the overhead is measured over one")
    reset(translator)
    translated = translate(translator, make()[0], lambda gm, _: graphs.append(function_of(gm)) or graphs[0])
    translated(**inputs)
    if keep:
        keep_result(graphs[0], recorder.result)
    graph, arguments = graphs[0], recorder.arguments
    return (lambda: translated(**inputs)), (lambda: graph(*arguments))


def microseconds(call: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def difference(translated: Callable[[], Any], graph: Callable[[], Any], calls: int) -> float:
    """Microseconds between the medians of single calls, in turns: one takes long, and the machine is not steady."""
    samples = [(microseconds(translated, 1), microseconds(graph, 1)) for _ in range(calls)]
    ours, its = map(statistics.median, zip(*samples, strict=True))
    return ours - its


def overheads(case: Case, keep: bool, repeats: int) -> dict[str, list[float]]:
    pairs = {name: prepare(name, case.make, keep) for name in TRANSLATORS}
    found: dict[str, list[float]] = {name: [] for name in TRANSLATORS}
    for _ in range(repeats):
        for name, (translated, graph) in pairs.items():
            if keep:
                calls = max(case.calls, 500)
                found[name].append(microseconds(translated, calls) - microseconds(graph, calls))
            else:
                found[name].append(difference(translated, graph, case.calls))
    return found


def compare(name: str, keep: bool, repeats: int) -> Row:
    ours, theirs = (statistics.median(values) for values in overheads(CASES[name], keep, repeats).values())
    return {
        "case": name,
        "measure": MEASURES[keep],
        "sot": ours,
        "torch.compile": theirs,
        "ratio": ours / theirs,
        "limit": CASES[name].limit,
        "repeats": repeats,
    }


def growth(rows: list[Row], few: int, many: int) -> Row:
    """How much the overhead grows with the number of layers."""
    small, large = (
        next(row for row in rows if (row["case"], row["measure"]) == (f"{layers} Linear layers", MEASURES[True]))
        for layers in (few, many)
    )
    ours, theirs = (large[name] / small[name] for name in TRANSLATORS)
    return {
        "case": f"{many} layers / {few} layers",
        "measure": "growth, result kept",
        "sot": ours,
        "torch.compile": theirs,
        "ratio": ours / theirs,
        "limit": "1.2",
        "repeats": small["repeats"],
    }


def measure(repeats: int) -> list[Row]:
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = [compare(name, keep, repeats) for name, case in CASES.items() for keep in case.keeps]
    return [*rows, *(growth(rows, few, many) for few, many in GROWTHS)]


if __name__ == "__main__":
    run_benchmark(__doc__, measure, None, repeats=15)
