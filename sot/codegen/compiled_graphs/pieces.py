"""Compiles the pieces of a graph between operations that only PyTorch can run.

Tracing would lose or fix seeds, random generators, NumPy calls and hooks, would draw random numbers into other memory,
and would lay out some results differently. These operations are called unchanged, in order with the compiled pieces.
Autograd goes through all of them.

A change of the grad mode is such an operation, too: autograd records a piece or does not record it, as a whole.

A compiled piece is one node of autograd. A hook on one of its results would see only the gradient that comes from
outside of the piece, so a piece ends with a tensor whose gradient the program sees.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module

from sot.backends import Backend, BackendError, call_backend
from sot.codegen.compiled_graphs.failing_constants import loses_check, raises_on_constants
from sot.codegen.compiled_graphs.operators.draws_in_order import is_drawn_in_order
from sot.graph.fake_rules import is_opaque, is_sparse
from sot.graph.nodes import has_own_layout, name_of
from sot.interpreter.effects.shown_warnings import remembered
from sot.interpreter.effects.torch_warnings import unheard
from sot.interpreter.torch_ops.hooks.tensor_hooks import is_place
from sot.torch_compat.compilers import symbolic_mode
from sot.torch_compat.dynamo.inputs import giving_symbols, placeholder_values
from sot.torch_compat.global_state import SET_GRAD
from sot.torch_compat.tensors import storage_id

CHANGED_SINCE = "needed for gradient computation has been modified by an inplace operation"
NO_FORMULA = "but no autograd formula was registered"
STRIDED_VIEWS = "encountered a mutation on a view chain"       # with as_strided, of which fill_diagonal_ makes one


class Piece:
    """A part of the graph, which the backend compiles at its first call.

    A part with symbolic inputs is compiled at once, so that the entry guards what torch assumes about the symbols.
    ``grad``: the grad mode in which it runs; None is the current one.
    """

    def __init__(self, backend: Backend, module: fx.GraphModule, always_many: bool = False,
                 grad: bool | None = None) -> None:
        self.backend, self.module, self.always_many = backend, module, always_many
        self.compiled: Callable[..., Any] | None = None
        recorded = placeholder_values(module)
        if symbolic_mode(module) is not None and all(value is not None for value in recorded):
            with torch.set_grad_enabled(torch.is_grad_enabled() if grad is None else grad):
                self.compiled = self.ask_backend(recorded)

    def __call__(self, *args: Any) -> Any:
        if self.compiled is None:
            self.compiled = self.ask_backend(args)
        results = self.compiled(*args)
        return results[0] if self.is_one else results

    def ask_backend(self, examples: Sequence[Any]) -> Callable[..., Any]:
        try:
            with unheard({}), remembered():
                return call_backend(self.backend, self.module, examples)
        except BackendError as error:
            if not (is_left_to_pytorch(error) or raises_on_constants(self.module)):
                raise
            return self.module.forward

    @property
    def is_one(self) -> bool:
        (output,) = self.module.graph.find_nodes(op="output")
        return len(output.args[0]) == 1 and not self.always_many


def is_left_to_pytorch(error: BackendError) -> bool:
    """Whether a backend failed because the program changes what its backward pass needs, or uses an operator without
    a gradient. Then PyTorch runs the graph, and raises if the program does go backward. It also runs a graph that
    changes views of which AOTAutograd cannot tell where they are.
    """
    return isinstance(error.__cause__, RuntimeError) and any(
        text in str(error.__cause__) for text in (CHANGED_SINCE, NO_FORMULA, STRIDED_VIEWS))


def in_pieces(module: fx.GraphModule, backend: Backend, plain: Collection[Any]) -> Callable[..., Any] | None:
    """The callable of a graph; ``plain`` are the functions that are called unchanged. None if there is no piece to
    compile.
    """
    number, was_plain, ends = -1, False, False
    seen = {node.args[0] for node in module.graph.nodes if shows_gradient(node)}
    place: dict[fx.Node, int] = {}
    kinds: dict[int, bool] = {}
    grad, modes = torch.is_grad_enabled(), dict[int, bool]()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if (whole := tuple_of(node)) in place:      # pieces take and return tensors, whose sizes are known symbols
            place[node] = place[whole]
            ends = ends or node in seen
            continue
        now = is_plain(node, plain) or any(kinds[place[n]] for n in node.all_input_nodes if n in place and is_tuple(n))
        if number < 0 or now != was_plain or ends:
            number += 1
            kinds[number], modes[number] = now, grad
        if node.target is SET_GRAD:
            grad, = node.args
        place[node], was_plain = number, now
        ends = node in seen or changes_first(node) and node.args[0] in seen
        place |= {function: number for function in node.all_input_nodes if function.op == "get_attr"}
    if all(kinds.values()):
        return None
    parts = split(module, place)
    for name, part in [*parts.named_children()]:
        at = name.removeprefix("submod_")
        if not isinstance(part, fx.GraphModule) or not at.isdigit():
            continue
        call: Callable[..., Any] = part.forward
        if not kinds[number := int(at)] and not (
                changes_shared(part) or is_saved_later([n for n in place if place[n] == number],
                                                       [n for n in place if place[n] > number])):
            hand_symbols(parts, name, part, module)
            returns_tuple(part)
            call = Piece(backend, part, grad=modes[number])
        # A call of a module would run the hooks of all modules, and of a graph module write what it raises to stderr.
        delattr(parts, name)
        vars(parts)[name] = call
    parts.recompile()
    return lambda *args: parts.forward(*args)


def split(module: fx.GraphModule, place: dict[fx.Node, int]) -> fx.GraphModule:
    """The graph as a graph of parts. ``split_module`` would pass each symbol of an example to the parts, and raises for
    symbols that are no inputs, and for examples that have none. Our parts need no symbols: sizes that are used are
    nodes. It would also set the grad mode again at the start of each part.
    """
    setters = module.graph.find_nodes(op="call_function", target=SET_GRAD)
    for node in setters:
        node.target = set_grad
    examples = {node.name: node.meta.pop("example_value") for node in module.graph.nodes
                if "example_value" in node.meta}
    try:
        whole = split_module(module, module, place.__getitem__, keep_original_order=True)
    finally:
        give_examples(module, examples)
        for node in setters:
            node.target = SET_GRAD
    for part in whole.children():
        if isinstance(part, fx.GraphModule):
            give_examples(part, examples)
    return whole


def set_grad(enabled: bool) -> None:
    SET_GRAD(enabled)


def hand_symbols(parts: fx.GraphModule, name: str, part: fx.GraphModule, module: fx.GraphModule) -> None:
    """Hand a part those inputs of the whole graph that give the symbols of its sizes, if its own inputs do not."""
    given, examples = {node.name: node for node in parts.graph.find_nodes(op="placeholder")}, placeholder_values(module)
    call, = (node for node in parts.graph.nodes if node.op == "call_module" and node.target == name)
    last = part.graph.find_nodes(op="placeholder")[-1:]
    for i in giving_symbols(placeholder_values(part), examples):
        node = given[module.graph.find_nodes(op="placeholder")[i].name]
        with part.graph.inserting_after(*last):
            last = [part.graph.placeholder(node.name)]
        last[0].meta["example_value"] = examples[i]
        call.args = (*call.args, node)


def give_examples(module: fx.GraphModule, examples: dict[str, Any]) -> None:
    for node in module.graph.nodes:
        if node.name in examples:
            node.meta["example_value"] = examples[node.name]


def returns_tuple(part: fx.GraphModule) -> None:
    """Make a graph return a tuple, as backends require."""
    (output,) = part.graph.find_nodes(op="output")
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((),) if output.args[0] is None else ((output.args[0],),)
        part.recompile()


def shows_gradient(node: fx.Node) -> bool:
    """Whether the program puts a hook on its first argument, or keeps the gradient of it."""
    return is_place(node.target) or node.op == "call_method" and node.target == "retain_grad"


def tuple_of(node: fx.Node) -> Any:
    """The node whose results a node takes an item of, if they are several."""
    whole = node.args[0] if node.target is operator.getitem else None
    return whole if isinstance(whole, fx.Node) and is_tuple(whole) else None


def is_tuple(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), (tuple, list))


def changes_shared(part: fx.GraphModule) -> bool:
    """Whether a part changes tensors, and some of its inputs share memory. AOTAutograd refuses views of a tensor that
    were made outside of autograd's sight, as operations that are called unchanged make them.
    """
    fakes = [node.meta.get("example_value") for node in part.graph.find_nodes(op="placeholder")]
    places = [storage_id(fake) for fake in fakes if isinstance(fake, torch.Tensor)]
    return len({*places}) < len(places) and any(n.meta.get("changes") for n in part.graph.nodes)


def is_saved_later(part: Sequence[fx.Node], later: Sequence[fx.Node]) -> bool:
    """Whether a part changes a tensor that a later one may save for its backward pass. The versions of inputs are set
    after all parts, and a compiled part leaves others than the program until then.
    """
    changed = set[int]().union(*(node.meta.get("changes", ()) for node in part))
    return bool(changed) and any(
        any(t.requires_grad for t in tensors_of(node))
        and any(storage_id(t) in changed for n in node.all_input_nodes for t in tensors_of(n)) for node in later)


def tensors_of(node: fx.Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("example_value")
    yield from (v for v in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(v, torch.Tensor))


def changes_first(node: fx.Node) -> bool:
    name = name_of(node)
    return bool(node.args) and (name.endswith("_") and not name.endswith("__") or name in ("setitem", "__setitem__"))


def is_plain(node: fx.Node, plain: Collection[Any]) -> bool:
    """Whether it is called unchanged. So is a node that takes or returns anything but dense tensors and numbers."""
    return node.target in plain or is_opaque(node.target) or shows_gradient(node) or is_drawn_in_order(node) or (
        "warns" in node.meta) or loses_check(node) or has_own_layout(node) or not all(
        is_traced(n.meta.get("example_value")) for n in (node, *node.all_input_nodes) if n.op != "get_attr")


def is_traced(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(is_traced, value))
    return isinstance(value, (torch.Tensor, int, float, bool)) and not is_sparse(value)


def has_sparse(node: fx.Node) -> bool:
    """Whether it makes a sparse tensor. Compilers take the sizes of its parts from fakes, which have no elements."""
    made = node.meta.get("example_value")
    return any(map(is_sparse, made if isinstance(made, (tuple, list)) else (made,)))
