"""Numbers that the program gives to operations in another form: sizes as 0-d tensors (``torch.zeros(2, n)``, where
torch reads the number in ``n``), and numbers of NumPy.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sot.support.registry import HANDLERS
from sot.values.base import NONE, Const, Value
from sot.values.numbers import is_dynamic
from sot.values.objects import ListValue, TupleValue
from sot.values.other_numbers import as_python, is_other
from sot.values.tensor import TensorValue, overrides_operations

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

INTEGERS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))
# Operations, and which of their arguments are sizes.
ALL, FROM_SECOND, FIRST, SECOND = slice(None), slice(1, None), slice(0, 1), slice(1, 2)
SIZES = {**dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), ALL), "full": FIRST, "new_full": SECOND,
         **dict.fromkeys(("new_zeros", "new_ones", "new_empty", "expand", "view", "reshape", "repeat"), FROM_SECOND)}
# For these functions the type of a NumPy number matters: it decides the dtype of the result.
KEEP_NUMPYS_TYPES = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))

MAKERS = KEEP_NUMPYS_TYPES - {"new_tensor"}


def is_given(value: Value) -> bool:
    return isinstance(value, TensorValue) and not overrides_operations(value.pytype) and (
        isinstance(value.fake, torch.Tensor) and value.fake.dim() == 0 and value.fake.dtype in INTEGERS)


def as_numbers(m: Machine, name: str, args: list[Value], kwargs: dict[str, Value]
               ) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of an operation, with numbers of Python in place of those of NumPy that vary, and for sizes that
    are tensors.
    """
    if name not in KEEP_NUMPYS_TYPES and "setitem" not in name and any(map(is_other, (*args, *kwargs.values()))):
        args, kwargs = [as_python(m, v) for v in args], {key: as_python(m, v) for key, v in kwargs.items()}
    if name in MAKERS and args and isinstance(args[0], Const) and issubclass(args[0].pytype, np.generic):
        return with_its_dtype(args[0].real, args, kwargs)
    if name not in SIZES:
        return args, kwargs
    changed = list(args)
    changed[SIZES[name]] = [number_of(m, value) for value in args[SIZES[name]]]
    return changed, kwargs


def with_its_dtype(number: np.generic, args: list[Value], kwargs: dict[str, Value]
                   ) -> tuple[list[Value], dict[str, Value]]:
    """The arguments that make a tensor of a number of NumPy: the same number of Python, and the dtype."""
    try:
        made = torch.tensor(number)
        is_same = torch.tensor(number.item(), dtype=made.dtype).item() == made.item()
    except Exception:  # noqa: BLE001 - torch will say what is wrong with it
        return args, kwargs
    if not is_same or is_dynamic(args[0]) or len(args) > 1:
        return args, kwargs
    dtype = kwargs.get("dtype", NONE)
    return [Const(number.item())], {**kwargs, "dtype": Const(made.dtype) if dtype is NONE else dtype}


def number_of(m: Machine, value: Value) -> Value:
    if is_given(value):
        return HANDLERS[int](m, [value], {})
    if isinstance(value, (ListValue, TupleValue)) and any(map(is_given, value.items)):
        return TupleValue([number_of(m, item) for item in m.settle(value.items)])
    return value
