"""Values whose end of life the program can observe. In Python a local variable that is no longer read keeps its
value.
"""
from __future__ import annotations

import itertools
import types
from typing import Any

import numpy as np
import torch

from sot.bytecode.frame_layout import CALL
from sot.guards.origin import Arg, Item, Origin
from sot.values.base import Lazy, Value
from sot.values.iterators import GeneratorValue
from sot.values.objects import DictValue, ListValue, ObjectValue, SetValue, TupleValue

# Their end runs no code. Tensors, arrays and modules count among them, although weak references may watch them,
# because it is worth more that loops and graphs need not pass them on.
SILENT = (bool, int, float, complex, str, bytes, range, slice, types.NoneType, types.EllipsisType, torch.Tensor,
          torch.nn.Module, torch.Size, torch.dtype, torch.device, np.ndarray, types.FunctionType,
          types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)
CONTAINERS = (list, tuple, dict, set, frozenset)
LOOKED_INTO = 64    # the first elements of a container stand for all


def end_shows(value: Value | Lazy) -> bool:
    """Whether a finalizer or a weak reference could observe when the local variable releases this value."""
    if value.origin is not None:
        kind = type(value.real) if isinstance(value, Lazy) else value.pytype
        return is_variable(value.origin) and not issubclass(kind, SILENT) and not (
            kind in CONTAINERS and is_silent(value.real))
    if isinstance(value, (TupleValue, ListValue)):
        return any(map(end_shows, value.items))
    if isinstance(value, DictValue):
        return any(isinstance(item, Lazy | Value) and end_shows(item) for item in value.overlay.values())
    return isinstance(value, (ObjectValue, GeneratorValue)) and not isinstance(value, SetValue)


def is_variable(origin: Origin) -> bool:
    """Whether it is a variable of the captured frame, or of its resume code."""
    whole = origin
    while isinstance(whole, Item):
        whole = whole.base
    return isinstance(whole, Arg) and (whole is origin or whole.name == CALL)


def is_silent(real: Any) -> bool:
    """Whether it is data whose end runs no Python code, or a container of such data."""
    kind = type(real)
    if kind not in CONTAINERS:
        return issubclass(kind, SILENT)
    return all(map(is_silent, itertools.islice(real.values() if kind is dict else real, LOOKED_INTO)))
