"""Stores for torch.export: at a position that is a number of the graph (``cache[:, position] = x``, and
``cache[:, position:position + n] = x``), and by way of ``.data``, for which torch.export knows ``detach``.

``Tensor.__setitem__`` takes no symbols within a tuple. A store along one dimension becomes ``index_copy_``. Another
becomes a store in the view that ``Tensor.__getitem__`` gives; torch has no gradient of that one with symbols.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx


def with_views(module: fx.GraphModule) -> fx.GraphModule:
    """The graph, with such stores written as copies. Changes the module."""
    for node in module.graph.find_nodes(op="call_function", target=getattr):
        if node.args[1] == "data":
            node.target, node.args = torch.detach, node.args[:1]
    for node in module.graph.find_nodes(op="call_function", target=operator.setitem):
        tensor, key, value = node.args
        from_number = range_from_number(tensor, key, value)
        if from_number is None and (not is_at_number(key) or not fits(tensor, key, value)):
            continue
        first = node.prev
        with module.graph.inserting_before(node):
            if from_number is not None:
                store_range(module.graph, tensor, key, value, from_number)
            else:
                store(module.graph, tensor, key, value)
        new = first.next
        while new is not node:
            new.meta["stack_trace"], new = node.meta.get("stack_trace"), new.next
        module.graph.erase_node(node)
    module.recompile()
    return module


def store(graph: fx.Graph, tensor: fx.Node, key: tuple, value: Any) -> None:
    """Write the nodes of a store."""
    dim = only_dimension(tensor, key)
    if dim is None or not is_tensor(value):
        view = graph.call_function(operator.getitem, (tensor, key))
        graph.call_method("copy_" if is_tensor(value) else "fill_", (view, value))
        return
    number, example = next(part for part in key if isinstance(part, fx.Node)), tensor.meta["example_value"]
    at = graph.call_function(torch.full, ((1,), number), {"dtype": torch.int64, "device": example.device})
    size = graph.call_method("size", (tensor, dim))
    before = graph.call_function(torch.lt, (at, 0))     # a position from the end
    at = graph.call_function(torch.where, (before, graph.call_function(torch.add, (at, size)), at))
    place = graph.call_function(torch.select, (tensor, dim, 0))
    given = graph.call_method("to", (graph.call_method("expand_as", (value, place)), example.dtype))
    graph.call_method("index_copy_", (tensor, dim, at, graph.call_method("unsqueeze", (given, dim))))


def range_from_number(tensor: fx.Node, key: Any, value: Any) -> int | None:
    """The dimension along which a key is a range that starts at a number of the graph; None for other stores. The
    rest of the key are ranges, and the value has a size for each dimension.
    """
    if not isinstance(key, tuple) or not all(isinstance(part, slice) and part.step is None for part in key):
        return None
    dims = [i for i, part in enumerate(key) if isinstance(part.start, fx.Node) and isinstance(part.stop, fx.Node)]
    whole = is_tensor(value) and value.meta["example_value"].dim() == tensor.meta["example_value"].dim()
    return dims[0] if len(dims) == 1 and whole else None


def store_range(graph: fx.Graph, tensor: fx.Node, key: tuple, value: fx.Node, dim: int) -> None:
    """Write the nodes of a store at a range. It is as long as the value, and inside of the tensor."""
    example, part = tensor.meta["example_value"], key[dim]
    size = graph.call_method("size", (value, dim))
    length = graph.call_function(operator.sub, (part.stop, part.start))
    graph.call_function(torch._check, (graph.call_function(operator.eq, (length, size)),))
    graph.call_function(torch._check, (graph.call_function(operator.ge, (part.start, 0)),))
    at = graph.call_function(torch.arange, (size,), {"device": example.device})
    at = graph.call_function(torch.add, (at, part.start))
    place = graph.call_function(operator.getitem, (tensor, (*key[:dim], slice(None), *key[dim + 1:])))
    sizes = [-1 if i == dim else graph.call_method("size", (place, i)) for i in range(example.dim())]
    given = graph.call_method("to", (graph.call_method("expand", (value, *sizes)), example.dtype))
    graph.call_method("index_copy_", (place, dim, at, given))


def only_dimension(tensor: fx.Node, key: tuple) -> int | None:
    """The dimension of the number, if all others are stored to as a whole."""
    if any(part not in (slice(None), Ellipsis) for part in key if not isinstance(part, fx.Node)):
        return None
    numbers = [i for i, part in enumerate(key) if isinstance(part, fx.Node)]
    after_ellipsis = Ellipsis in key[:numbers[0]]
    dim = tensor.meta["example_value"].dim() - (len(key) - numbers[0]) if after_ellipsis else numbers[0]
    return dim if len(numbers) == 1 else None


def is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("example_value"), torch.Tensor)


def is_at_number(key: Any) -> bool:
    """Whether it is a tuple of numbers, of which the graph computes one, slices, None and Ellipsis."""
    return isinstance(key, tuple) and any(isinstance(part, fx.Node) for part in key) and not any(
        is_tensor(part) or isinstance(part, (list, tuple, bool)) for part in key)


def fits(tensor: Any, key: tuple, value: Any) -> bool:
    """Whether the value has no more dimensions than the place: a store drops further ones of size 1."""
    if not is_tensor(value):
        return True
    numbers = sum(isinstance(part, (int, fx.Node)) for part in key) - sum(part is None for part in key)
    return bool(value.meta["example_value"].dim() <= tensor.meta["example_value"].dim() - numbers)
