"""Numbers that vary, in operations that raise for some of them: the number does not fit the dtype of a tensor, it is
negative or zero, or there is not enough memory.

If the program could see what it has done before, the graph must not raise then (``failures.py``). So the number is
guarded there to be like that of the captured call: of the same sign, and not very large if that was not. A number that
no guard can compare makes the operation one that may raise.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.draws import Drawn
from sot.interpreter.control_flow import failures
from sot.interpreter.torch_ops import elements
from sot.support.errors import Break, Reason
from sot.values.base import Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber, compare, within
from sot.values.objects import ListValue, TupleValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

LARGEST = torch.iinfo(torch.int64).max
MODERATE = {int: 2 ** 31 - 1, float: 1e30}
# These take numbers of both signs. They refuse floats only beyond all that programs compute.
ARITHMETIC = frozenset((
    "add", "sub", "mul", "div", "truediv", "true_divide", "rsub", "pow", "lerp", "addcmul", "addcdiv", "lt", "le", "gt",
    "ge", "eq", "ne", "iadd", "isub", "imul", "itruediv", "ipow"))


def keep(m: Machine, name: str, values: list[Value], tensors: Collection[torch.Tensor], result: Any) -> None:
    """Guard the numbers among the arguments of an operation. Break if one does not fit."""
    dtypes = [tensor.dtype for tensor in tensors] or ([result.dtype] if isinstance(result, torch.Tensor) else [])
    numbers = [*numbers_in(m, values)]
    if not numbers or m.assumptions.of_file or not (m.builder.changed_inputs() or failures.is_seen(m)):
        return
    computes = name.strip("_").removeprefix("foreach_") in ARITHMETIC
    for number in numbers:
        ranges = [range_of(dtype, number.pytype) for dtype in dtypes] or [(-LARGEST - 1, LARGEST)]
        least, most = max(r[0] for r in ranges), min(r[1] for r in ranges)
        if not elements.may_be_guarded(number):
            is_exempt = computes and number.pytype is float and not any(map(is_of_integers, dtypes))
            if not is_exempt and may_exceed(number, most):
                m.builder.fake_mode.note_refusal()
        elif isinstance(number, DynamicNumber) and not (number.is_size and most >= LARGEST):
            guard_range(m, number, least, most, any_sign=computes or number.is_size)


def numbers_in(m: Machine, values: list[Value]) -> Iterator[DynamicNumber | DeferredScalar]:
    for value in values:
        if isinstance(value, (ListValue, TupleValue)):
            yield from numbers_in(m, m.settle(value.items))
        elif isinstance(value, (DynamicNumber, DeferredScalar)) and value.pytype in MODERATE:
            yield value


def guard_range(m: Machine, number: DynamicNumber, least: float, most: float, any_sign: bool) -> None:
    example, moderate = number.example, MODERATE[number.pytype]
    if not abs(example) <= moderate:        # or it is a NaN
        m.builder.fake_mode.note_refusal()
    if not math.isfinite(example):
        number.real     # noqa: B018 - guards it
        return
    if abs(example) <= moderate:
        least, most = max(least, -moderate), min(most, moderate)
    if not within(m, number, least, most):
        raise Break(Reason.OPERATION_FAILED, f"{number} does not fit the dtype of a tensor")
    if not any_sign:
        compare(m, ">" if example > 0 else "<" if example < 0 else ">=", number, Const(0))


def may_exceed(number: DynamicNumber | DeferredScalar, most: float) -> bool:
    """Whether a number that is drawn, or read off a tensor, may be larger than this."""
    if number.pytype is int:
        return most < LARGEST and most < 2 ** (number.bits if isinstance(number, DeferredScalar) else 64)
    if isinstance(number, DynamicNumber):
        return not isinstance(number.term, Drawn)       # by the random module, below 1
    shown = number.reading.shown if number.reading is not None else None
    return shown is None or range_of(shown.tensor.fake.dtype, float)[1] > most


def is_of_integers(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def range_of(dtype: torch.dtype, kind: type) -> tuple[float, float]:
    """The numbers of a kind that torch converts to this dtype."""
    if is_of_integers(dtype):
        return torch.iinfo(dtype).min, torch.iinfo(dtype).max
    most = torch.finfo(dtype).max if dtype is not torch.bool else sys.float_info.max
    return (-most, most) if kind is float or most < LARGEST else (-LARGEST - 1, LARGEST)
