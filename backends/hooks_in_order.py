"""Hooks of leaves in autograd's order, for compiled graphs.

A compiled graph is one node of autograd: all its gradients arrive at once, and autograd would call the hooks of the
leaves in an order of its own, also those of leaves that get none. So where leaves have hooks, the graph gets an alias
of each leaf. Autograd goes first through the alias that was made last, so aliases made from the last leaf to the first
have their hooks called in order.
"""
from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from sot.backends.gradients import results_of
from sot.backends.results.distinct import is_strided
from sot.torch_compat.autograd_nodes import (
    any_has_hooks,
    edge_of,
    edge_to,
    node_above,
    number_of,
    passing_on,
    refused,
)
from sot.torch_compat.dynamo.inputs import placeholder_values

BACKENDS = logging.getLogger("sot.backends")
FIRST = float("inf")    # autograd adds to a leaf before it calls any node

Run = Callable[..., Any]
Edge = tuple[Any, int]


def with_hooks_in_order(compiled: Run, gm: GraphModule) -> Run:
    """``compiled``, with which hooks of leaves are called in the order that ``gm`` has. Its nodes have
    ``example_value``.
    """
    fakes, places = placeholder_values(gm), leaves_of(gm)
    leaves = tuple(i for same in places.values() for i in same)
    results = [*results_of(gm).values()] if len(places) > 1 else []
    if not results or not all(is_strided(fakes[i]) for i in leaves):
        return compiled
    backward = Backward(results, places)
    order = [places[edge] for edge in backward.order(backward.tops)]
    unused = {i for i in leaves if not any(i in same for same in order)}
    varies = any(fakes[i]._version for i in leaves) or backward.depends_on_results()

    def run(*inputs: Any) -> Any:
        if not any_has_hooks(inputs, leaves):
            return compiled(*inputs)
        if varies:
            BACKENDS.debug("a graph runs as it is: which hooks are called, or in which order, depends on the results "
                           "that have gradients")
            return gm(*inputs)
        given = [value.detach() if i in unused else value for i, value in enumerate(inputs)]
        for same in reversed(order):
            alias = passing_on(inputs[same[0]])
            for i in same:
                given[i] = alias
        return compiled(*given)
    return run


def without_hooks(compiled: Run, gm: GraphModule) -> Run:
    """``compiled``, but ``gm`` where leaves have hooks: for parts in another order than the program's."""
    leaves = tuple(i for same in leaves_of(gm).values() for i in same)

    def run(*inputs: Any) -> Any:
        return gm(*inputs) if any_has_hooks(inputs, leaves) else compiled(*inputs)
    return run


def leaves_of(gm: GraphModule) -> dict[Edge, list[int]]:
    """The inputs that are leaves: those that are the same one together."""
    found: dict[Edge, list[int]] = defaultdict(list)
    for i, fake in enumerate(placeholder_values(gm)):
        if isinstance(fake, torch.Tensor) and fake.requires_grad and not refused(fake) and fake.grad_fn is None:
            found[edge_of(fake)].append(i)
    return found


class Backward:
    """The order in which autograd goes backward: of the nodes that are ready, it calls the one that was made last. A
    leaf is ready when its last gradient is there.
    """

    def __init__(self, results: Sequence[torch.Tensor], leaves: Mapping[Edge, Any]) -> None:
        self.leaves = leaves
        self.tops = [*dict.fromkeys(node_above(result) for result in results)]
        self.edges: dict[Any, list[Edge]] = {}
        todo = [*self.tops]
        while todo:
            node = todo.pop()
            if node not in self.edges:
                self.edges[node] = [edge_to(*edge) for edge in node.next_functions if edge[0] is not None]
                todo += [below for below, _ in self.edges[node] if not isinstance(below, int)]

    def order(self, tops: Sequence[Any]) -> list[Edge]:
        """The leaves in the order in which they get their gradients, if the results get theirs in this order."""
        waiting = Counter(below if not isinstance(below, int) else (below, number)
                          for edges in self.edges.values() for below, number in edges)
        ready, found = Queue(), list[Edge]()
        for node in tops:
            if not waiting[node]:
                ready.push(number_of(node), node)
        while ready.heap:
            node = ready.pop()
            if isinstance(node, tuple):
                found.append(node)
                continue
            for below, number in self.edges[node]:
                key = (below, number) if isinstance(below, int) else below
                waiting[key] -= 1
                if not waiting[key]:
                    ready.push(FIRST if isinstance(below, int) else number_of(below), key)
        return [edge for edge in found if edge in self.leaves]

    def depends_on_results(self) -> bool:
        """Whether leaves get their last gradients from other nodes, or get none, if only some of the results have one.
        """
        first, *others = map(self.last_users, self.tops)
        return any(other != first for other in others) or self.order(self.tops) != self.order(self.tops[::-1])

    def last_users(self, top: Any) -> dict[Edge, Any]:
        """The nodes from which leaves get their last gradients if only this result has one."""
        found: dict[Edge, Any] = {}
        todo, seen = [top], {top}
        while todo:
            node = todo.pop()
            for edge in self.edges[node]:
                if edge in self.leaves and (edge not in found or number_of(node) < number_of(found[edge])):
                    found[edge] = node
                elif not isinstance(edge[0], int) and edge[0] not in seen:
                    seen.add(edge[0])
                    todo.append(edge[0])
        return found


class Queue:
    """``std::priority_queue`` of libstdc++, which also decides between nodes that are equally urgent."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, Any]] = []

    def push(self, urgency: float, node: Any) -> None:
        self.heap.append((urgency, node))
        self.lift(len(self.heap) - 1)

    def lift(self, i: int) -> None:
        item = self.heap[i]
        while i and self.heap[(i - 1) // 2][0] < item[0]:
            self.heap[i] = self.heap[(i - 1) // 2]
            i = (i - 1) // 2
        self.heap[i] = item

    def pop(self) -> Any:
        (_, top), last = self.heap[0], self.heap.pop()
        if not self.heap:
            return top
        hole, size = 0, len(self.heap)
        while 2 * hole + 1 < size:
            child = 2 * hole + 2
            if child == size or self.heap[child][0] < self.heap[child - 1][0]:
                child -= 1
            self.heap[hole] = self.heap[child]
            hole = child
        self.heap[hole] = last
        self.lift(hole)
        return top
