"""Tensors that are made of numbers of which some vary: ``torch.tensor(n)``, ``torch.tensor([[a, 1.0], [0, b]])``.

A list of floats is an argument of the node. A backend that compiles gets 0-d tensors that are stacked
(``number_tensors.py``). Integers are stacked here: torch has symbols for them, but not for a list of them.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.values.base import NONE, Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import NUMBER_TYPES, applied, is_dynamic
from sot.values.objects import ListValue, TupleValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

MOST = 32       # the numbers in the largest list that becomes a tensor number by number
DEEPEST = 8     # a list may contain itself
FILLED = (None, torch.int64, torch.float32, torch.float64)      # these hold any varying number


def of_varying(m: Machine, data: Value, kwargs: dict[str, Value]) -> Value | None:
    """A tensor of one varying number, or of a few numbers of which some vary; None for other data."""
    dtype = kwargs.get("dtype", NONE)
    if m.modes or not kwargs.keys() <= {"dtype", "device"} or not isinstance(dtype, Const) or dtype.real not in FILLED:
        return None
    numbers: list[Value] = []
    shape = shape_of(m, data, numbers)
    if shape is None or not any(is_dynamic(v) or isinstance(v, DeferredScalar) for v in numbers):
        return None
    if any(isinstance(v, DeferredScalar) for v in numbers) and {v.pytype for v in numbers} != {int}:
        return None     # torch has symbols for floats of data in a list
    has_floats = float in {v.pytype for v in numbers}
    if has_floats and dtype.real is torch.int64 and shape:
        return None
    if has_floats and dtype.real is not torch.int64:    # torch.full refuses numbers that torch.tensor makes infinite
        floats: list[Value] = [v if v.pytype is float else as_float(m, v) for v in numbers]
        return torch_call(m, "call_function", torch.tensor, [*nested(floats, shape, ListValue)], kwargs)
    if numbers[0].pytype is int and dtype.real is None:
        kwargs = {**kwargs, "dtype": Const(torch.int64)}
    made: list[Value] = [torch_call(m, "call_function", torch.full, [TupleValue([]), v], kwargs) for v in numbers]
    return nested(made, shape, lambda row: torch_call(m, "call_function", torch.stack, [ListValue(row)], {}))[0]


def nested(values: list[Value], shape: tuple[int, ...], join: Callable[[list[Value]], Value]) -> list[Value]:
    """One value for all of these, which are the numbers of a tensor of this shape."""
    for size in reversed(shape):
        values = [join(values[i:i + size]) for i in range(0, len(values), size)]
    return values


def shape_of(m: Machine, data: Value, numbers: list[Value], depth: int = 0) -> tuple[int, ...] | None:
    """The shape of nested lists and tuples of numbers, which are collected; None for other data, and for too many."""
    if isinstance(data, (Const, DeferredScalar)) and data.pytype in NUMBER_TYPES:
        numbers.append(data)
        return () if len(numbers) <= MOST else None
    if data.pytype not in (list, tuple) or isinstance(data, TupleValue) and data.has_attrs or depth > DEEPEST:
        return None
    found = None
    for i, item in enumerate(items := data.items_list(m) or ()):
        shape = shape_of(m, item, numbers, depth + 1)
        if shape is None or i and shape != found:
            return None
        found = shape
    return None if found is None else (len(items), *found)


def as_float(m: Machine, number: Value) -> Value:
    """An integer next to floats. torch makes a float of it first."""
    return applied(m, "float", number) or Const(float(number.real))
