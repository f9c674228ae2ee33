"""The nodes that autograd records: the history of a tensor, and whether its saved tensors have been freed."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

FREED = "backward through the graph a second time"      # of the error when a freed tensor is used


def history(outputs: list[torch.Tensor], end: Any = None) -> Iterator[tuple[torch.Tensor | None, Any]]:
    """The autograd nodes in the history of tensors, up to the node ``end``, each with its leaf if it has one."""
    outputs = [t for t in outputs if not refused(t)]
    yield from ((t, None) for t in outputs if t.grad_fn is None and t.requires_grad)
    todo: list[Any] = [t.grad_fn for t in outputs]
    seen = {None, end}
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            yield getattr(node, "variable", None), node
            todo += [n for n, _ in node.next_functions]


def refused(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses to return the history of a tensor: of some views whose base was changed in place."""
    try:
        tensor.grad_fn  # noqa: B018 - it may raise
    except RuntimeError:
        return True
    return False


def is_freed(node: Any) -> bool:
    """Whether a backward pass has freed the saved tensors of this node. A second backward pass then raises."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                return FREED in str(error)
    return False


def saves_tensors(node: Any) -> bool:
    """Whether this node has saved tensors. A backward pass frees them."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return True
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:    # they have been freed
                return True
            if any(isinstance(v, torch.Tensor) for v in (value if isinstance(value, (tuple, list)) else (value,))):
                return True
    return False


def spent_leaves(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """The leaves below a tensor through which no second backward pass can go; None if one can."""
    if tensor.grad_fn is None:
        return None
    found = [*history([tensor])]
    if not any(is_freed(node) for _, node in found):
        return None
    return [leaf for leaf, _ in found if leaf is not None]
