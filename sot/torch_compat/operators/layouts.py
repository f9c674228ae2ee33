"""Strides of results for which torch's rules differ from its kernels.

torch computes the metadata of a fake result by its own rules, which compilers use as well. For these operators the
rules give other strides than the kernels do where an argument is not contiguous. A program sees strides: by
``stride()``, by ``view``, which may raise, and by ``contiguous`` and ``reshape``, which return the tensor itself or a
copy.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from sot.torch_compat.operators.remembered import NotRemembered, number

_aten = torch.ops.aten
Rule = Callable[..., Tensor | None]      # result, *arguments: a tensor laid out as the kernel's; None: as the result


def packed(result: Tensor, *args: Any) -> Tensor:
    """The kernel makes a contiguous tensor."""
    return result.new_empty(result.shape)


def elementwise(result: Tensor, *args: Any) -> Tensor:
    """The kernel iterates over all operands in an order that fits their strides."""
    first, *others = (torch.empty_strided(t.shape, t.stride(), device=result.device)
                      for t in args if isinstance(t, Tensor))
    made = functools.reduce(operator.add, others, first) if others else first + 0
    return made.expand(result.shape)


def outer_product(result: Tensor, matrix: Tensor, column: Tensor, row: Tensor, *args: Any) -> Tensor:
    return elementwise(result, matrix, column.unsqueeze(1), row)


def like_input(result: Tensor, given: Tensor, *args: Any) -> Tensor | None:
    return torch.empty_like(given) if given.shape == result.shape else None


def in_format_of_input(result: Tensor, given: Tensor, *args: Any) -> Tensor:
    return result.new_empty(result.shape).contiguous(memory_format=suggest_memory_format(given))


def rolled(result: Tensor, given: Tensor, shifts: Any, dims: Any = (), *args: Any) -> Tensor | None:
    """The kernel rolls by one axis after the other, and joins two parts in their format. Without axes it rolls a
    contiguous row.
    """
    if not dims:
        return None
    for shift, dim in zip(*((v,) if isinstance(v, int) else v for v in (shifts, dims)), strict=True):
        size = given.shape[dim]
        if type(size) is not int or type(shift) is not int:
            return in_format_of_input(result, given)
        start = -shift % size if size else 0
        formats = {suggest_memory_format(given.narrow(dim, *part)) for part in ((start, size - start), (0, start))}
        made = result.new_empty(result.shape)
        given = made if len(formats) > 1 else made.contiguous(memory_format=formats.pop())
    return given


def normalized(result: Tensor, given: Tensor, *args: Any) -> Tensor | None:
    """The kernel for what is neither contiguous nor in channels_last makes a contiguous tensor."""
    return None if given.is_contiguous(memory_format=suggest_memory_format(given)) else packed(result)


ANYWHERE: dict[Any, Rule] = {
    **dict.fromkeys((_aten.copysign.Tensor, _aten.div.Tensor_mode, _aten.floor_divide.default, _aten.xlogy.Tensor,
                     _aten.special_xlog1py.default, _aten.heaviside.default, _aten.logaddexp.default,
                     _aten.logaddexp2.default, _aten.complex.default, _aten.polar.default), elementwise),
    **dict.fromkeys((_aten.huber_loss.default, _aten.binary_cross_entropy.default), like_input),
    **dict.fromkeys((_aten.pow.Scalar, _aten.isin.Tensor_Tensor, _aten.isin.Tensor_Scalar, _aten.poisson.default,
                     _aten.normal.float_Tensor, _aten.normal.Tensor_Tensor, _aten.rrelu_with_noise.default), packed),
    _aten.addr.default: outer_product}
ON_CPU: dict[Any, Rule] = {
    **dict.fromkeys((_aten.native_batch_norm.default, _aten._native_batch_norm_legit.default,
                     _aten._native_batch_norm_legit.no_stats, _aten._native_batch_norm_legit_no_training.default),
                    normalized),
    _aten.log_sigmoid_forward.default: packed, _aten.roll.default: rolled,
    **dict.fromkeys((_aten.max_unpool2d.default, _aten.channel_shuffle.default, _aten.native_channel_shuffle.default),
                    in_format_of_input)}


# They take the strides of a dense argument as they are. torch's rules choose those of dimensions of size one anew.
DENSE_LIKE = frozenset(getattr(_aten, name) for name in (
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"))


VIEWS = frozenset((_aten.view.default, _aten._unsafe_view.default))


def as_given(mode: FakeTensorMode, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
    """The result of an operator of ``DENSE_LIKE``, in dimensions of size one too, or of a view of an empty tensor in
    its own shape, which keeps its strides. Compilers need not know it.
    """
    if func in VIEWS:
        given = args[0]
        if not isinstance(result, FakeTensor) or given.layout is not torch.strided or any(
                type(size) is not int for size in (*given.shape, *result.shape)) or (
                0 not in given.shape or result.shape != given.shape or result.stride() == given.stride()):
            return result
        with mode:
            return _aten.as_strided.default(given, given.shape, given.stride())
    if func.overloadpacket not in DENSE_LIKE or kwargs.get("memory_format", torch.preserve_format) not in (
            None, torch.preserve_format):
        return result
    given = args[0]
    if given.layout is not torch.strided or differ(result, given) or not differ(result, given, everywhere=True):
        return result
    with mode:
        return torch.empty_strided(result.shape, given.stride(), dtype=result.dtype, device=result.device)


def as_kernel(mode: FakeTensorMode, func: Any, args: tuple, result: Any) -> Any:
    """The result of an operator, or one whose first tensor has the strides that the kernel gives it."""
    rule = ANYWHERE.get(func) or ON_CPU.get(func)
    if rule is None:
        return result
    first = result[0] if isinstance(result, (tuple, list)) else result
    if func in ON_CPU and first.device.type != "cpu" or first.dim() < 2:
        return result
    with mode:
        like = rule(first, *args)
        if like is None or not differ(first, like):
            return result
        made = torch.empty_strided(first.shape, like.stride(), dtype=first.dtype, device=first.device)
    return made if first is result else (made, *result[1:])


def order_of(result: Tensor) -> tuple[int, ...] | None:
    """The dimensions of a result, the outermost in memory first; None if that depends on sizes that vary."""
    if not differ(result, result.new_empty(result.shape)):
        return (*range(result.dim()),)
    strides = result.stride()
    return (*sorted(range(len(strides)), key=lambda dim: -strides[dim]),) if all(
        type(stride) is int for stride in strides) else None


def differ(a: Tensor, b: Tensor, everywhere: bool = False) -> bool:
    """Whether their strides differ where that matters, or in any dimension. Symbols are compared by name, so nothing is
    assumed of them.
    """
    try:
        sizes, *strides = ([*map(number, numbers)] for numbers in (a.shape, a.stride(), b.stride()))
    except NotRemembered:
        return False
    return any(mine != other for size, mine, other in zip(sizes, *strides, strict=True) if everywhere or size != 1)
