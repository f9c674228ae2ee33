"""Draws whose numbers are known: of a generator that the graph makes, or of the default one after a known seed.

``random_split(rows, [8, 2], generator=torch.Generator().manual_seed(0))`` draws the same numbers in each call. Where a
program reads such numbers, capture draws them as the graph will.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph.generator_nodes import (
    NODES,
    new_generator,
    seed_all,
    seed_all_anew,
    seed_generator,
    seed_generator_anew,
    seed_gpus,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import fx

    from sot.interpreter.machine import Machine

OF_NO_GENERATOR = (seed_all, seed_all_anew, seed_gpus)
ANEW = seed_all_anew, seed_generator_anew


def needed_for(m: Machine, node: fx.Node) -> list[fx.Node] | None:
    """The earlier nodes that have set the state from which a node draws; None if that state is not known."""
    if node.target in ANEW or not is_on_cpu(node):
        return None
    if node.target in (new_generator, seed_generator, seed_all):
        return []
    earlier = m.builder.nodes[:m.builder.nodes.index(node)]
    made = [operand for operand in node.all_input_nodes if operand.target is new_generator]
    if not made:
        return of_default_generator(m, earlier)
    return [each for each in earlier if any(operand in made for operand in each.all_input_nodes)]


def of_default_generator(m: Machine, earlier: list[fx.Node]) -> list[fx.Node] | None:
    if any(isinstance(ref.real, torch.Generator) for ref in m.builder.inputs):
        return None     # it may be the default one
    last = max((i for i, each in enumerate(earlier) if each.target in (seed_all, seed_all_anew)), default=None)
    if last is None or earlier[last].target is seed_all_anew:
        return None
    return [each for each in earlier[last:] if draws(each)]


def draws(node: fx.Node) -> bool:
    """Whether it draws from the default generator, or seeds it."""
    return node.target in OF_NO_GENERATOR or bool(node.meta.get("draws")) and node.target not in NODES and not any(
        operand.target is new_generator for operand in node.all_input_nodes)


def is_on_cpu(node: fx.Node) -> bool:
    return all(fake.device.type == "cpu" for fake in tensors_of(node))


def tensors_of(node: fx.Node) -> Iterator[torch.Tensor]:
    result: Any = node.meta.get("example_value")
    yield from (each for each in (result if isinstance(result, (tuple, list)) else (result,))
                if isinstance(each, torch.Tensor))


def is_exact(node: fx.Node) -> bool:
    """Whether its numbers do not depend on how a kernel computes: sums of floats depend on the number of threads."""
    return bool(node.meta.get("draws")) or not any(
        fake.is_floating_point() or fake.is_complex() for fake in tensors_of(node))
