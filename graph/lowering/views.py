"""Operators that only rearrange elements: their results are views of the argument's buffer."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.graph.kernels.program import View, views
from sot.graph.lowering.symbols import Like

VIEWS = frozenset((
    "view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "unsqueeze", "squeeze", "slice",
    "select", "as_strided", "diagonal", "unfold", "alias", "detach", "split", "split_with_sizes", "unbind", "chunk",
    "view_as", "expand_as", "swapaxes", "movedim", "narrow", "lift_fresh", "_reshape_alias", "mT", "numpy_T",
))


def view_of(node: fx.Node, resolve: Callable[[Any], Any]) -> Any:
    """The view that a node is, or a list of them; None if the operator copies.

    Arguments:
        resolve: replaces nodes by their values.
    """
    value: Any = node.meta["val"]
    results = value if isinstance(value, list | tuple) else [value]
    return recorded(node, resolve) if all(isinstance(v, Like) for v in results) else computed(node, resolve)


def computed(node: fx.Node, resolve: Callable[[Any], Any]) -> Any:
    """Let torch compute the sizes and strides of the result, on a tensor without memory."""
    def bare(value: Any) -> Any:
        if not isinstance(value, View):
            return value
        meta = torch.empty(0, dtype=value.dtype, device="meta")
        return meta.as_strided(value.shape, value.strides, value.offset)
    source = next(views(resolve(node.args)))
    args, kwargs = fx.node.map_aggregate((resolve(node.args), resolve(node.kwargs)), bare)
    try:
        result: Any = node.target(*args, **kwargs)  # type: ignore[operator]
    except RuntimeError:
        return None

    def of_source(value: torch.Tensor) -> View:
        return View(source.buffer, tuple(value.shape), tuple(value.stride()), int(value.storage_offset()),
                    source.dtype, source.device)
    if not isinstance(result, torch.Tensor):
        return [of_source(r) for r in result]
    return of_source(result) if result._is_view() or result is args[0] else None      # ``reshape`` sometimes copies


def recorded(node: fx.Node, resolve: Callable[[Any], Any]) -> Any:
    """The same from what is recorded about the node. Sizes that vary cannot be given to torch."""
    given = next(n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta["val"], Like))
    source = next(views(resolve(node.args)))
    value: Any = node.meta["val"]
    results = [value] if isinstance(value, Like) else list(value)
    if any(r.memory != given.memory for r in results) or given.strides != source.strides:
        return None
    found = [View(source.buffer, r.shape, r.strides, source.offset + r.offset - given.offset, source.dtype,
                  source.device) for r in results]
    return found[0] if isinstance(value, Like) else found
