"""From a captured graph to a callable: autograd, lowering, scheduling, source, cache."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from torch import fx
from torch.fx import GraphModule

from sot.backends import torch_compat
from sot.backends.triton import availability, cache, runtime
from sot.backends.triton.module_source import module
from sot.graph import decompositions, passes, rewriting
from sot.graph.lowering import NotLowered, lower
from sot.graph.lowering.driver import note_of
from sot.graph.program import Program
from sot.graph.schedule import Cost, cost, schedule

BACKENDS = logging.getLogger("sot.backends")
KERNELS = logging.getLogger("sot.kernels")
Run = Callable[[list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What was made of one graph: for reports and tests."""

    title: str
    graph: GraphModule
    program: Program | None      # not known if the module was found in the cache
    source: str
    cost: Cost
    found: bool


class Compiler:
    """Compiles graphs for one type of device; ``made`` lists what it made, ``failed`` why graphs run eagerly.

    Arguments:
        device: the type of device that kernels are made for.
        interpreted: do they run in Triton's interpreter?
        strict: raise what goes wrong instead of running the graph eagerly.
    """

    def __init__(self, device: str, interpreted: bool, strict: bool = False) -> None:
        self.device, self.interpreted, self.strict = device, interpreted, strict
        self.made: list[Compiled] = []
        self.failed: list[str] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if torch_compat.symbolic_mode(gm) is None:
            gm = rewriting.captured(gm, lambda: torch_compat.fake_inputs(gm, example_inputs))
        return torch_compat.ahead_of_time(
            gm, example_inputs, self.compiler_of("forward"), self.compiler_of("backward"),
            self.compiler_of("inference"), decompositions.table())

    def compiler_of(self, title: str) -> torch_compat.AtenCompiler:
        return lambda graph, inputs: self.compile(graph, title)

    def compile(self, graph: GraphModule, title: str) -> Run:
        """A function of the list of a functional ATen graph's inputs; the graph itself where compilation fails."""
        if torch_compat.has_symbols(graph):
            return BySize(self, graph, title)
        return self.attempt(lambda: self.compile_or_raise(graph, title), graph, title)

    def attempt(self, compile_graph: Callable[[], Run], graph: GraphModule, title: str) -> Run:
        """What ``compile_graph`` gives, or the graph as it is, and why."""
        try:
            return compile_graph()
        except Exception as error:
            if self.strict:
                raise
            reason = f"{type(error).__name__}: {error}"
            self.failed.append(reason)
            level = logging.DEBUG if isinstance(error, NotLowered) else logging.WARNING
            BACKENDS.log(level, "triton: a %s graph runs eagerly, because %s", title, reason)
            return lambda inputs: graph.forward(*inputs)

    def compile_or_raise(self, graph: GraphModule, title: str) -> Run:
        key = cache.key_of(described(graph), torch.__version__, triton.__version__, self.device, str(self.interpreted),
                           str(torch.are_deterministic_algorithms_enabled()))
        if path := cache.find(key):
            about = cache.about(path)
            return self.loaded(path, (), Compiled(title, graph, None, path.read_text(), Cost(*about["cost"]), True))
        passes.run(graph)
        program = schedule(lower(graph, self.device))
        made = module(program, title, self.interpreted)
        spent = cost(program)
        # What holds more than its text is found by the text, so that another process makes it, but no file grows.
        key = key if not made.constants else cache.key_of(made.text)
        path = cache.find(key) or cache.add(key, made.text, title, cost=dataclasses.astuple(spent))
        return self.loaded(path, made.constants, Compiled(title, graph, program, made.text, spent, False))

    def loaded(self, path: Path, constants: tuple[Any, ...], about: Compiled) -> Run:
        run = runtime.load(path).run
        self.made.append(about)
        KERNELS.debug("%s: %s, in %s\n%s", about.title, about.cost, path, about.source)
        return lambda inputs: run(inputs, constants)


class BySize:
    """A graph with symbolic sizes, compiled for each set of sizes that it is called with; beyond a limit, as it is."""

    LIMIT = 16

    def __init__(self, compiler: Compiler, graph: GraphModule, title: str) -> None:
        self.compiler, self.graph, self.title = compiler, graph, title
        self.known: dict[tuple, Run] = {}

    def __call__(self, inputs: list[Any]) -> Any:
        sizes = tuple((v.shape, v.stride()) if isinstance(v, torch.Tensor) else v for v in inputs)
        run = self.known.get(sizes)
        if run is None:
            if len(self.known) == self.LIMIT:
                return self.graph.forward(*inputs)
            run = self.known[sizes] = self.compiler.attempt(lambda: self.compiled(inputs), self.graph, self.title)
        return run(inputs)

    def compiled(self, inputs: list[Any]) -> Run:
        return self.compiler.compile_or_raise(torch_compat.with_sizes_of(self.graph, inputs), self.title)


def described(graph: GraphModule) -> str:
    """Everything of a graph that its module depends on, except the values of constants."""
    lines = []
    for node in graph.graph.nodes:
        value = fx.node.map_aggregate(node.meta.get("val"), _described)
        lines.append(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {value} {note_of(node)}")
    return "\n".join(lines)


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    strides = value.stride() if value.layout is torch.strided else ()
    return f"{value.dtype}{tuple(value.shape)}{strides}{value.device}{value.layout}"


def compiled(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The Triton backend; see ``sot.backends.selection.triton``."""
    return Compiler(availability.kernel_device(), availability.interpreted())(gm, example_inputs)
