"""From a captured graph to a callable: autograd, lowering, scheduling, source, cache."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import triton
from torch import fx
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves
from triton.runtime import driver

from sot.backends.eager import eager
from sot.backends.errors import one_line
from sot.backends.rescue import State, tell
from sot.backends.triton import availability, cache, launching, runtime
from sot.backends.triton.cuda_graphs import Cuda, Recorded, RecordedBySizes
from sot.backends.triton.source.matmul import fused
from sot.backends.triton.source.module_source import module
from sot.backends.triton.tuning import ProductTuner, Tuner, on_device, product_on_device
from sot.backends.triton.variants import Symbolic, Variants
from sot.graph import random_numbers
from sot.graph.kernels.program import Program
from sot.graph.kernels.schedule import Cost, cost, schedule
from sot.graph.kernels.sizes import assuming
from sot.graph.lowering import NotLowered, lower
from sot.graph.lowering.driver import note_of
from sot.graph.lowering.symbols import Like
from sot.graph.rewrite import decompositions, layouts, passes, rewriting, shapes
from sot.support.settings import is_on
from sot.torch_compat import compilers
from sot.torch_compat.graphs import make_constants_real, unset_fake_temporarily

BACKENDS = logging.getLogger("sot.backends")
KERNELS = logging.getLogger("sot.kernels")
Run = Callable[[list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The compiled form of one graph, for reports and tests."""

    title: str
    graph: GraphModule
    program: Program | None      # None if the module was found in the cache
    source: str
    cost: Cost
    found: bool
    schedule: list[str]          # a line for each kernel and each operator that is called

    def told(self) -> dict[str, Any]:
        """The same as data for reports: see ``sot.reports.model.Compiled``."""
        return {"title": self.title, "kernels": self.cost.kernels, "calls": self.cost.externs, "bytes": self.cost.bytes,
                "schedule": self.schedule, "source": self.source, "cached": self.found}


class Compiler:
    """Compiles graphs for one type of device. ``made`` lists the results; ``failed`` says why graphs run eagerly.

    Arguments:
        device: the type of device of the kernels.
        interpreted: whether they run in Triton's interpreter.
        strict: raise failures instead of running the graph eagerly.
        mode: ``reduce-overhead`` records CUDA graphs, ``max-autotune`` measures block sizes.
    """

    def __init__(self, device: str, interpreted: bool, strict: bool = False, mode: str = "default") -> None:
        self.device, self.interpreted, self.strict, self.mode = device, interpreted, strict, mode
        self.made: list[Compiled] = []
        self.failed: list[str] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        forward, backward, inference = (self.compiler_of(gm, title) for title in ("forward", "backward", "inference"))
        try:
            written = rewriting.captured(gm, lambda: compilers.unchanged_inputs(gm, example_inputs))
            return compilers.ahead_of_time(
                written, example_inputs, forward, backward, inference, decompositions.table(), self.lay_out)
        except Exception as error:
            self.give_up(gm, "compile a graph", error)
            return eager(gm, example_inputs)

    def lay_out(self, graph: GraphModule) -> None:
        """Choose the layouts of values, in an inference graph or in one of a forward and a backward pass."""
        count, blank = layouts.channels_last(graph.graph), shapes.by_shape(graph.graph)
        if count or blank:
            graph.recompile()
            BACKENDS.debug("%d convolutions compute in channels_last, %d values are not kept", count, blank)

    def compiler_of(self, gm: GraphModule, title: str) -> compilers.AtenCompiler:
        """The compiler of one of the ATen graphs that a captured graph becomes."""
        return lambda graph, inputs: self.compile(gm, graph, title)

    def compile(self, gm: GraphModule, graph: GraphModule, title: str) -> Run:
        """A function of the list of a functional ATen graph's inputs. The graph itself if compilation fails."""
        if title == "inference":
            self.lay_out(graph)
        if compilers.has_symbols(graph):
            return Variants(self, gm, graph, title)
        return self.attempt(lambda: self.compile_or_raise(graph, title), gm, graph, title)

    def attempt(self, compile_graph: Callable[[], Run], gm: GraphModule, graph: GraphModule, title: str) -> Run:
        """The result of ``compile_graph``. If it fails, the graph itself, and the reason is recorded."""
        before = len(self.made)
        try:
            run = compile_graph()
            gm.meta.setdefault("kernels", []).extend(made.told() for made in self.made[before:])
            return OnTrial(run, graph, lambda error: self.give_up(gm, f"run a {title} graph", error))
        except Exception as error:
            self.give_up(gm, f"compile a {title} graph", error)
            return lambda inputs: graph.forward(*inputs)

    def give_up(self, gm: GraphModule, what: str, error: Exception) -> None:
        """Record that eager PyTorch runs a graph, and why. There is no warning if no kernel could have run it
        faster.
        """
        if self.strict:
            raise error
        reason = f"backend 'triton' failed to {what}: {one_line(error)}"
        self.failed.append(reason)
        if isinstance(error, NotLowered):
            gm.meta.setdefault("fallbacks", []).append(reason)
            BACKENDS.debug(reason)
        else:
            tell(gm, reason)

    def compile_or_raise(self, graph: GraphModule, title: str, symbolic: Symbolic | None = None) -> Run:
        """A function of the list of a graph's inputs.

        Arguments:
            symbolic: how the graph is lowered for all sizes. Otherwise its sizes are known.
        """
        key = cache.key_of(described(graph), torch.__version__, triton.__version__, self.device,
                           str(self.interpreted), str(torch.are_deterministic_algorithms_enabled()),
                           random_numbers.way(), str(symbolic), self.mode if self.mode == "max-autotune" else "",
                           torch.get_float32_matmul_precision(), rewriting.names_in_force())
        if path := cache.find(key):
            about = cache.about(path)
            return self.loaded(path, (), Compiled(title, graph, None, path.read_text(), Cost(*about["cost"]), True,
                                                   about.get("schedule", [])), symbolic)
        facts = symbolic.facts if symbolic else None
        with assuming(facts) if facts else nullcontext():
            program = self.lowered(graph) if symbolic is None else schedule(
                lower(graph, self.device, symbolic.places))
            written = self.with_products(program) if symbolic is None else program
            made = module(written, title, self.interpreted, facts, self.tuner())
            spent = cost(program)
        # A module with more than text has a key, so another process makes it again, but no file is written.
        steps = [str(step).partition("\n")[0] for step in program.steps]
        key = key if not made.constants else cache.key_of(made.text)
        path = cache.find(key) or cache.add(key, made.text, title, cost=dataclasses.astuple(spent),
                                            schedule=steps)
        return self.loaded(path, made.constants, Compiled(title, graph, program, made.text, spent, False, steps),
                           symbolic)

    def tuner(self) -> Tuner | None:
        """The tuner of block sizes, if tuning is requested."""
        return Tuner(on_device, torch.cuda.get_device_name()) if self.mode == "max-autotune" else None

    def with_products(self, program: Program) -> Program:
        """Fuse products with what follows them, if that is measured to be faster."""
        if self.mode != "max-autotune":
            return program
        tuner = ProductTuner(product_on_device, torch.cuda.get_device_name())
        return fused(program, lambda step: tuner(program, step))

    def lowered(self, graph: GraphModule) -> Program:
        """The kernels of a static graph. AOTAutograd compiles a forward graph while it traces with fake tensors, but
        constants are folded with real ones.
        """
        make_constants_real(graph)
        passes.run(graph)
        with unset_fake_temporarily():
            return schedule(lower(graph, self.device))

    def loaded(self, path: Path, constants: tuple[Any, ...], about: Compiled, symbolic: Symbolic | None = None) -> Run:
        loaded = runtime.load(path)
        if symbolic is not None:
            symbolic.fits = loaded.fits
        if not self.interpreted:
            launching.prepare(launching.launchers(loaded), driver.active.get_current_target())
        self.made.append(about)
        KERNELS.debug("%s: %s, in %s\n%s", about.title, about.cost, path, about.source)

        def run(inputs: list[Any]) -> Any:
            return loaded.run(inputs, constants)

        device = device_of(about.graph) if self.mode == "reduce-overhead" else None
        if device is None:
            return run
        generators = [c for c in constants if isinstance(c, torch.Generator)]
        tensors = [c for c in constants if isinstance(c, torch.Tensor)]
        visible, changed = compilers.visible_results(about.title, about.graph), changed_inputs(about.graph)

        def recorded() -> Recorded:
            return Recorded(run, visible, Cuda(device), changed, tensors, generators,
                            after=3 if about.title == "backward" else 1)
        return recorded() if symbolic is None else RecordedBySizes(run, recorded)


