"""Independent results of a graph, for a backend that compiles: for example the losses of two models.

When a backward pass goes through any result of a compiled graph, autograd frees everything that the graph has saved.
Plain PyTorch frees only what that result depends on, so the program may go backward through the other result later. So
the graph is cut between the histories of such results, and the parts are compiled separately.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from sot.backends import Backend
from sot.backends.hooks_in_order import without_hooks
from sot.codegen.build_graph import Graph
from sot.codegen.compiled_graphs.pieces import Piece, changes_shared, is_saved_later, is_traced, tensors_of
from sot.codegen.compiled_graphs.unused_operations import NUMBERS
from sot.torch_compat.autograd_nodes import node_above, saves_tensors
from sot.torch_compat.dynamo.inputs import giving_symbols
from sot.torch_compat.global_state import AUTOCAST_NESTING, STATE_SETTERS
from sot.torch_compat.tensors import storage_id

Part = tuple[Callable[..., Any], list[fx.Node], list[fx.Node]]
Colour = frozenset[int] | None      # the results below which something is; None without a history


def apart(graph: Graph, backend: Backend) -> Callable[..., Any] | None:
    """The callable of a graph with independent results; None if it has none. If it cannot be cut, PyTorch runs it."""
    histories = Histories(graph.module)
    if not histories.are_independent():
        return None
    whole = graph.module.forward
    if graph.has_data_sizes or not all(is_plain(n) for n in graph.module.graph.nodes) or leaves_states(graph):
        return whole
    nodes = [n for n in graph.module.graph.nodes if n.op not in ("placeholder", "output") and not is_setter(n)]
    colours = histories.colours()
    parts = [*scheduled(nodes, colours)]
    for colour in {colours[n] for n in histories.taken}:
        if sum(any(colours.get(n) == colour for n in part) for part in parts) > 1:
            return whole    # it needs the whole history below it
    if changes_what_is_saved(parts, histories):
        return whole
    return without_hooks(Cut(graph, backend, parts, histories).call, graph.module)


def changes_what_is_saved(parts: list[list[fx.Node]], histories: Histories) -> bool:
    """Whether a part changes memory that an earlier part makes, and may save for its backward pass."""
    made = set[int]()
    for part in parts:
        if any(not made.isdisjoint(n.meta.get("changes", ())) for n in part):
            return True
        if not histories.saving.isdisjoint(part):
            made |= {storage_id(t) for n in part for t in tensors_of(n)} - histories.given
    return False


def leaves_states(graph: Graph) -> bool:
    """Whether torch's states at its end differ from those at its start. Each part starts and ends in the states of the
    whole.
    """
    before: dict[tuple, tuple] = {}
    after: dict[tuple, tuple] = {}
    for setter, values, undo in graph.states:
        before.setdefault((setter, *values[:-1]), undo)
        after[setter, *values[:-1]] = setter, values
    targets = [n.target for n in graph.module.graph.nodes]
    return before != after or targets.count(AUTOCAST_NESTING[0]) != targets.count(AUTOCAST_NESTING[1])


def is_plain(node: fx.Node) -> bool:
    """Whether it can be moved to another graph: a tensor operation, or a change of state that can be repeated."""
    if node.op == "output" or is_setter(node):
        return True
    value = node.meta.get("example_value")
    return node.op != "get_attr" and (is_traced(value) or isinstance(value, NUMBERS))


def is_setter(node: fx.Node) -> bool:
    return node.op == "call_function" and (node.target in STATE_SETTERS or node.target in AUTOCAST_NESTING)


class Histories:
    """Which operations have saved values that one backward pass frees together. Operations that save nothing join no
    set.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        (output,) = module.graph.find_nodes(op="output")
        nodes = [n for n in module.graph.nodes if n is not output and not is_setter(n)]
        self.above: dict[Any, Any] = {}     # towards the representative of a set of joined operations
        self.changed = {storage for n in nodes for storage in n.meta.get("changes", ())}
        self.given = {storage_id(t) for n in nodes if n.op == "placeholder" for t in tensors_of(n)}
        self.recorded = [n for n in nodes if has_history(n)]
        self.taken = [n for n in nodes if n.target is torch.autograd.grad]
        self.results = [n for n in dict.fromkeys(output.args[0]) if isinstance(n, fx.Node) and has_history(n)]
        self.saving: set[fx.Node] = set()
        if len(self.results) > 1:
            self.join_all()

    def join_all(self) -> None:
        self.saving = {n for n in self.recorded if any(
            (above := node_above(t)) is not None and saves_tensors(above) for t in tensors_of(n))}
        for node in self.recorded:
            for operand in self.operands(node):
                if is_item(node) or operand in self.saving:
                    self.join(node, operand)
        for node in self.taken:
            for operand in self.below(node):
                self.join(node, operand)

    # ---- sets of joined operations
    def key(self, node: fx.Node) -> Any:
        """The key of an operation: its memory, if that is changed in place."""
        for tensor in tensors_of(node):
            if tensor.requires_grad and self.changed and (storage := storage_id(tensor)) in self.changed:
                return storage
        return self.key(node.args[0]) if is_item(node) else node  # type: ignore[arg-type]

    def joined(self, node: fx.Node) -> Any:
        """The representative of the set that an operation is in."""
        key = self.key(node)
        while key in self.above:
            key = self.above[key]
        return key

    def join(self, node: fx.Node, other: fx.Node) -> None:
        a, b = self.joined(node), self.joined(other)
        if a is not b and a != b:
            self.above[a] = b

    # ---- histories
    def operands(self, node: fx.Node) -> list[fx.Node]:
        """The operands that have a history in the graph."""
        return [n for n in node.all_input_nodes if has_history(n)]

    def below(self, node: fx.Node) -> set[fx.Node]:
        found: set[fx.Node] = set()
        todo = self.operands(node)
        while todo:
            now = todo.pop()
            if now not in found:
                found.add(now)
                todo += self.operands(now)
        return found

    def are_independent(self) -> bool:
        """Whether the program can go backward through one of two results after it has gone through the other."""
        saved = [{self.joined(n) for n in (self.below(r) | {r}) & self.saving} for r in self.results]
        return any(not a & b for i, a in enumerate(saved) for b in saved[:i])

    def colours(self) -> dict[fx.Node, Colour]:
        reached: dict[Any, set[int]] = defaultdict(set)
        for i, node in enumerate((*self.taken, *self.results)):
            reached[self.joined(node)].add(i)
        self.pass_down(reached)
        return {n: frozenset(reached[self.joined(n)]) or None for n in (*self.recorded, *self.taken)}

    def pass_down(self, reached: dict[Any, set[int]]) -> None:
        """Whatever is below a result is below it through all operations."""
        changed = True
        while changed:
            changed = False
            for node in reversed(self.recorded):
                for operand in self.operands(node):
                    mine, theirs = reached[self.joined(node)], reached[self.joined(operand)]
                    changed = changed or not mine <= theirs
                    theirs |= mine


