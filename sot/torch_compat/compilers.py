"""What backends use of torch's compilers: modes, fake inputs, the context of a compilation, AOTAutograd.

torch._dynamo takes about a second to import, so `imported` imports it on first use. The rest of the package uses this
file, so a new release of torch is checked by reading it.
"""

from __future__ import annotations

import functools
import linecache
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._library.fake_class_registry import FakeScriptObject
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Interpreter
from torch.fx.traceback import preserve_node_meta
from torch.overrides import TorchFunctionMode

from sot.support.collector import import_large
from sot.torch_compat.dynamo.inputs import giving_sizes, placeholder_values, sizes_of, with_sizes
from sot.torch_compat.fake_tensors import forget_tensors

DRAWS_AS_EAGER = "fallback_random"      # inductor's option
# What it is told for that. Before torch 2.12 its passes move draws among each other; these two can be turned off.
REORDERING = {"reorder_for_locality": False, "reorder_for_peak_memory": False}
EAGER_NUMBERS = {DRAWS_AS_EAGER: True, **({} if torch.__version__ >= "2.12" else REORDERING)}


def imported(name: str) -> ModuleType:
    """A module of torch's compilers."""
    return import_large(name)


# ---- the backends that torch knows ----


def dynamo_backend_names() -> frozenset[str]:
    return frozenset(imported("torch._dynamo").list_backends(exclude_tags=()))


def dynamo_backend(name: str) -> Any:
    if name == "inductor":
        imported("torch._inductor.compile_fx")       # the backend would import it when it is called
    return imported("torch._dynamo").lookup_backend(name)


def dynamo_modes(name: str) -> dict[str, dict[str, Any]]:
    """The modes of a backend, and what each sets in its configuration: only inductor has some."""
    return dict(imported("torch._inductor").list_mode_options()) if name == "inductor" else {}


def known_options() -> list[str]:
    """The names of inductor's configuration."""
    return list(imported("torch._inductor").list_options())


def kind_of_option(name: str) -> Any:
    """The class of an option's values; None if they may be of several."""
    kind = imported("torch._inductor.config").get_type(name)
    return kind if isinstance(kind, type | UnionType) else None


# ---- caches between processes ----

def without_cache_of_autograd() -> AbstractContextManager[Any]:
    """A context in which AOTAutograd traces each graph. Inductor's own cache of graphs stays on."""
    return imported("torch._functorch.config").patch(enable_autograd_cache=False)


def autograd_metadata() -> Any:
    """What AOTAutograd knows of the graph that it has just compiled in the context of ``compiling``."""
    context = TracingContext.try_get()
    return context and context.fw_metadata


# ---- example inputs ----


def fake_modes(values: Sequence[Any]) -> list[FakeTensorMode]:
    return [v.fake_mode for v in values if isinstance(v, FakeTensor)]


def is_symbolic(value: Any) -> bool:
    """Whether the value is, or has a shape made of, symbolic numbers."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    return isinstance(value, FakeTensor) and value._has_symbolic_sizes_strides


def symbolic_mode(gm: GraphModule) -> FakeTensorMode | None:
    """Capture's own fake mode, if the graph has symbolic inputs."""
    if not any(is_symbolic(v) for v in placeholder_values(gm)):
        return None
    return next(iter(fake_modes([node.meta.get("example_value") for node in gm.graph.nodes])), None)


def static_mode() -> FakeTensorMode:
    """A mode in which sizes of inputs are constants, and those that depend on data are symbols."""
    shape_env = imported("torch.fx.experimental.symbolic_shapes").ShapeEnv()
    return FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True, static_shapes=True)


def depends_on_data(gm: GraphModule) -> bool:
    """Whether a size or number of the graph depends on data."""
    return not symbolic_mode(gm) and any(is_symbolic(node.meta.get("example_value")) for node in gm.graph.nodes)


