"""Arguments that share memory, where a compiled graph changes one of them.

A compiled graph assumes that its inputs share memory as at its compilation. AOTAutograd allows for tensors that do, but
reads their places in memory off the first call, and inductor reorders reads and writes of tensors that overlap. So a
graph whose arguments share memory runs as it is, and guards say how they share it.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch

from sot.codegen.build_graph import Graph
from sot.guards.guards import Guard
from sot.guards.origin import Arg, CellContents, Global, Item, Origin
from sot.guards.tensor_guards import MemoryGuard
from sot.torch_compat.subclasses.wrappers import is_wrapper
from sot.torch_compat.tensors import shared_memory


def is_argument(origin: Origin) -> bool:
    """Whether it is an argument or variable, or an item of one. What objects and modules hold stays between calls."""
    while isinstance(origin, Item) and not origin.label:
        origin = origin.base
    return isinstance(origin, Arg | CellContents | Global)


def arguments_of(graph: Graph) -> tuple[int, dict[Origin, torch.Tensor]]:
    """The tensors among the arguments: first those that the graph changes, then the others; and the number of the
    first.
    """
    found = {origin: real for origin, real in zip(graph.inputs, graph.real, strict=True)
             if isinstance(real, torch.Tensor) and real.layout is torch.strided and not is_wrapper(real)
             and is_argument(origin)}
    changed = {origin: real for origin, real in found.items() if origin in graph.changes.inputs}
    return len(changed), changed | found


def share_memory(graph: Graph) -> bool:
    """Whether an argument shares memory with one that the graph changes."""
    count, tensors = arguments_of(graph)
    return count > 0 and any(shared_memory(count, *tensors.values()))


def guards_of_memory(graph: Graph) -> Iterator[Guard]:
    """That arguments share memory with those that the graph changes as at the captured call."""
    count, tensors = arguments_of(graph)
    if count > 0 and len(tensors) > 1:
        first, *others = tensors
        yield MemoryGuard(first, tuple(others), count, shared_memory(count, *tensors.values()))


def is_plain(fake: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(fake, torch.Tensor) and fake.layout is torch.strided and not is_wrapper(fake)