def has_history(node: fx.Node) -> bool:
    """Whether the graph makes a node of autograd above it."""
    return any(t.requires_grad and (node.op != "placeholder" or node_above(t) is not None and t._version)
               for t in tensors_of(node))


def is_item(node: fx.Node) -> bool:
    """Whether it is an item of an operation with several results."""
    return bool(node.args) and isinstance(node.args[0], fx.Node) and isinstance(
        node.args[0].meta.get("example_value"), (tuple, list))


def scheduled(nodes: list[fx.Node], colours: dict[fx.Node, Colour]) -> Iterator[list[fx.Node]]:
    """The operations in an order that keeps those of one colour together, as far as results and effects allow it."""
    before = constraints(nodes)
    todo, done = [*before], set[fx.Node]()
    colour: Colour = None
    while todo:
        part: list[fx.Node] = []
        for node in todo:
            own = colours.get(node)
            if before[node] <= done and (own is None or colour is None or own == colour or is_item(node)):
                colour = colour or own
                part.append(node)
                done.add(node)
        todo = [n for n in todo if n not in done]
        if part:
            yield part
        colour = None


def constraints(nodes: list[fx.Node]) -> dict[fx.Node, set[fx.Node]]:
    """What must run before each operation: its operands, and earlier draws and mutations of the program."""
    found: dict[fx.Node, set[fx.Node]] = {}
    barrier: fx.Node | None = None
    draw: fx.Node | None = None
    for node in nodes:
        needed = {n for n in node.all_input_nodes if n.op != "placeholder"}
        needed |= {n for n in (barrier, draw if node.meta.get("draws") else None) if n is not None}
        if node.meta.get("changes"):
            needed |= found.keys()
            barrier = node
        if node.meta.get("draws"):
            draw = node
        found[node] = needed
    return found