def fake_inputs(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[FakeTensorMode, list[Any]]:
    """Fake counterparts of the inputs, and the one mode that they belong to.

    Static inputs are made fake afresh, because capture may have changed the metadata of its own fake inputs
    (`x.unsqueeze_(0)`). Symbolic ones must be capture's own, because the guards refer to their symbols.
    """
    if mode := symbolic_mode(gm):
        tell_symbols(gm, mode)
        return mode, [
            given if recorded is None else as_given(given, recorded)
            for given, recorded in zip(example_inputs, placeholder_values(gm), strict=True)
        ]
    if modes := fake_modes(example_inputs):
        return modes[0], list(example_inputs)
    mode = static_mode()
    tell_symbols(gm, mode)
    return mode, [
        mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
        for value in example_inputs
    ]


def as_given(given: Any, recorded: Any) -> Any:
    """Capture's own fake of an input, without the history that the program has given the input (``x.mul_(weight)``)."""
    tensors = isinstance(given, torch.Tensor) and isinstance(recorded, torch.Tensor)
    return recorded.detach() if tensors and recorded.requires_grad and not given.requires_grad else recorded


def unchanged_inputs(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[FakeTensorMode, list[Any]]:
    """Fake inputs for a trace that changes them in place, and the mode that they belong to."""
    mode, fakes = fake_inputs(gm, example_inputs)
    if symbolic_mode(gm) is None:
        return mode, fakes
    with mode:
        return mode, [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device).requires_grad_(
            v.requires_grad) if isinstance(v, torch.Tensor) else v for v in fakes]


@contextmanager
def compiling(mode: FakeTensorMode) -> Iterator[None]:
    """Set the context in which torch.compile calls a backend. AOTAutograd and inductor read it."""
    admitted = nullcontext() if mode.shape_env is None else imported("sot.torch_compat.data_symbols").admitted(mode)
    try:
        with tracing(TracingContext(mode)), admitted:
            yield
    finally:
        forget_tensors(mode)


class RefuseFakeGenerators(TorchFunctionMode):
    """Raise where a trace calls an operation with its stand-in for a random generator. Torch 2.13 reads memory
    out of bounds there.
    """

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(value, FakeScriptObject) for value in (*args, *kwargs.values())):
            raise TypeError(f"{getattr(func, '__name__', func)} cannot be traced with a random generator")
        return func(*args, **kwargs)


@contextmanager
def compiling_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Iterator[None]:
    """The context of ``compiling`` for a backend that gets real inputs and makes them fake itself.

    A mode without a ShapeEnv makes every shape static, as in a graph without symbols. With symbols the fakes are
    capture's own: new ones would have new symbols, about which the entry has no guards.
    """
    has_generator = any(isinstance(value, torch.Generator) for value in example_inputs)
    mode = symbolic_mode(gm) or (
        static_mode() if depends_on_data(gm) else FakeTensorMode(allow_non_fake_inputs=True))
    if mode.shape_env is not None:
        tell_symbols(gm, mode)
    if mode.shape_env is not None and not mode.static_shapes:
        for given, recorded in zip(example_inputs, placeholder_values(gm), strict=True):
            if isinstance(recorded, FakeTensor) and not isinstance(given, FakeTensor):
                mode.fake_tensor_converter.set_tensor_memo(given, recorded)
    with compiling(mode), RefuseFakeGenerators() if has_generator else nullcontext():
        yield


# Operators that AOTAutograd decomposes wrongly: torch 2.11 to 2.13, but not 2.15, reads targets after the first -1.
DECOMPOSED_WRONGLY = torch._C._nn.multilabel_margin_loss, torch.nn.functional.multilabel_margin_loss


@functools.cache
def unrolls_lstm_wrongly() -> bool:
    """Whether torch's Python code for the steps of an LSTM gives states with one dimension more: torch 2.11."""
    one_layer = getattr(imported("torch._decomp.decompositions"), "one_layer_lstm", None)
    if one_layer is None:
        return False
    states, weights = [torch.zeros(2, 1)] * 2, [torch.zeros(4, 1)] * 2
    return bool(one_layer(torch.zeros(1, 2, 1), states, weights, False)[1][0].dim() != states[0].dim())


def tell_symbols(gm: GraphModule, mode: FakeTensorMode) -> None:
    """Name the nodes whose results define symbols that depend on data. A tracer of the graph in this mode makes new
    symbols, and takes them for these. Otherwise the gradient of a result has another symbol than the result.
    """
    if not any(node.op != "placeholder" and of_symbols(node.meta.get("example_value")) for node in gm.graph.nodes):
        return
    module, known = imported("sot.torch_compat.data_symbols"), set[Any]()
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            found = dict(module.bindings(node.meta.get("example_value"), known))
            node.meta["unbacked_bindings"] = module.within(mode, found) if found else None


def of_symbols(value: Any) -> bool:
    """Whether a value, or a part of it, is a symbolic number or has one as a size."""
    return any(map(of_symbols, value)) if isinstance(value, tuple | list) else is_symbolic(value)


def freezes_weights(options: Mapping[str, Any]) -> bool:
    """Whether inductor is asked to take weights for constants, by its options or its configuration."""
    return bool(options.get("freezing", imported("torch._inductor.config").freezing))


FRAME = re.compile(r'^ *File "(?P<file>.*)", line (?P<line>\d+), in .*$', re.M)
TORCH = str(Path(torch.__file__).parent) + os.sep
WHOLE_STACK = "whole_stack"


