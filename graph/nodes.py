"""What a node of a graph calls: its name, and a function that a node calls although the program has replaced it."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def name_of(node: fx.Node) -> str:
    """The name of the method or function that a node calls; empty if it has none."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def operator_of(node: fx.Node) -> str:
    """The name of torch's operator that a node of an ATen graph calls; empty if it calls something else."""
    return node.target._schema.name.partition("::")[2] if isinstance(node.target, torch._ops.OpOverload) else ""


OWN_LAYOUT = "own_layout"       # in the metadata of a node


def has_own_layout(node: fx.Node) -> bool:
    """Whether compilers would lay out its result differently in memory than PyTorch does."""
    return bool(node.meta.get(OWN_LAYOUT))


@functools.cache
def bound(function: Callable) -> Callable:
    """A function of this package that calls ``function``. torch.fx writes a function of torch by its name into the text
    of a graph, and the name may belong to a function of the program when the graph runs.
    """
    def original(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    original.__name__ = function.__name__
    return original
