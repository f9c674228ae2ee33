"""Marks of functions and tensors for torch.compile, which capture obeys as well.

torch keeps these as attributes of the object, or as a set of ids in torch._dynamo, which a program that has marked
something has imported.
"""
from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import torch


def is_constant(function: Any) -> bool:
    """torch.compiler.assume_constant_result: whether it is called once and its result is kept."""
    return getattr(function, "_dynamo_marked_constant", False) is True


def is_allowed(function: Any) -> bool:
    """torch.compiler.allow_in_graph: whether a call of it is one operation that is not inlined."""
    return is_in(function, "_allowed_callable_ids") and not is_in(function, "_leaf_function_ids") and not is_in(
        function, "_nonstrict_trace_callable_ids")


def is_disallowed(function: Any) -> bool:
    """torch._dynamo.graph_break and disallow_in_graph: whether Python calls it between two graphs."""
    return is_in(function, "_disallowed_callable_ids")


def fixes_dimension(function: Any) -> bool:
    """torch._dynamo.mark_static."""
    return function.__name__ == "mark_static" and function.__module__ == "torch._dynamo.decorators"


def disables_all(code: CodeType) -> bool:
    """Whether it is the wrapper of torch.compiler.disable, below which nothing is compiled."""
    return code.co_qualname == "DisableContext.__call__.<locals>._fn"


def disabled_code(function: Any) -> CodeType | None:
    """The function of torch.compiler.disable(recursive=False), behind its wrapper. Its callees are still compiled."""
    if getattr(function, "_torchdynamo_disable_recursive", None) is not False and (
            "_torchdynamo_orig_callable" in vars(function)):
        return None
    return getattr(getattr(function, "_torchdynamo_orig_callable", function), "__code__", None)


def is_in(function: Any, table: str) -> bool:
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    ids: Any = getattr(getattr(rules, table, None), "function_ids", None)
    return id(function) in (ids or ())


def dynamic_dims(tensor: torch.Tensor) -> frozenset[int]:
    """torch._dynamo.mark_dynamic, maybe_mark_dynamic and mark_unbacked: the dimensions that differ."""
    return dims(tensor, "_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices",
                "_dynamo_strict_unbacked_indices")


def dynamic_ranges(tensor: torch.Tensor) -> dict[int, tuple[int, int | None]]:
    """The least and the greatest size of dimensions that torch._dynamo.mark_dynamic has been given, if the tensor's
    sizes are in between.
    """
    found = {}
    for marked in vars(tensor).get("_dynamo_dynamic_range", ()):
        size, least, most = tensor.shape[marked.dim], max(marked.min or 2, 2), marked.max
        if (least > 2 or most is not None) and least != most and least <= size and (most is None or size <= most):
            found[marked.dim % tensor.dim()] = least, most
    return found


def static_dims(tensor: torch.Tensor) -> frozenset[int]:
    """torch._dynamo.mark_static: the dimensions that are captured anew for each size."""
    return dims(tensor, "_dynamo_static_indices")


def dims(tensor: torch.Tensor, *names: str) -> frozenset[int]:
    attributes = vars(tensor)
    found = {dim % tensor.dim() for name in names for dim in attributes.get(name, ()) if tensor.dim()}
    return frozenset(found)