def tell_source_lines(gm: GraphModule) -> None:
    """Complete the stack of each node with the lines of source, as a traceback has them, and leave out torch's own
    frames, so that the last line is the program's. The stack as it was is kept.

    torch reads a stack only with them. It copies stacks to the graphs that it makes, and shows the last line in its
    logs, in generated kernels and in errors.
    """
    completed = functools.cache(_with_source_lines)
    for part in gm.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            if trace := node.meta.get("stack_trace"):
                whole = node.meta.setdefault(WHOLE_STACK, trace)
                node.meta["stack_trace"] = completed(whole)


def whole_stack(node: fx.Node) -> str:
    """The stack of a node with torch's frames; empty if it has none."""
    return node.meta.get(WHOLE_STACK) or node.meta.get("stack_trace") or ""


def _with_source_lines(trace: str) -> str:
    frames = [*FRAME.finditer(trace)]
    programs = [frame for frame in frames if not frame["file"].startswith(TORCH)]
    return "".join(f"{frame[0]}\n    {linecache.getline(frame['file'], int(frame['line'])).strip()}\n"
                   for frame in programs or frames)


@contextmanager
def tracing_recurrence(needed: bool) -> Iterator[None]:
    """Let AOTAutograd trace an LSTM to operations that it can go backward through: the backward kernel of mkldnn takes
    memory that the forward kernel does not give in a trace."""
    if not (needed and torch.is_grad_enabled()):
        yield
        return
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


# ---- autograd ahead of time ----

AtenCompiler = Callable[[GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]


def ahead_of_time(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    forward: AtenCompiler,
    backward: AtenCompiler,
    inference: AtenCompiler,
    decompositions: dict[Any, Callable[..., Any]],
    prepare: Callable[[GraphModule], None] = lambda graph: None,
) -> Callable[..., Any]:
    """Trace a graph to functional ATen graphs, forward and backward, and compile each of them.

    A compiler gets a graph and its fake inputs, and returns a function of one list, which it may empty. The graphs are
    partitioned so that little is kept for the backward graph; cheap values are recomputed there. They end with the
    changes of their inputs, as ``aten.copy_``.

    Arguments:
        prepare: changes the graph of a forward and a backward pass before it is partitioned.
    """
    aot, partitioners = imported("torch._functorch.aot_autograd"), imported("torch._functorch.partitioners")
    gm, reads = with_sizes(gm)
    mode, fakes = fake_inputs(gm, [*example_inputs, *sizes_of(example_inputs, reads)])

    def boxed(compile_graph: AtenCompiler) -> AtenCompiler:
        def compiled(graph: GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
            run = compile_graph(graph, inputs)
            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compiled

    def partition(joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
        prepare(joint)
        return partitioners.min_cut_rematerialization_partition(joint, *args, **kwargs)

    # torch would copy gradients to the strides of the results, even if elements of a result share memory.
    guesses = imported("torch._functorch.config").patch(guess_tangent_strides_as_outputs=not may_overlap(gm))
    with compiling(mode), guesses:
        return giving_sizes(aot.aot_module_simplified(
            gm,
            fakes,
            fw_compiler=boxed(forward),
            bw_compiler=boxed(backward),
            inference_compiler=boxed(inference),
            partition_fn=partition,
            decompositions=decompositions,
            keep_inference_input_mutations=True,
        ), reads)


def may_overlap(gm: GraphModule) -> bool:
    """Whether elements of a result may share memory."""
    (output,) = gm.graph.find_nodes(op="output")
    results = [node.meta.get("example_value") for node in output.all_input_nodes]
    return any(value is None or isinstance(value, torch.Tensor) and value.layout is torch.strided
               and torch._debug_has_internal_overlap(value) != 0 for value in results)


# ---- graphs with symbolic sizes ----


def has_symbols(gm: GraphModule) -> bool:
    """Whether an input of an ATen graph is, or has a shape made of, symbolic numbers."""
    return any(is_symbolic(node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder"))


def with_sizes_of(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The ATen graph for these inputs: every size and number in it is known."""
    return _static(gm, [_layout(v) if isinstance(v, torch.Tensor) else v for v in inputs])


Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


def _layout(tensor: torch.Tensor) -> Layout:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device


def _static(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    make_fx = imported("torch.fx.experimental.proxy_tensor").make_fx
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        fakes = [torch.empty_strided(*v[:2], dtype=v[2], device=v[3]) if isinstance(v, tuple) else v for v in inputs]
        with preserve_node_meta():      # the user's lines
            return make_fx(lambda *values: Interpreter(gm).run(*values))(*fakes)


# ---- recorded graphs ----


def visible_results(title: str, graph: GraphModule) -> int:
    """How many results of an ATen graph that is being compiled are for the program. autograd keeps the others."""
    results = next(iter(graph.graph.find_nodes(op="output"))).args[0]
    context = TracingContext.try_get()
    about = context.fw_metadata if context is not None and title == "forward" else None
    return len(results) if about is None else about.num_forward_returns
