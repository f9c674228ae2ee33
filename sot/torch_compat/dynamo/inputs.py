"""The inputs of a graph as torch.compile hands them to a backend: which are weights, and sizes as further inputs."""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

STATIC_INPUT = "tensor_dict"     # where torch.compile has the mark on a placeholder
CONSTANT = "constant"            # SOT's own mark: a compiler may take the values of this input for constants


def placeholder_values(gm: GraphModule) -> list[Any]:
    """What capture recorded for each input of the graph; None if it recorded nothing."""
    return [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]


def mark_weights(gm: GraphModule, weights: Collection[int], constant: Collection[int] = ()) -> None:
    """Mark the inputs of a graph that are parameters and buffers, which are the same tensors at each call.

    AOTAutograd passes the marks on to inductor. These inputs are not copied for CUDA graphs, and their alignment is not
    checked. The ``constant`` ones do not change either, so that a compiler may compute with their values.
    """
    for i, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        if i in weights:
            node.meta[STATIC_INPUT] = {"_dynamo_static_input_type": "unguarded"}
            node.meta[CONSTANT] = i in constant


def tell_static_inputs(gm: GraphModule) -> None:
    """Make AOTAutograd read the marks of inputs, which it does in a graph of torch.compile."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    if not any(STATIC_INPUT in node.meta for node in placeholders):
        return
    gm.meta["dynamo_compile_id"] = None
    gm._param_name_to_source = {}  # type: ignore[assignment]
    for node in placeholders:
        node._dynamo_source = None


def with_constants(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[GraphModule, list[int]]:
    """The graph with its constant inputs as buffers of the module, and the indices of the inputs that it still takes.

    torch.compile hands weights over in this way if inductor's option ``freezing`` is set.
    """
    frozen = GraphModule(gm, fx.Graph())
    copies: dict[fx.Node, fx.Node] = {}
    left: list[int] = []
    for i, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = example_inputs[i]
        if not node.meta.get(CONSTANT) or type(value) not in (torch.Tensor, torch.nn.Parameter):
            left.append(i)
            copies[node] = frozen.graph.node_copy(node)
            continue
        name = f"constant_{i}"
        frozen.register_buffer(name, value)
        copies[node] = frozen.graph.get_attr(name)
        copies[node].meta.update(node.meta)
    for node in gm.graph.nodes:
        if node not in copies:
            copies[node] = frozen.graph.node_copy(node, copies.__getitem__)
    frozen.recompile()
    return frozen, left


# ---- sizes ----


class Read(NamedTuple):
    """Where a symbol is read: ``ask(inputs[which], dim)`` is ``factor * symbol + offset``."""

    which: int
    ask: Callable[[torch.Tensor, int], int]
    dim: int
    factor: int = 1
    offset: int = 0


def reads_of(values: Sequence[Any]) -> dict[Any, tuple[torch.SymInt, Read]]:
    """The symbols that are no inputs, by symbol: as a number, and how inputs with these example values give it."""
    known = {symbol_of(value) for value in values} | {None}
    found: dict[Any, tuple[torch.SymInt, Read]] = {}
    sizes = [(number, Read(i, ask, dim))
             for i, fake in enumerate(values) if type(fake) is FakeTensor
             for ask, numbers in ((torch.Tensor.size, fake.shape), (torch.Tensor.stride, fake.stride()))
             for dim, number in enumerate(numbers) if isinstance(number, torch.SymInt)]
    for number, read in sorted(sizes, key=lambda each: symbol_of(each[0]) is None):     # symbols first
        symbolic, factor, offset = solved(number)
        if (symbol := symbol_of(symbolic)) not in known and symbol not in found:
            found[symbol] = symbolic, read._replace(factor=factor, offset=offset)
    return found


def with_sizes(gm: GraphModule) -> tuple[GraphModule, list[Read]]:
    """The graph with an input more for each symbol that is no input, and how the others give the number. torch.compile
    hands sizes over in this way, and AOTAutograd's pass over numbers of a graph relies on it. In a part of a graph
    there may be only a size that is computed from a symbol.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    found = [*reads_of(placeholder_values(gm)).values()]
    if not found:
        return gm, []
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node is placeholders[-1]:
            for symbolic, _ in found:
                size = graph.create_node("placeholder", "size")
                size.target = size.name     # names of nodes are unique
                size.meta["example_value"] = symbolic
    with_inputs = GraphModule(gm, graph)
    with_inputs.meta.update(gm.meta)
    tell_static_inputs(with_inputs)
    return with_inputs, [read for _, read in found]


def symbol_of(number: Any) -> Any:
    """The symbol that a number of torch is; None for other values. A ragged size has no expression."""
    expr = getattr(number.node, "expr", None) if isinstance(number, torch.SymInt) else None
    return expr if expr is not None and expr.is_Symbol else None


def solved(number: Any) -> tuple[Any, int, int]:
    """The symbol that a number is a multiple of, but for a constant, and both. The number itself if there is none."""
    expr: Any = getattr(number.node, "expr", None)
    symbols = () if expr is None or expr.is_Symbol else tuple(expr.free_symbols)
    if len(symbols) == 1:
        offset = expr.subs(symbols[0], 0)
        factor = expr.subs(symbols[0], 1) - offset
        if factor.is_Integer and offset.is_Integer and factor > 0 and expr == factor * symbols[0] + offset:
            return (number - int(offset)) // int(factor), int(factor), int(offset)
    return number, 1, 0


def sizes_of(inputs: Sequence[Any], reads: Sequence[Read]) -> list[int]:
    return [(read.ask(inputs[read.which], read.dim) - read.offset) // read.factor for read in reads]


def giving_sizes(compiled: Callable[..., Any], reads: Sequence[Read]) -> Callable[..., Any]:
    """A compiled graph that is given the sizes of its inputs as further inputs."""
    def run(*inputs: Any) -> Any:
        return compiled(*inputs, *sizes_of(inputs, reads))
    return run if reads else compiled


def giving_symbols(values: Sequence[Any], others: Sequence[Any]) -> list[int]:
    """The indices of ``others`` which give symbols that the sizes of ``values`` contain and do not give: of a sum of
    two symbols neither is known. All are example values of inputs.
    """
    missing = {symbol for value in values for symbol in symbols_in(value)} - given_by(values)
    found = []
    for i, other in enumerate(others):
        if missing and (given := given_by([other]) & missing):
            found.append(i)
            missing -= given
    return found


def given_by(values: Sequence[Any]) -> set[Any]:
    return {*reads_of(values), *map(symbol_of, values)}


def symbols_in(value: Any) -> set[Any]:
    """The symbols in the sizes and strides of an example value."""
    numbers = (*value.shape, *value.stride()) if type(value) is FakeTensor else (value,)
    expressions = [getattr(n.node, "expr", None) for n in numbers if isinstance(n, torch.SymInt)]
    return {symbol for expression in expressions if expression is not None for symbol in expression.free_symbols}
