"""Values of a captured graph that depend only on constants: masks, positions."""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from sot.graph.rewrite.patterns import fake_of, may_change

LARGEST = 1 << 22       # elements of a value that is computed during compilation


def known_value(value: Any) -> torch.Tensor | None:
    """The tensor that a node returns in every call, on the CPU; None if that is not known."""
    if not isinstance(value, fx.Node) or not isinstance(fake_of(value), torch.Tensor):
        return None
    cone = computed_from_constants(value)
    if cone is None:
        return None
    try:
        with torch.no_grad():
            return evaluated(cone)
    except Exception:
        return None     # the operation raises, and will raise in Python when it runs


def computed_from_constants(last: fx.Node) -> list[fx.Node] | None:
    """The nodes that lead to this one, in order; None if there is an input, a mutation or a random operation among
    them.
    """
    found: dict[fx.Node, None] = {}
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        if node.op not in ("call_function", "call_method") or node.meta.get("draws") or changed(node) or is_large(node):
            return None
        found[node] = None
        waiting += node.all_input_nodes
    return [node for node in last.graph.nodes if node in found]


def changed(node: fx.Node) -> bool:
    return may_change(node) or any(map(may_change, node.users))


def is_large(node: fx.Node) -> bool:
    fake = fake_of(node)
    return isinstance(fake, torch.Tensor) and (
        fake.requires_grad or not isinstance(fake.numel(), int) or fake.numel() > LARGEST)


def evaluated(cone: list[fx.Node]) -> torch.Tensor:
    values: dict[fx.Node, Any] = {}
    for node in cone:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        kwargs = {k: "cpu" if k == "device" and v is not None else v for k, v in kwargs.items()}
        if node.op == "call_method":
            values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            values[node] = node.target(*args, **kwargs)     # type: ignore[operator]
    return values[cone[-1]].cpu()