def examples_of(nodes: list[fx.Node]) -> list[Any]:
    return [node.meta.get("example_value") for node in nodes]


class Cut:
    """The parts of a graph, which are compiled separately and run one after the other."""

    def __init__(self, graph: Graph, backend: Backend, parts: list[list[fx.Node]], histories: Histories) -> None:
        self.histories = histories
        self.inputs: list[fx.Node] = graph.module.graph.find_nodes(op="placeholder")
        (output,) = graph.module.graph.find_nodes(op="output")
        self.results = output.args[0]
        self.states: dict[tuple, tuple] = {}
        for setter, values, undo in graph.states:
            self.states.setdefault((setter, *values[:-1]), undo)
        self.state_of = dict(self.states_of(graph.module))
        self.parts = [self.part(graph.module, backend, nodes, [n for part in parts[i + 1:] for n in part])
                      for i, nodes in enumerate(parts)]
        del self.histories, self.state_of

    def states_of(self, module: torch.fx.GraphModule) -> Iterator[tuple[fx.Node, dict]]:
        """For each operation, torch's states under which it runs."""
        now = dict(self.states)
        for node in module.graph.nodes:
            if is_setter(node) and node.target in STATE_SETTERS:
                now = {**now, (node.target, *node.args[:-1]): (node.target, node.args)}
            yield node, now

    def part(self, module: torch.fx.GraphModule, backend: Backend, nodes: list[fx.Node], later: list[fx.Node]) -> Part:
        """The callable of a part, with the nodes that it takes and those that it returns."""
        inside = set(nodes)
        taken = [*dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside)]
        taken += [self.inputs[i] for i in giving_symbols(examples_of(taken), examples_of(self.inputs))]
        given = [n for n in nodes if n in self.results or any(user not in inside for user in n.users)]
        given = [n for n in given if not isinstance(n.meta.get("example_value"), (tuple, list))]
        new, made, now = fx.Graph(), dict[fx.Node, fx.Node](), self.states
        for node in taken:
            made[node] = new.placeholder(node.name)
            made[node].meta = dict(node.meta)
        for node in nodes:
            now = self.change_states(new, now, self.state_of[node])
            made[node] = new.node_copy(node, made.__getitem__)
        self.change_states(new, now, self.states)
        new.output(tuple(made[n] for n in given))
        made_of = fx.GraphModule(module, new)
        recorded = inside.intersection(self.histories.recorded)
        goes_often = recorded and not recorded & self.histories.saving      # a compiled one can be gone through once
        if goes_often or is_saved_later(nodes, later) or changes_shared(made_of):
            return made_of.forward, taken, given
        return Piece(backend, made_of, always_many=True), taken, given

    @staticmethod
    def change_states(new: fx.Graph, now: dict, wanted: dict) -> dict:
        for key, (setter, values) in wanted.items():
            if now[key] != (setter, values):
                new.call_function(setter, tuple(values))
        return wanted

    def call(self, *args: Any) -> tuple:
        found = dict(zip(self.inputs, args, strict=True))
        for piece, taken, given in self.parts:
            found.update(zip(given, piece(*(found[n] for n in taken)), strict=True))
        return tuple(found[n] if isinstance(n, fx.Node) else n for n in self.results)
