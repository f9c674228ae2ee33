"""Lets products be stored where a concatenation needs them, so that nothing is copied.

The library's products have a variant that stores into given memory. If each part of a concatenation is a product that
nothing else reads, the result is allocated first, and each product is stored into its part of it.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from sot.graph.kernels.program import Extern, View
from sot.graph.lowering.driver import Lowering
from sot.graph.lowering.views import VIEWS
from sot.graph.nodes import operator_of

aten = torch.ops.aten
INTO = {aten.mm.default: aten.mm.out, aten.addmm.default: aten.addmm.out, aten.bmm.default: aten.bmm.out,
        aten.baddbmm.default: aten.baddbmm.out}


def assembled(low: Lowering, node: fx.Node, parts: Sequence[View], dim: int) -> View | None:
    """The concatenation of products, each stored where it belongs; None if a part is something else."""
    nodes: Any = node.args[0]
    makers = [i for part in parts if (i := maker_of(low, part)) is not None]
    if not len(set(nodes)) == len(nodes) == len(parts) == len(makers) or not all(map(is_read_once, nodes)):
        return None
    value = node.meta["val"]
    result = low.buffer(node.name, value).view()
    places, start = [], 0
    for part in parts:
        buffer = low.program.buffers[part.buffer]
        place = laid_into(part, buffer.shape, buffer.strides, result, start * result.strides[dim])
        if place is None or part.dtype != value.dtype or part.device != value.device:
            del low.program.buffers[node.name]
            return None
        places.append(place)
        start += part.shape[dim]
    how = {"dtype": value.dtype, "device": value.device}
    memory = Extern(aten.empty_strided.default, (list(result.shape), list(result.strides)), how, (node.name,), False)
    low.program.steps.insert(min(makers), memory)
    for i, place in zip(makers, places, strict=True):
        step: Any = low.program.steps[i + 1]
        del low.program.buffers[step.outputs[0]]
        low.program.steps[i + 1] = dataclasses.replace(
            step, target=INTO[step.target], kwargs={**step.kwargs, "out": place}, outputs=(node.name,))
    return result


def maker_of(low: Lowering, part: View) -> int | None:
    """The number of the step that makes a part, if that is a product."""
    return next((i for i, step in enumerate(low.program.steps) if isinstance(step, Extern)
                 and part.buffer in step.outputs and step.target in INTO), None)


def is_read_once(node: fx.Node) -> bool:
    """Whether only the concatenation reads a value, and what the value is a view of."""
    while len(node.users) == 1 and operator_of(node) in VIEWS:
        node = node.all_input_nodes[0]
    return len(node.users) == 1


def laid_into(part: View, shape: Sequence[Any], strides: Sequence[Any], result: View, offset: Any) -> View | None:
    """Where a part is in the result, as a tensor of the shape that the product has; None if the part is another view of
    the product than one with further axes of one element.
    """
    own = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    seen = [(n, s, there) for n, s, there in zip(part.shape, part.strides, result.strides, strict=True) if n != 1]
    if part.offset != 0 or [(n, s) for n, s, _ in seen] != own:
        return None
    waiting = iter([there for *_, there in seen])
    placed = [next(waiting) if n != 1 else None for n in shape]
    inner = placed[-1]
    if inner not in (1, None):
        return None     # the library would store a copy, and copy that
    largest = max((s * n for s, n in zip(placed, shape, strict=True) if s), default=1)
    known = [largest if s is None else s for s in placed]
    return View(result.buffer, tuple(shape), tuple(known), offset, result.dtype, result.device)
