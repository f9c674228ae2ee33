"""Numbers of the CPU that are computed alike, such as what an optimizer computes from each parameter's step counter.

Beside kernels on a GPU, each operator on a number of the CPU is a call, and each number that a kernel reads is copied
to the GPU. A training step of 200 parameters has 3,000 such calls and 400 copies. They become one call on a vector for
each kind of operator, and one copy of a vector, whose elements the kernels read.

A group is of operators that are equal but for their numbers. Its numbers are inputs of the graph, constants, or
results of groups, so the vectors can be computed before everything else.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
CPU = torch.device("cpu")
LEAST = 8       # operators of a kind that pay for a vector


def stack_numbers(gm: fx.GraphModule) -> int:
    """Compute numbers of the CPU as vectors, in a functional ATen graph of known sizes.

    Returns:
        how many operators became part of a vector.
    """
    stacker = Stacker(gm.graph)
    stacker.find()
    count = stacker.replace()
    if count:
        gm.recompile()
    return count


@dataclasses.dataclass(eq=False)
class Group:
    """Operators that are equal but for their numbers; ``vector`` has their results."""

    nodes: list[fx.Node]
    vector: fx.Node | None = None


def is_number(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu"


def is_elementwise(node: fx.Node) -> bool:
    """Whether the operator does the same for each element of vectors as it does for numbers, and has no effect."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if target is aten._to_copy.default:
        return {*node.kwargs} <= {"dtype"}
    return torch.Tag.pointwise in target.tags and torch.Tag.nondeterministic_seeded not in target.tags


