"""Tensors as arguments of NumPy's functions.

Most functions take the array that has the memory of the tensor, some call a method of the tensor instead, and ufuncs
make a tensor of their result and warn. A trial with real tensors shows which functions do the former, and how NumPy
warns.
"""
from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.interpreter.loop import evaluate
from sot.interpreter.numpy_ops import numpy_arrays
from sot.interpreter.torch_ops import overrides
from sot.support.errors import Break, Reason
from sot.values.arrays import ArrayValue, Layout
from sot.values.base import Const, Value
from sot.values.numbers import is_dynamic
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine


def ufunc_of_tensors(m: Machine, ufunc: np.ufunc, args: list[Value], kwargs: dict[str, Value],
                     call: Callable[[list[Value]], Value]) -> Value:
    """A ufunc with tensors among its arguments. ``call`` calls it with arrays."""
    if kwargs or len(args) != ufunc.nin or not any(isinstance(v, TensorValue) for v in args):
        raise Break(Reason.OPAQUE_CALL, f"numpy.{ufunc.__name__} of a tensor")
    results = call([array_of(m, v) if isinstance(v, TensorValue) else v for v in args])
    made: list[Value] = []
    for result in results.items if isinstance(results, TupleValue) else [results]:
        warn(m, warnings_of_ufuncs())
        made.append(wrapped(m, result))
    return TupleValue(made) if isinstance(results, TupleValue) else made[0]


def wrapped(m: Machine, array: Value) -> Value:
    """``Tensor.__array_wrap__``"""
    if not isinstance(array, ArrayValue):
        raise Break(Reason.OPAQUE_CALL, f"__array_wrap__ of {array}")
    is_bool, made = array.layout.dtype == bool, array if array.is_array else numpy_arrays.array_call(
        m, "call_function", np.asarray, [array], {})
    if is_bool:
        made = numpy_arrays.array_call(m, "call_method", "astype", [made, Const("uint8")], {})
    return numpy_arrays.tensor_of(m, torch.from_numpy, [made], {})


Said = tuple[tuple[str, type[Warning]], ...]


@functools.cache
def warnings_of_ufuncs() -> Said:
    """What NumPy says when it makes a tensor of a result."""
    return warned(lambda: np.negative(torch.ones(1)))[1]


def warned(function: Callable[[], Any]) -> tuple[Any, Said]:
    """The result of a call, and its warnings, which must name the caller of NumPy."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        result = function()
    if any(each.filename != __file__ for each in log):
        raise Break(Reason.SIDE_EFFECT, "a warning of NumPy that names a line of NumPy")
    return result, tuple((str(each.message), each.category) for each in log)


def warn(m: Machine, said: Said) -> None:
    for text, category in said:
        evaluate(m, Const(warnings.warn), [Const(text), Const(category)])


def as_arrays(m: Machine, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> tuple[
        list[Value], dict[str, Value]]:
    """The arguments with arrays in place of tensors. Break if NumPy does something else with these tensors."""
    given, named = [with_arrays(m, v) for v in args], {k: with_arrays(m, v) for k, v in kwargs.items()}

    def run(values: list[Value], more: dict[str, Value]) -> Any:
        real, options = [specimen(m, v) for v in values], {k: specimen(m, v) for k, v in more.items()}
        return getattr(real[0], target)(*real[1:], **options) if kind == "call_method" else target(*real, **options)
    name = numpy_arrays.name_of(target)
    try:
        (of_tensors, said), of_arrays = warned(lambda: run(args, kwargs)), run(given, named)
    except Break:
        raise
    except Exception as e:
        raise Break(Reason.OPERATION_FAILED, f"{name}: {e}".splitlines()[0]) from None
    if layouts(of_tensors) != layouts(of_arrays):
        raise Break(Reason.OPAQUE_CALL, f"numpy.{name} of a tensor")
    warn(m, said)
    return given, named


def array_of(m: Machine, tensor: TensorValue) -> Value:
    made = None
    if tensor.pytype is torch.Tensor and not m.modes and not overrides.asked(m, tensor):
        made = numpy_arrays.to_array(m, [tensor], {})
    if made is None:
        raise Break(Reason.OPAQUE_VALUE, f"{tensor} as an argument of NumPy")
    return made


def with_arrays(m: Machine, value: Value) -> Value:
    if isinstance(value, TensorValue):
        return array_of(m, value)
    if isinstance(value, (ListValue, TupleValue)) and numpy_arrays.holds(m, value, TensorValue):
        items = [with_arrays(m, v) for v in m.settle(value.items)]
        return ListValue(items) if isinstance(value, ListValue) else TupleValue(items)
    return value


def specimen(m: Machine, value: Value) -> Any:
    """A real argument like this one."""
    if isinstance(value, TensorValue):
        return torch.ones(value.fake.shape, dtype=value.fake.dtype)
    if isinstance(value, ArrayValue):
        return np.array(value.layout.specimen()) if value.is_array else value.layout.specimen()
    if isinstance(value, (ListValue, TupleValue)) and value.pytype in (list, tuple):
        return value.pytype(specimen(m, v) for v in m.settle(value.items))
    if isinstance(value, Const) and not is_dynamic(value):
        return value.real
    raise Break(Reason.OPAQUE_VALUE, f"{value} as an argument of NumPy beside a tensor")


def layouts(result: Any) -> Any:
    """Kind, dtype and shape of a result."""
    if type(result) in (tuple, list):
        return type(result)(map(layouts, result))
    found = Layout.of(result)
    return type(result) if found is None else (found.kind, found.dtype, found.shape)
