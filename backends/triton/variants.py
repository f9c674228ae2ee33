"""A graph with sizes that vary: lowered once for all of them, or for each range of them that needs other kernels.

A module has a function ``fits`` of the symbols, which says whether the assumptions of its lowering hold. If no module
of the graph fits a call, the graph is lowered again, with the sizes of that call as the typical ones. A graph whose
sizes cannot be expressed by symbols is lowered for each set of sizes.
"""
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import fx
from torch.fx import GraphModule

from sot.backends.errors import one_line
from sot.graph.kernels.sizes import Facts
from sot.graph.lowering.symbols import NotSymbolic, Symbols, with_sizes
from sot.graph.rewrite import passes
from sot.torch_compat import compilers
from sot.torch_compat.graphs import assumptions_of, make_constants_real

BACKENDS = logging.getLogger("sot.backends")
Run = Callable[[list[Any]], Any]
LIMIT = 64      # sets of sizes, if each needs a module of its own; for others the graph is run eagerly
MOST = 16       # modules for ranges of sizes


@dataclasses.dataclass
class Symbolic:
    """How a graph is lowered for all sizes.

    Arguments:
        facts: the values of the symbols in the current call.
        places: where each symbol is found among the inputs.
        fits: whether the compiled module serves other values.
    """

    facts: Facts
    places: Mapping[str, str]
    fits: Callable[..., bool] | None = None


class GraphCompiler(Protocol):
    """What is needed of the compiler."""

    def attempt(self, compile_graph: Callable[[], Run], gm: GraphModule, graph: GraphModule, title: str) -> Run: ...
    def compile_or_raise(self, graph: GraphModule, title: str, symbolic: Symbolic | None = None) -> Run: ...


class Variants:
    """The modules of a graph. ``refused`` says why it is lowered for each set of sizes.

    Arguments:
        gm: the captured graph that it comes from.
    """

    def __init__(self, compiler: GraphCompiler, gm: GraphModule, graph: GraphModule, title: str) -> None:
        self.compiler, self.gm, self.graph, self.title = compiler, gm, graph, title
        self.fixed: dict[tuple, Run] = {}
        self.ranges: list[tuple[Callable[..., bool], Run]] = []
        self.refused = ""
        self.rewritten, self.symbols = graph, Symbols({}, frozenset(), frozenset())
        try:
            self.rewritten, self.symbols = symbolic_form(graph)
        except Exception as error:      # of any kind: torch's own functions do not know sizes
            self.refuse(error)
        self.names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
        reads = ", ".join(self.symbols.places.values()) + "," * bool(self.symbols.places)
        self.values: Callable[..., tuple] = eval(f"lambda {', '.join(self.names)}: ({reads})")

    def refuse(self, error: Exception) -> None:
        self.refused = one_line(error)
        BACKENDS.debug("the %s graph is lowered for each set of sizes: %s", self.title, self.refused)

    def __call__(self, inputs: list[Any]) -> Any:
        values = self.values(*inputs)
        for fits, run in self.ranges:
            if fits(*values):
                return run(inputs)
        return self.another(inputs, values)(inputs)

    def another(self, inputs: list[Any], values: tuple) -> Run:
        """A module for the sizes of a call that no module fits."""
        facts = self.symbols.facts(dict(zip(self.symbols.places, values, strict=True)))
        if self.refused or len(self.ranges) == MOST or facts is None:
            return self.for_sizes(inputs)
        symbolic = Symbolic(facts, self.symbols.places)
        try:
            compiled = self.compiler.compile_or_raise(self.rewritten, self.title, symbolic)
        except Exception as error:
            self.refuse(error)
            return self.for_sizes(inputs)
        run = self.compiler.attempt(lambda: compiled, self.gm, self.graph, self.title)
        assert symbolic.fits is not None and symbolic.fits(*values)
        self.ranges.append((symbolic.fits, run))
        return run

    def for_sizes(self, inputs: list[Any]) -> Run:
        """The module for exactly these sizes."""
        sizes = tuple((v.shape, v.stride()) if isinstance(v, torch.Tensor) else v for v in inputs)
        if sizes not in self.fixed:
            if len(self.fixed) == LIMIT:
                return lambda values: self.graph.forward(*values)
            self.fixed[sizes] = self.compiler.attempt(
                lambda: self.compiler.compile_or_raise(compilers.with_sizes_of(self.graph, inputs), self.title),
                self.gm, self.graph, self.title)
        return self.fixed[sizes]


def symbolic_form(graph: GraphModule) -> tuple[GraphModule, Symbols]:
    """A copy of the graph, rewritten and with sizes in place of torch's symbols.

    Raises:
        NotSymbolic: the rewriting would assume something about the symbols, or they have another form.
    """
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    rewritten = GraphModule(graph, copied)
    before = assumptions_of(graph)
    make_constants_real(rewritten)
    passes.run(rewritten)
    if assumptions_of(graph) != before:
        raise NotSymbolic("a rewrite assumes something about the sizes")
    return rewritten, with_sizes(rewritten)
