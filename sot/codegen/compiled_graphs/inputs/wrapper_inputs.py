"""Wrapper subclasses in graphs for backends that compile. AOTAutograd computes with their inner tensors.

It does not see that an inner tensor is another input as well, or shares memory with one. That matters only if the
graph changes an input in place: then all these tensors must be apart, at this call and at later ones.
"""
from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from sot.codegen.build_graph import Graph
from sot.guards.assumptions import Part, RestartCapture
from sot.guards.guards import DistinctGuard, Guard
from sot.guards.origin import Attr, Origin
from sot.torch_compat.subclasses.wrappers import inner_tensors, is_wrapper
from sot.torch_compat.tensors import storage_ids
from sot.values.tensor import overrides_operations


def wrappers_of(module: fx.GraphModule) -> list[torch.Tensor]:
    """The fakes of the wrappers among the values of a graph."""
    return [node.meta["example_value"] for node in module.graph.nodes if is_wrapper(node.meta.get("example_value"))]


def override_operations(module: fx.GraphModule) -> bool:
    """Whether torch would call ``__torch_function__`` of a wrapper when the graph runs. Capture has executed it."""
    return any(overrides_operations(type(wrapper)) for wrapper in wrappers_of(module))


def changes_wrappers(graph: Graph) -> bool:
    return bool(graph.changes.inputs or graph.changes.traceless) and any(map(is_wrapper, graph.real))


def refuse_shared_memory(graph: Graph) -> None:
    """Restart the capture without wrappers if a graph changes inputs of which two share memory."""
    if not changes_wrappers(graph):
        return
    seen: set[int] = set()
    for real in graph.real:
        found = storage_ids(real) if isinstance(real, torch.Tensor) else set()
        if seen & found:
            raise RestartCapture.without(
                Part.WRAPPERS, "a change of an input that shares its memory with a wrapper")
        seen |= found


def guards_of_wrappers(graph: Graph) -> Iterator[Guard]:
    """That the inputs and their parts are different objects, if the graph changes some of them."""
    if not changes_wrappers(graph):
        return
    origins = [part for origin, real in zip(graph.inputs, graph.real, strict=True) if isinstance(real, torch.Tensor)
               for part in parts(origin, real)]
    if len(origins) > 1:
        yield DistinctGuard(origins[0], tuple(origins[1:]))


def parts(origin: Origin, real: torch.Tensor) -> Iterator[Origin]:
    if not is_wrapper(real):
        yield origin
        return
    for name, part in inner_tensors(real):
        yield from parts(Attr(origin, name), part)