class OnTrial:
    """The first run of a compiled ATen graph, forward or backward. If it raises, eager PyTorch runs the graph.

    Later runs call the kernels directly, so that they may free inputs on the way.
    """

    def __init__(self, run: Run, graph: GraphModule, failed: Callable[[Exception], None]) -> None:
        self.run, self.graph, self.failed = run, graph, failed
        self.call: Run = self.first

    def __call__(self, inputs: list[Any]) -> Any:
        return self.call(inputs)

    def first(self, inputs: list[Any]) -> Any:
        kept, state = list(inputs), State(changes=True, draws=True)
        before = state.of(kept)
        try:
            results = self.run(inputs)
        except Exception as error:
            if not state.restore(before, kept) and changed_inputs(self.graph):
                raise
            results = self.graph.forward(*kept)     # raises if the program itself is wrong
            self.failed(error)
            self.call = lambda values: self.graph.forward(*values)
            return results
        self.call = self.run
        return results


def changed_inputs(graph: GraphModule) -> list[int]:
    """The inputs that an ATen graph changes, at its end."""
    inputs = graph.graph.find_nodes(op="placeholder")
    changes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    return sorted({inputs.index(node.args[0]) for node in changes})


def device_of(graph: GraphModule) -> torch.device | None:
    """The one device that an ATen graph runs on. Constants may be on the CPU. None if there are several."""
    cpu, found = torch.device("cpu"), set[torch.device]()
    for node in graph.graph.nodes:
        draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        found |= {value.device for value in tree_leaves(node.meta.get("val"))
                  if isinstance(value, torch.Tensor | Like) and (draws or value.device != cpu)}
    return None if len(found) > 1 else next(iter(found), cpu)


def described(graph: GraphModule) -> str:
    """Everything in a graph that its module depends on, except the values of constants."""
    lines = []
    for node in graph.graph.nodes:
        value = fx.node.map_aggregate(node.meta.get("val"), _described)
        lines.append(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {value} {note_of(node)}")
    return "\n".join(lines)


def _described(value: Any) -> Any:
    if isinstance(value, Like):
        return str(dataclasses.replace(value, memory=0))
    if not isinstance(value, torch.Tensor):
        return value
    strides = value.stride() if value.layout is torch.strided else ()
    return f"{value.dtype}{tuple(value.shape)}{strides}{value.device}{value.layout}"


def compiled(gm: GraphModule, example_inputs: Sequence[Any], mode: str = "default") -> Callable[..., Any]:
    """The Triton backend; see ``sot.backends.selection.triton``."""
    strict = is_on("SOT_STRICT", False)
    return Compiler(availability.kernel_device(), availability.interpreted(), strict, mode)(gm, example_inputs)
