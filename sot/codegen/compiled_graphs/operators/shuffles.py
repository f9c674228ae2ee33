"""Random permutations. Inductor of torch 2.13 has a pattern for ``x[torch.randperm(n)]`` that it fails to replace, and
raises. A backend gets an operator that draws as PyTorch does, in which no pattern looks.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from sot.torch_compat.graphs import lets_go_of_source

KNOWN = frozenset(("dtype", "device"))


def call_permutations(module: fx.GraphModule) -> None:
    """Let a graph call the operator for each permutation that it draws from the default generator."""
    found = [node for node in module.graph.find_nodes(op="call_function", target=torch.randperm)
             if len(node.args) == 1 and node.kwargs.keys() <= KNOWN]
    for node in found:
        node.target = permutation
    if found:
        module.recompile()
        lets_go_of_source(module)


def permutation(n: int, dtype: torch.dtype = torch.int64, device: Any = None) -> Tensor:
    # a tensor of its own makes each draw a different node, so that no pass takes two of them for one
    return operator()(torch.empty(0, device=device), n, dtype)


@functools.cache
def operator() -> Callable[..., Tensor]:
    """The operator, which draws on the device of its first argument."""
    def draw(own: Tensor, n: int, dtype: torch.dtype) -> Tensor:
        return torch.randperm(n, dtype=dtype, device=own.device)

    made = torch.library.custom_op("sot::permutation", draw, mutates_args=(),
                                   schema="(Tensor own, SymInt n, ScalarType dtype) -> Tensor",
                                   tags=(torch.Tag.nondeterministic_seeded,))
    made.register_fake(lambda own, n, dtype: own.new_empty(n, dtype=dtype))
    return made._opoverload
