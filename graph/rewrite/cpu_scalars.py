"""0-d tensors of the CPU that are computed alike, such as what an optimizer computes from each step counter.

Beside kernels on a GPU, each operator on such a scalar is a call, and each scalar that a kernel reads is copied to the
GPU. A training step of 200 parameters has 3,000 such calls and 400 copies. They become one call on a vector for each
kind of operator, and one copy of each vector that kernels read.

A group contains operators that are equal except for their scalars. These scalars are inputs of the graph, constants, or
results of groups, so the vectors can be computed before everything else.
"""
from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
CPU = torch.device("cpu")
LEAST = 8       # operators of a kind that are worth a vector


def stack_scalars(graph: fx.Graph) -> int:
    """Compute scalars of the CPU as vectors, in a functional ATen graph that also computes on another device.

    Returns:
        how many operators became part of a vector. Nothing uses them any more.
    """
    values = (node.meta.get("val") for node in graph.nodes)
    if all(value.device.type == "cpu" for value in values if isinstance(value, torch.Tensor)):
        return 0
    return Stacker(graph).run()


@dataclasses.dataclass(eq=False)
class Group:
    """Operators that are equal except for their scalars; ``vector`` has their results."""

    nodes: list[fx.Node]
    vector: fx.Node | None = None


def is_scalar(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu"


def is_elementwise(node: fx.Node) -> bool:
    """Whether the operator does the same for each element of a vector as for a scalar, and has no effect."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return target is aten._to_copy.default or torch.Tag.pointwise in target.tags


class Stacker:
    """Finds groups and replaces them. ``given`` are the scalars that are inputs or constants."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.groups: dict[Any, Group] = {}
        self.group_of: dict[fx.Node, Group] = {}
        self.place: dict[fx.Node, int] = {}         # in the group
        self.given: list[fx.Node] = []
        self.stacks: dict[tuple[fx.Node, ...], fx.Node] = {}
        self.elements: dict[tuple[fx.Node, int, torch.device], fx.Node] = {}
        self.split: dict[tuple[fx.Node, torch.device], fx.Node] = {}

    def run(self) -> int:
        self.find()
        large = [group for group in self.groups.values() if len(group.nodes) >= LEAST]
        if not large:
            return 0
        first = next(n for n in self.graph.nodes if n.op not in ("placeholder", "get_attr"))
        with self.graph.inserting_before(first):
            mark = self.graph.call_function(aten.empty.memory_format, ([0],))
        with self.graph.inserting_before(mark):     # before everything that is computed
            for constant in self.given:
                if constant.op != "placeholder":
                    mark.prepend(constant)
            for group in large:
                self.compute(group)
            members = {node for group in large for node in group.nodes}
            for group in large:
                self.hand_out(group, members)
        self.graph.erase_node(mark)
        return len(members)

    # ---- groups
    def find(self) -> None:
        known = set[fx.Node]()
        for node in filter(is_scalar, self.graph.nodes):
            is_constant = node.op == "get_attr" or (node.target is aten.full.default and not node.all_input_nodes)
            if node.op == "placeholder" or is_constant:
                self.given.append(node)
            elif is_elementwise(node) and known.issuperset(node.all_input_nodes):
                group = self.groups.setdefault(self.key(node), Group([]))
                self.group_of[node], self.place[node] = group, len(group.nodes)
                group.nodes.append(node)
            else:
                continue
            known.add(node)

    def key(self, node: fx.Node) -> Any:
        """What is equal in all operators of a group. The scalars of one place come from one group, or are given."""
        def kind(scalar: fx.Node) -> Any:
            group = self.group_of.get(scalar)
            return ("of", id(group)) if group else ("given", scalar.meta["val"].dtype)
        return node.target, repr(fx.node.map_arg((node.args, node.kwargs), kind))

    # ---- vectors
    def compute(self, group: Group) -> None:
        """The operator on vectors: a vector takes the place of each scalar."""
        node = group.nodes[0]
        columns = iter(list(zip(*(scalars_of(n) for n in group.nodes), strict=True)))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda _: self.column(next(columns)))
        group.vector = self.made(node.target, args, kwargs, node.meta["val"].new_empty(len(group.nodes)), node)

    def column(self, scalars: tuple[fx.Node, ...]) -> fx.Node:
        """These scalars as a vector."""
        if scalars not in self.stacks:
            group, value = self.group_of.get(scalars[0]), scalars[0].meta["val"].new_empty(len(scalars))
            if group and group.vector and scalars == tuple(group.nodes):
                return group.vector
            self.stacks[scalars] = self.made(
                aten.stack.default, ([self.scalar(n) for n in scalars],), {}, value, scalars[0])
        return self.stacks[scalars]

    def scalar(self, node: fx.Node) -> fx.Node:
        """The same scalar, from the vector of its group if it has one."""
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
        there = getattr(user.meta.get("val"), "device", CPU) if is_elementwise(user) else CPU
        element = self.element(vector, i, there)
        if user.op == "output":     # a result has memory of its own
            return self.made(aten.clone.default, (element,), {}, element.meta["val"], vector)
        return element

    def element(self, vector: fx.Node, i: int, device: torch.device = CPU) -> fx.Node:
        """An element of a vector, on this device."""
        key = vector, i, device
        if key not in self.elements:
            parts = self.parts(vector, device)
            value = parts.meta["val"][i]
            part = self.made(operator.getitem, (parts, i), {}, value, vector)
            self.elements[key] = part if value.dim() == 0 else self.made(
                aten.select.int, (part, 0, 0), {}, value.select(0, 0), vector)
        return self.elements[key]

    def parts(self, vector: fx.Node, device: torch.device) -> fx.Node:
        """All elements of a vector. On a GPU each is a buffer of its own, which ``unbind`` would not give: kernels that
        differ only in the place of their scalar stay equal.
        """
        key = vector, device
        if key not in self.split:
            value = vector.meta["val"].new_empty(len(vector.meta["val"]), device=device)
            if device.type == "cpu":
                self.split[key] = self.made(aten.unbind.int, (vector,), {}, value.unbind(), vector)
            else:       # CUDA has read the memory of the CPU when the copy returns
                how = {"device": device, "non_blocking": True}
                copy = self.made(aten._to_copy.default, (vector,), how, value, vector)
                self.split[key] = self.made(aten.tensor_split.sections, (copy, len(value)), {},
                                            value.tensor_split(len(value)), vector)
        return self.split[key]

    def made(self, target: Any, args: tuple, kwargs: dict[str, Any], value: Any, source: fx.Node) -> fx.Node:
        """A new call with its value; ``source`` says which line of the program it comes from."""
        node = self.graph.call_function(target, args, kwargs)
        node.meta = {"val": value, "stack_trace": source.meta.get("stack_trace")}
        return node


def scalars_of(node: fx.Node) -> list[fx.Node]:
    """The nodes among the arguments, in order; one that is there twice counts twice."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return found
