"""Integers that differ from call to call, where an operation needs their values: torch takes some only as constants.

The first such value is a constant of the trace. When the number differs once more, the operation is a break, so no
graph is compiled for each value.

A number may be too large for the dtype of a tensor, and then the operation raises. Where the program could see what it
has done before, such numbers are guarded.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.assumptions import RestartCapture
from sot.guards.guards import RelationGuard
from sot.guards.origin import Origin, TensorPart
from sot.guards.terms import leaves
from sot.interpreter.control_flow import failures
from sot.interpreter.torch_ops import elements
from sot.interpreter.torch_ops.data_sizes.float_arguments import may_be_floats, with_floats
from sot.interpreter.torch_ops.data_sizes.graph_numbers import here
from sot.support.errors import Break, Reason
from sot.values.base import Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber, compare
from sot.values.objects import ListValue, TupleValue

if TYPE_CHECKING:
    from sot.graph import TensorRef
    from sot.interpreter.machine import Machine

LARGEST = torch.iinfo(torch.int64).max
# these compute with a float as it is, for a tensor of any floating-point dtype
ARITHMETIC = frozenset((
    "add", "sub", "mul", "div", "truediv", "true_divide", "rsub", "pow", "lerp", "addcmul", "addcdiv", "lt", "le", "gt",
    "ge", "eq", "ne", "iadd", "isub", "imul", "itruediv", "ipow"))


def read(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of an operation. If an earlier capture has found that it needs the integers among them, these are
    floats, which may vary, or become constants. Break if one has been a constant before.
    """
    if m.assumptions.reads_numbers and here(m) in m.assumptions.reads_numbers:
        args, kwargs = with_floats(m, target, args, kwargs)
        _read(m, [*args, *kwargs.values()])
    return args, kwargs


def _read(m: Machine, values: list[Value]) -> None:
    for value in values:
        if isinstance(value, (ListValue, TupleValue)):
            _read(m, m.settle(value.items))
        elif isinstance(value, DynamicNumber) and value.pytype is int:
            if value.was_constant and not value.is_size:
                raise Break(Reason.VARYING_NUMBER, str(value))
            value.real  # noqa: B018 - guards it


def may_read(m: Machine) -> bool:
    """Whether an operation that failed on symbols may do with constants."""
    return bool(m.varying_numbers) and here(m) not in m.assumptions.reads_numbers


def read_first(m: Machine, why: str) -> RestartCapture:
    """What starts the capture again, with the integers that are given to this operation read before it."""
    return RestartCapture(why, reads_numbers=frozenset({here(m)}))


def check(m: Machine, name: str, target: Any, args: list[Value], kwargs: dict[str, Value],
          tensors: Collection[TensorRef], assumptions: list[RelationGuard]) -> None:
    """Restart the capture if an operation has made an integer a constant that was one before, or that may be a float.
    Its numbers have to fit the dtypes of the tensors among its arguments.
    """
    fixed = [guard for guard in assumptions if fixes(guard)]
    if any(fixes_again(m, guard) for guard in fixed) or fixed and here(m) not in m.assumptions.reads_numbers and (
            may_be_floats(target, args, kwargs)):
        raise read_first(m, f"{name} needs the value of an integer")
    if tensors:
        fit(m, name, [*args, *kwargs.values()], [ref.fake.dtype for ref in tensors])


def fixes(guard: RelationGuard) -> bool:
    return guard.symbol == "==" and guard.outcome and not isinstance(guard.right, (Origin, tuple))


def fixes_again(m: Machine, guard: RelationGuard) -> bool:
    """Whether it makes an integer a constant that was one before, and is no size."""
    fixed = {*leaves(guard.left)}
    return not fixed.isdisjoint(m.varies.specialized) and not any(isinstance(o, TensorPart) for o in fixed)


def fit(m: Machine, name: str, values: list[Value], dtypes: Collection[torch.dtype]) -> None:
    """Guard that numbers which vary fit these dtypes, in an operation after a change or another side effect. If the
    operation raised then, the graph would have to be undone. Break if a number does not fit.
    """
    computes = name.rstrip("_") in ARITHMETIC and not any(map(is_of_integers, dtypes))
    kinds = (int,) if computes else (int, float)
    numbers = [v for v in values if isinstance(v, (DynamicNumber, DeferredScalar)) and v.pytype in kinds]
    if not numbers or m.assumptions.of_file or not (m.builder.changed_inputs() or failures.is_seen(m)):
        return
    for number in numbers:
        ranges = [range_of(dtype, number.pytype) for dtype in dtypes]
        least, most = max(r[0] for r in ranges), min(r[1] for r in ranges)
        if not elements.may_be_guarded(number):
            if most < LARGEST:
                m.builder.fake_mode.note_refusal()
        elif not math.isfinite(number.example):     # type: ignore[union-attr]
            number.real     # noqa: B018 - guards it
        elif not (compare(m, ">=", number, Const(least)).real and compare(m, "<=", number, Const(most)).real):
            raise Break(Reason.OPERATION_FAILED, f"{number} does not fit the dtype of a tensor")


def is_of_integers(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def range_of(dtype: torch.dtype, kind: type) -> tuple[float, float]:
    """The numbers of a kind that torch converts to this dtype."""
    if is_of_integers(dtype):
        return torch.iinfo(dtype).min, torch.iinfo(dtype).max
    most = torch.finfo(dtype).max if dtype is not torch.bool else sys.float_info.max
    return (-most, most) if kind is float or most < LARGEST else (-LARGEST - 1, LARGEST)
