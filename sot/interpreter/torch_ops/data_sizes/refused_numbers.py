"""Numbers in operations that raise for some of them: the number does not fit the dtype of a tensor, it is negative or
zero, or there is not enough memory.

If the program could see what it has done before, the graph must not raise then (``failures.py``). So the operation is
tried with the numbers of the captured call. Those that vary are guarded to be like these: of the same sign, and not
very large if that was not. A number that no guard can compare makes the operation one that may raise.
"""
from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph.builder import as_captured
from sot.graph.number_rules.operators import rule_of
from sot.graph.refs import NumberRef, TensorRef
from sot.guards.draws import Drawn
from sot.interpreter.control_flow import failures
from sot.interpreter.torch_ops import elements
from sot.support.errors import Break, Reason
from sot.torch_compat.op_effects import is_of_torch, limits
from sot.torch_compat.operators import size_trials, trials
from sot.values.base import Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber, compare, within
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.graph.number_rules.rules import Rule
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

LARGEST = torch.iinfo(torch.int64).max
MODERATE = {int: 2 ** 31 - 1, float: 1e30}
# These take numbers of both signs, and floats of any size. Only as ``alpha`` they refuse a float that does not fit,
# which is beyond what optimizers compute.
TAKE_ANY_FLOAT = frozenset((
    "add", "sub", "mul", "div", "truediv", "true_divide", "rsub", "lt", "le", "gt", "ge", "eq", "ne", "iadd", "isub",
    "imul", "itruediv"))
ARITHMETIC = TAKE_ANY_FLOAT | {"pow", "ipow", "lerp", "addcmul", "addcdiv"}
POWERS = frozenset(("pow", "ipow"))     # of integers they refuse negative exponents
# Their fakes are made of other operations, which also have kernels for other dtypes.
OF_OTHERS = frozenset(("interpolate", "upsample", "upsample_nearest", "upsample_bilinear", "max_pool1d"))


def keep(m: Machine, name: str, call: Call, values: list[Value], tensors: Collection[TensorRef], result: Any) -> None:
    """Guard the numbers among the arguments of an operation. Break if one does not fit, or the operation refuses it."""
    dtypes = [ref.fake.dtype for ref in tensors] or ([result.dtype] if isinstance(result, torch.Tensor) else [])
    plain = name.strip("_").removeprefix("foreach_")
    of_integers = any(map(is_of_integers, dtypes))
    computes = plain in ARITHMETIC
    is_exponent = plain in POWERS and isinstance(values[0], TensorValue) and all(map(is_of_whole_numbers, dtypes))
    numbers, rule = [*numbers_in(m, values)], None if computes else rule_of(call[0])
    constants = () if computes else numbers_of(call, rule)
    if not (numbers or constants or plain in OF_OTHERS) or m.assumptions.of_file:
        return
    is_seen = bool(m.builder.changed_inputs() or failures.is_seen(m))
    if not is_seen and m.assumptions.interprets:
        return
    if constants or plain in OF_OTHERS:
        try_operation(m, plain, call, constants)
    for number in numbers:
        ranges = [range_of(dtype, number.pytype) for dtype in dtypes] or [(-LARGEST - 1, LARGEST)]
        least, most = max(r[0] for r in ranges), min(r[1] for r in ranges)
        if not elements.may_be_guarded(number):
            is_exempt = plain in TAKE_ANY_FLOAT and number.pytype is float and not of_integers
            if not is_exempt and (may_exceed(number, most) or has_special_values(rule) or is_exponent):
                refuse_unchecked(m, number)
        elif (is_seen or number.pytype is int) and isinstance(number, DynamicNumber) and not (
                number.is_size and most >= LARGEST):
            any_sign = computes or not has_special_values(rule) and (number.is_size or not is_seen)
            guard_range(m, number, 0 if is_exponent else least, most, any_sign)


def numbers_of(call: Call, rule: Rule | None) -> tuple[float, ...]:
    """The numbers of the captured call that an operation computes with. Its fake checks sizes and dimensions."""
    args, kwargs = call[1:]
    given = {**dict(enumerate(args)), **kwargs}
    places = {place for place, _ in rule.places(args, kwargs)} if rule is not None else ()
    found = {place: as_captured(value) for place, value in given.items() if not isinstance(value, (list, tuple))}
    return tuple(v for place, v in found.items() if isinstance(v, float) or isinstance(v, int) and place in places)


def refuse_unchecked(m: Machine, number: DynamicNumber | DeferredScalar) -> None:
    """Record that an operation may refuse a number. What a compiler makes of it does not, so there it is a break."""
    if not m.assumptions.interprets:
        raise number.needed() if isinstance(number, DeferredScalar) else Break(Reason.VARYING_NUMBER, str(number))
    m.builder.fake_mode.note_refusal()


def has_special_values(rule: Rule | None) -> bool:
    """Whether the operation does something else at some value of a number, or refuses it."""
    return rule is not None and any(rule.numbers.values())


def try_operation(m: Machine, plain: str, call: Call, numbers: tuple[float, ...]) -> None:
    """Break if the operation raises for small tensors and the numbers of the captured call."""
    function: Any = getattr(torch.Tensor, call[0], None) if isinstance(call[0], str) else call[0]
    is_known = m.assumptions.interprets and m.builder.fake_mode.may_refuse
    if is_known or not (is_of_torch(function) or plain in OF_OTHERS):
        return
    args, kwargs = fx.node.map_aggregate(call[1:], as_captured)
    if any(isinstance(v, (torch.SymFloat, NumberRef)) for v in (*args, *kwargs.values())):
        return
    if trials.is_refused(function, args, kwargs, numbers):
        raise Break(Reason.OPERATION_FAILED, f"{plain} refuses its arguments")


def refuses_sizes(m: Machine, name: str, call: Call) -> bool:
    """Whether an operation whose fake is made of others raises for some sizes that depend on data."""
    if name.strip("_") not in OF_OTHERS:
        return False
    args, kwargs = fx.node.map_aggregate(call[1:], lambda v: v.fake if isinstance(v, TensorRef) else v)
    return size_trials.refuses_sizes(call[0], args, kwargs, m.symbols.env)


def numbers_in(m: Machine, values: list[Value]) -> Iterator[DynamicNumber | DeferredScalar]:
    for value in values:
        if isinstance(value, (ListValue, TupleValue)):
            yield from numbers_in(m, m.settle(value.items))
        elif value.pytype in MODERATE and (isinstance(value, DeferredScalar) or (
                isinstance(value, DynamicNumber) and value.varies)):
            yield value


def guard_range(m: Machine, number: DynamicNumber, least: float, most: float, any_sign: bool) -> None:
    example, moderate = number.example, MODERATE[number.pytype]
    if not abs(example) <= moderate:        # or it is a NaN
        m.builder.fake_mode.note_refusal()
    if type(example) is float and not math.isfinite(example):
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


def is_of_whole_numbers(dtype: torch.dtype) -> bool:
    return dtype is torch.bool or is_of_integers(dtype)


def range_of(dtype: torch.dtype, kind: type) -> tuple[float, float]:
    """The numbers of a kind that torch converts to this dtype. An integer has 64 bits, also for a float."""
    least, most = limits(dtype)
    return (least, most) if kind is float or most <= LARGEST else (-LARGEST - 1, LARGEST)