class Stacker:
    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.groups: dict[Any, Group] = {}
        self.group_of: dict[fx.Node, Group] = {}
        self.place: dict[fx.Node, int] = {}         # in the group
        self.constants: dict[Any, fx.Node] = {}     # the first of equal constants
        self.given: dict[fx.Node, fx.Node] = {}     # inputs and constants, each with the first that is equal to it
        self.stacks: dict[tuple[fx.Node, ...], fx.Node] = {}
        self.elements: dict[tuple[fx.Node, int, torch.device], fx.Node] = {}
        self.split: dict[tuple[fx.Node, torch.device], fx.Node] = {}

    # ---- what is alike
    def find(self) -> None:
        for node in self.graph.nodes:
            if not is_number(node):
                continue
            if node.op == "placeholder":
                self.given[node] = node
            elif node.op == "get_attr" or (node.target is aten.full.default and not node.all_input_nodes):
                key = node.op, node.target, repr(node.args), repr(node.kwargs)
                self.given[node] = self.constants.setdefault(key, node)
            elif is_elementwise(node) and all(n in self.given or n in self.group_of for n in node.all_input_nodes):
                group = self.groups.setdefault(self.key(node), Group([]))
                self.group_of[node], self.place[node] = group, len(group.nodes)
                group.nodes.append(node)

    def key(self, node: fx.Node) -> Any:
        """What is equal in all operators of a group. The numbers of one place come from one group, or are given."""
        def kind(number: fx.Node) -> Any:
            group = self.group_of.get(number)
            return ("of", id(group)) if group else ("given", number.meta["val"].dtype)
        return node.target, repr(fx.node.map_arg((node.args, node.kwargs), kind))

    # ---- vectors
    def replace(self) -> int:
        large = [group for group in self.groups.values() if len(group.nodes) >= LEAST]
        first = next((n for n in self.graph.nodes if n.op not in ("placeholder", "get_attr")), None)
        if not large or first is None:
            return 0
        mark = self.graph.call_function(aten.empty.memory_format, ([0],))       # everything is put before it
        first.prepend(mark)
        with self.graph.inserting_before(mark):
            for constant in self.constants.values():
                mark.prepend(constant)
            for group in large:
                self.compute(group)
            members = {node for group in large for node in group.nodes}
            for group in large:
                self.hand_out(group, members)
        self.graph.erase_node(mark)
        for node in reversed(list(self.graph.nodes)):
            if node in members:
                self.graph.erase_node(node)
        return len(members)

    def compute(self, group: Group) -> None:
        """The operator on vectors: a vector takes the place of each number."""
        node = group.nodes[0]
        columns = iter(list(zip(*(numbers_of(n) for n in group.nodes), strict=True)))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda _: self.column(next(columns)))
        group.vector = self.made(node.target, args, kwargs, like=node, shape=(len(group.nodes),))

    def column(self, numbers: tuple[fx.Node, ...]) -> fx.Node:
        """These numbers as a vector."""
        numbers = tuple(self.given.get(n, n) for n in numbers)
        if numbers not in self.stacks:
            first, *others = numbers
            group, count = self.group_of.get(first), len(numbers)
            if group and group.vector and numbers == tuple(group.nodes):
                return group.vector
            self.stacks[numbers] = (
                self.made(aten.expand.default, (self.number(first), [count]), {}, first, (count,))
                if all(n is first for n in others) else
                self.made(aten.stack.default, ([self.number(n) for n in numbers],), {}, first, (count,)))
        return self.stacks[numbers]

    def number(self, node: fx.Node) -> fx.Node:
        """The same number, from the vector of its group if it has one."""
        group = self.group_of.get(node)
        if group is None or group.vector is None:
            return node
        return self.element(group.vector, self.place[node])

    def hand_out(self, group: Group, members: set[fx.Node]) -> None:
        """Give the results to what is not part of a vector."""
        assert group.vector is not None
        for i, node in enumerate(group.nodes):
            for user in [user for user in node.users if user not in members]:
                user.replace_input_with(node, self.element_for(user, group.vector, i))

    def element_for(self, user: fx.Node, vector: fx.Node, i: int) -> fx.Node:
        if user.op == "output":     # results have memory of their own
            return self.made(aten.clone.default, (self.element(vector, i),), {}, vector, ())
        there = getattr(user.meta.get("val"), "device", CPU)
        return self.element(vector, i, there if is_elementwise(user) else CPU)

    def element(self, vector: fx.Node, i: int, device: torch.device = CPU) -> fx.Node:
        """An element of a vector, on this device."""
        key = vector, i, device
        if key not in self.elements:
            parts = self.parts(vector, device)
            part = self.graph.call_function(operator.getitem, (parts, i))
            part.meta = dict(parts.meta, val=parts.meta["val"][i])
            self.elements[key] = part if part.meta["val"].dim() == 0 else self.made(
                aten.select.int, (part, 0, 0), {}, part, ())
        return self.elements[key]

    def parts(self, vector: fx.Node, device: torch.device) -> fx.Node:
        """All elements of a vector. On a GPU each is a buffer of its own, which ``unbind`` would not give: kernels that
        differ only in the place of their number stay equal. No one waits for the copy: CUDA copies so few bytes before
        the call returns.
        """
        key = vector, device
        if key not in self.split:
            value = vector.meta["val"].new_empty(vector.meta["val"].shape, device=device)
            if device.type == "cpu":
                parts = self.made(aten.unbind.int, (vector,), {}, vector)
                parts.meta["val"] = value.unbind()
            else:
                copy = self.made(aten._to_copy.default, (vector,), {"device": device, "non_blocking": True}, vector)
                parts = self.made(aten.tensor_split.sections, (copy, len(value)), {}, vector)
                copy.meta["val"], parts.meta["val"] = value, value.tensor_split(len(value))
            self.split[key] = parts
        return self.split[key]

    def made(self, target: Any, args: tuple, kwargs: dict[str, Any], like: fx.Node,
             shape: Sequence[int] | None = None) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        value = like.meta["val"]
        node.meta = {key: like.meta[key] for key in ("stack_trace",) if key in like.meta}
        node.meta["val"] = value if shape is None else value.new_empty(shape)
        return node


def numbers_of(node: fx.Node) -> list[fx.Node]:
    """The nodes among the arguments, in order; one that is there twice counts twice."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return found
