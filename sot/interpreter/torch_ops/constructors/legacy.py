"""The constructors that tensors had before ``torch.tensor``: ``torch.Tensor(2, 3)``, ``torch.LongTensor([1, 2])``, and
the types that ``x.type(torch.DoubleTensor)`` takes."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.interpreter.torch_ops import overrides
from sot.interpreter.torch_ops.constructors.of_numbers import of_varying
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.arrays import ArrayValue
from sot.values.base import Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

INTEGERS_OF_NUMPY = np.int64, np.int32, np.int16, np.int8, np.uint8
OF_CPU = (torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.LongTensor,
          torch.IntTensor, torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor)


@handles(torch.Tensor.new)
def new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``x.new(size)``: a tuple there would be the data, and in a graph a size is a tuple."""
    if len(args) == 2 and args[1].pytype is torch.Size and not kwargs:
        sizes = args[1].items_list(m)
        if not sizes or m.modes or overrides.asked(m, args[0]):
            raise Break(Reason.OPAQUE_CALL, "Tensor.new")
        args = [args[0], *sizes]
    return torch_call(m, "call_method", "new", args, kwargs)


def constructor(cls: Any) -> None:
    @handles(cls)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
        refused = Break(Reason.OPAQUE_CALL, f"torch.{cls.__name__}")
        if kwargs or m.modes:
            raise refused
        if len(args) == 1 and isinstance(args[0], TensorValue) and is_taken(args[0], cls):
            return torch_call(m, "call_function", torch.Tensor, args, {})       # another one with its memory
        options: dict[str, Value] = {"dtype": Const(dtype), "device": Const("cpu")}
        sizes = args
        if len(args) == 1 and (args[0].pytype is torch.Size):
            sizes = args[0].items_list(m) or []
        elif len(args) == 1 and isinstance(args[0], (ListValue, TupleValue)):
            if not holds_numbers(m, args[0], dtype):
                raise refused
            data = of_python(m, args[0])
            return of_varying(m, data, options) or torch_call(m, "call_function", torch.tensor, [data], options)
        elif len(args) == 1 and isinstance(args[0], ArrayValue) and args[0].is_array and args[0].layout.shape:
            return torch_call(m, "call_function", torch.as_tensor, args, options)   # with its memory, if they agree
        if not all(map(is_size, sizes)):
            raise refused
        shape = TupleValue([*sizes]) if args else TupleValue([Const(0)])
        return torch_call(m, "call_function", torch.empty, [shape], options)


def is_taken(tensor: TensorValue, cls: Any) -> bool:
    """Whether the constructor takes the tensor: each but ``torch.Tensor`` wants its own dtype on the CPU."""
    return cls is torch.Tensor or tensor.fake.dtype is cls.dtype and tensor.fake.device.type == "cpu"


def is_size(value: Value) -> bool:
    if isinstance(value, DynamicNumber):
        return value.pytype is int
    return isinstance(value, Const) and type(value.real) is int and value.real >= 0


def holds_numbers(m: Machine, data: Value, dtype: torch.dtype) -> bool:
    """Whether it is a number, or a nested list of numbers, that ``torch.tensor`` reads as the constructor does."""
    if type(data) in (ListValue, TupleValue) and data.pytype in (list, tuple):
        items = m.settle(data.items)        # type: ignore[attr-defined]
        return bool(items) and all(holds_numbers(m, item, dtype) for item in items)
    if isinstance(data, DeferredScalar):
        return data.pytype is int and dtype is torch.int64
    others = (bool,) if dtype is torch.bool else (float,) if dtype.is_floating_point else INTEGERS_OF_NUMPY
    return isinstance(data, Const) and data.pytype in (int, *others)


def of_python(m: Machine, data: Value) -> Value:
    """The same nested list, with numbers of Python in place of NumPy's integers. These constructors read no type."""
    if isinstance(data, (ListValue, TupleValue)):
        return ListValue([of_python(m, item) for item in m.settle(data.items)])
    return Const(int(data.real)) if isinstance(data, Const) and data.pytype in INTEGERS_OF_NUMPY else data


for _class in (torch.Tensor, *OF_CPU):
    constructor(_class)


@handles(torch.Tensor.type)
def type_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``x.type(torch.DoubleTensor)`` is ``x.type(torch.float64)`` on the CPU."""
    self_, kind, *_ = [*args, kwargs.get("dtype"), None]
    real = kind.real if isinstance(kind, Const) else None
    if isinstance(self_, TensorValue) and self_.fake.device.type == "cpu" and any(real is cls for cls in OF_CPU):
        given = Const(real.dtype)       # type: ignore[union-attr]
        args, kwargs = ([self_, given, *args[2:]], kwargs) if len(args) > 1 else (args, {**kwargs, "dtype": given})
    return torch_call(m, "call_method", "type", args, kwargs)


