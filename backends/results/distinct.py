"""Keeps results of a compiled graph apart that do not share memory in the program.

Inductor removes a copy if it has the same metadata as its source, although both may be results: ``a.clone()`` twice is
one buffer. In the program, a later change of one result in place would then change the other one, too. Views of inputs
are left alone: inputs may share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from sot.torch_compat.subclasses.wrappers import is_wrapper

Run = Callable[..., Any]


def with_distinct_results(compiled: Run, gm: GraphModule) -> Run:
    """``compiled``, which copies results that share memory without need. Its first run shows which ones do.

    Arguments:
        gm: the graph that was compiled. Its nodes have ``example_value``.
    """
    expected = memory_of_results(gm)
    given = {memory(node.meta.get("example_value")) for node in gm.graph.find_nodes(op="placeholder")}
    if sum(memory is not None for memory in expected) < 2:
        return compiled
    copies: list[int] | None = None

    def run(*inputs: Any) -> Any:
        nonlocal copies
        results = compiled(*inputs)
        if copies is None:
            copies = [i for i in shared_without_need(results, expected) if expected[i] not in given]
        if not copies:
            return results
        results = [*results]
        for i in copies:
            results[i] = results[i].clone()
        return tuple(results)
    return run


def memory_of_results(gm: GraphModule) -> list[int | None]:
    """The storage of each result in the program; None for what is no tensor with elements."""
    (output,) = gm.graph.find_nodes(op="output")
    nodes = output.args[0] if isinstance(output.args[0], (tuple, list)) else ()
    return [memory(node.meta.get("example_value")) if isinstance(node, Node) else None for node in nodes]


def memory(value: Any) -> int | None:
    return value.untyped_storage()._cdata if is_strided(value) else None


def is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not is_wrapper(value)


def shared_without_need(results: Sequence[Any], expected: Sequence[int | None]) -> list[int]:
    """The indices of the results that share memory with an earlier one, although the program's do not."""
    found: list[int] = []
    owners: dict[int, list[int | None]] = {}
    for i, (result, of_program) in enumerate(zip(results, expected, strict=True)):
        address = result.untyped_storage().data_ptr() if of_program is not None and is_strided(result) else 0
        if not address:     # no elements, or none that are known
            continue
        owner = owners.setdefault(address, [])
        if owner and of_program not in owner:
            found.append(i)
        owner.append(of_program)
    return found
