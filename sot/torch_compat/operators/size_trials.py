"""Kernels are tried with small tensors of sizes other than those of the captured call.

Rules for fakes do not tell that a kernel refuses an empty tensor, or an index beyond a size. A size that varies is
guarded not to be zero then. One that depends on data has no guard, so the kernel may raise when the graph runs.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from sot.torch_compat.data_symbols import is_possible, is_same, may_be_zero, value_for
from sot.torch_compat.operators import trials
from sot.torch_compat.subclasses.wrappers import is_ragged
from sot.torch_compat.symbolic_shapes import example_of

VALUES, OF_DATA = (0, 1, 2, 3), 2       # for all symbols of data at once; the one for other symbols to vary
MOST = 1 << 22      # elements of a trial
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
TAKEN = (torch.Tensor, *SYMBOLIC, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout,
         torch.memory_format)
_refused: dict[tuple, bool] = {}


def refuses_sizes(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any], env: Any,
                  indexed: Sequence[Any] = ()) -> bool:
    """Whether a function of torch raises for an empty tensor of the captured call, or for some sizes or numbers that
    depend on data.

    Arguments:
        env: torch's symbols, and what is known of them.
    """
    values = tree_leaves((args, kwargs))
    if not all(isinstance(v, TAKEN) and not is_ragged(v) and getattr(v, "layout", torch.strided) is torch.strided
               for v in values):
        return False
    sizes: list[Any] = [n for v in values if isinstance(v, torch.Tensor) for n in v.shape]
    symbolic = [n for n in (*sizes, *values) if isinstance(n, SYMBOLIC)]

    def as_captured(n: Any) -> Any:
        return n if not isinstance(n, SYMBOLIC) else value_for(n, OF_DATA, env) if is_of_data(n) else example_of(n)

    def refuses(number: Callable[[Any], Any]) -> bool:
        return _refuses(function, args, kwargs, values, number)

    if any(as_captured(n) == 0 for n in sizes) and refuses(as_captured):
        return True
    varying = {n.node.expr: n for n in sizes if isinstance(n, SYMBOLIC) and not is_of_data(n)}
    for size in varying.values():
        if may_be_zero(size) and refuses(lambda n: 0 if is_same(n, size) else as_captured(n)):    # noqa: B023
            bool(size != 0)     # which guards it
    return any(map(is_of_data, symbolic)) and any(
        refuses(lambda n: value_for(n, value, env)) for value in VALUES     # noqa: B023
        if is_possible(symbolic, value, env) and all(value_for(size, value, env) for size in indexed))


def kernel_refuses_sizes(kernel: Any, args: tuple, kwargs: dict[str, Any], indexed: Sequence[Any], env: Any) -> bool:
    """``refuses_sizes`` for a kernel. Those of other libraries may do more than compute, so they are not tried.

    Arguments:
        indexed: sizes for which indices are checked otherwise.
    """
    return _may_vary(args) and kernel.namespace == "aten" and not any(
        part in kernel._opname for part in trials.UNTRIED) and refuses_sizes(kernel, args, kwargs, env, indexed)


def _may_vary(values: Sequence[Any]) -> bool:
    """Whether there is an empty tensor, or a symbolic number or size. This is asked for each operation."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value._has_symbolic_sizes_strides or not value.numel():
                return True
        elif isinstance(value, SYMBOLIC) or isinstance(value, (list, tuple)) and _may_vary(value):
            return True
    return False


def is_of_data(number: Any) -> bool:
    return example_of(number) is None


def _refuses(function: Any, args: tuple, kwargs: dict[str, Any], values: list[Any], number: Callable[[Any], Any]
             ) -> bool:
    """Whether it raises for these numbers in place of the symbolic ones, for tensors of ones and of zeros."""
    shapes = [tuple(map(number, v.shape)) for v in values if isinstance(v, torch.Tensor)]
    if any(n < 0 for shape in shapes for n in shape) or sum(map(math.prod, shapes)) > MOST:
        return False
    key = (function, *shapes, *[v.dtype if isinstance(v, torch.Tensor) else repr(number(v)) for v in values], *kwargs)
    if key not in _refused:
        _refused[key] = all(trials.tried(function, args, kwargs, number, number, fill) for fill in (1, 0))
    return _refused[key]
