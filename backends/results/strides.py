"""Gives results of a compiled graph the strides that they have in the program.

Inductor keeps the strides of the graph that it lowers, after its own passes. One of them makes ``x.repeat`` of
``torch.cat([x, x])``, whose result is contiguous also where ``x`` is in channels_last.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from sot.backends.results.distinct import memory, memory_of_results
from sot.torch_compat.dynamo.inputs import placeholder_values

Run = Callable[..., Any]
Layout = tuple[tuple[int, ...], tuple[int, ...]]


def with_plain_strides(compiled: Run, gm: GraphModule) -> Run:
    """``compiled``, which copies results that have other strides than those of ``gm``. Its first run shows which ones
    do.
    """
    expected = dict(layouts_of_results(gm))
    if not expected:
        return compiled
    different: list[int] | None = None

    def run(*inputs: Any) -> Any:
        nonlocal different
        results = compiled(*inputs)
        if not isinstance(results, (tuple, list)):
            return results      # refused later
        if different is None:
            different = [i for i, layout in expected.items() if not has_layout(results[i], *layout)]
        return with_layouts(results, different, expected) if different else results
    return run


def layouts_of_results(gm: GraphModule) -> Iterator[tuple[int, Layout]]:
    """The sizes and strides of dense results that share their memory with no other one, and with no input."""
    (output,) = gm.graph.find_nodes(op="output")
    places = memory_of_results(gm)
    given = {memory(value) for value in placeholder_values(gm)}
    for i, place in enumerate(places):
        node = output.args[0][i]
        if place is None or places.count(place) > 1 or place in given or not isinstance(node, Node):
            continue
        fake = node.meta["example_value"]
        shape, strides = tuple(fake.shape), fake.stride()
        if all(type(number) is int for number in (*shape, *strides)) and is_dense(shape, strides):
            yield i, (shape, strides)


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether there are as many elements as places from the first one to the last one, each in its own place."""
    after = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != after:
            return False
        after *= size
    return after > 0


def has_layout(result: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return not isinstance(result, torch.Tensor) or result.shape != shape or all(
        mine == stride for size, mine, stride in zip(shape, result.stride(), strides, strict=True) if size > 1)


def with_layouts(results: Sequence[Any], which: Sequence[int], layouts: dict[int, Layout]) -> tuple[Any, ...]:
    made = [*results]
    for i in which:
        before = made[i]
        made[i] = torch.empty_strided(*layouts[i], dtype=before.dtype, device=before.device).copy_(before)
    return tuple(made)
