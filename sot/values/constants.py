"""What counts as a constant: numbers, text, classes and the like. Also, what belongs to a library."""
from __future__ import annotations

import contextvars
import enum
import functools
import inspect
import re
import sys
import types
from typing import Any

import numpy as np
import torch

SCALARS = (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16,
           np.float32, np.float64, np.complex64, np.complex128)
EQUAL_TYPES = (int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format,
               range, slice, torch.nn.attention.SDPBackend)
NUMBERS_AND_TEXT = (int, float, str, bytes)     # may be passed on without being read
NUMPY_SCALARS = (np.number, np.bool_)
DTYPES = frozenset(type(np.dtype(scalar)) for scalar in SCALARS)
SHARED_NUMBERS, SHARED_TEXT = range(-5, 257), "\u0100"       # of which CPython has one object each
MADE_ANEW = (float, complex, frozenset, range, slice, torch.device)
SINGLETONS = (bool, type(None), type(Ellipsis), type(NotImplemented), type(contextvars.Token.MISSING))
IDENTITY_TYPES = (types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                  types.ClassMethodDescriptorType, types.CodeType, types.GetSetDescriptorType,
                  types.MemberDescriptorType, property, re.Pattern, staticmethod, classmethod,
                  functools.cached_property, types.MethodWrapperType, types.GenericAlias, types.UnionType,
                  torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, torch._ops._Ops,
                  torch.FunctionSchema, np.ufunc, type(np.sum), type(np.random.Generator.random), inspect.Signature,
                  inspect.Parameter)
# These and their subclasses.
KNOWN_BY_IDENTITY = (type, enum.Enum, types.ModuleType, types.GenericAlias, torch._ops.HigherOrderOperator)
CONSTANT_TYPES = frozenset(EQUAL_TYPES + SINGLETONS + IDENTITY_TYPES)
# Python types that stand for dtypes.
DTYPES_OF_PYTHON = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
GRAPH_CONSTANTS = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout,
                   torch.memory_format, type(Ellipsis), range)
LIBRARIES = ("torch", "numpy", *sys.stdlib_module_names)


def is_value_of_torch(kind: type) -> bool:
    """Whether it is a class of immutable objects of C++ that are equal by value: an enum such as ``ReduceOp``, or a
    placement of a DTensor.
    """
    if kind.__module__ == "torch.distributed.tensor.placement_types":
        return True
    return kind.__module__.startswith("torch._C") and isinstance(getattr(kind, "__members__", None), dict)


def is_one_object(value: Any) -> bool:
    """Whether its value tells which object a constant is: CPython has one of this value, or the guard is the object."""
    kind = type(value)
    if kind is int:
        return value in SHARED_NUMBERS
    if kind is str:
        return value < SHARED_TEXT and len(value) < 2
    if kind in (bytes, tuple):
        return len(value) < (2 if kind is bytes else 1)
    return kind not in MADE_ANEW and not issubclass(kind, np.number) and not is_value_of_torch(kind)


def is_nan(value: Any) -> bool:
    """Whether it is a number that does not equal itself."""
    return isinstance(value, (float, complex, np.inexact)) and bool(value != value)


def is_number_of_library(kind: type) -> bool:
    """Whether it is a class of numbers or text that a library derives from Python's, such as ``torch.__version__``'s
    or that of the default arguments of ``re.sub``. Programs make no such objects, so the object itself is the guard.
    NumPy's scalars are made by each read of an array.
    """
    return issubclass(kind, NUMBERS_AND_TEXT) and kind not in (bool, *NUMBERS_AND_TEXT) and (
        is_library(kind.__module__) and not issubclass(kind, np.generic))


def is_constant(value: Any) -> bool:
    """Whether it is a number, a string, a class or the like: immutable, and known by its value."""
    kind = type(value)
    return (kind in CONSTANT_TYPES or kind in DTYPES or issubclass(kind, (*KNOWN_BY_IDENTITY, *NUMPY_SCALARS))
            or kind.__module__ == "typing" or is_value_of_torch(kind) or is_number_of_library(kind)
            or (kind in (tuple, frozenset) and all(is_constant(v) for v in value)))


def is_library(name: str | None) -> bool:
    """Whether it is a module of torch, NumPy or the standard library."""
    return bool(name) and name.partition(".")[0] in LIBRARIES and name != "__main__"  # type: ignore[union-attr]


IMMUTABLE_TYPE = 1 << 8        # Py_TPFLAGS_IMMUTABLETYPE


def module_of(owner: Any) -> str | None:
    """The name of a module, or of the module that defines an object with names."""
    if isinstance(owner, dict):
        return owner.get("__name__")
    return owner.__name__ if isinstance(owner, types.ModuleType) else getattr(owner, "__module__", None)


def cannot_change(owner: Any) -> bool:
    """Whether it is a C class, which allows no assignment, or a namespace of this package."""
    if isinstance(owner, type):
        return bool(owner.__flags__ & IMMUTABLE_TYPE)
    return str(module_of(owner)).startswith("sot.")


def compares_by_python(key: Any) -> bool:
    """Whether user code decides which keys of a dict equal this one, or computes its hash."""
    if type(key) is tuple:
        return any(compares_by_python(k) for k in key)
    methods: tuple[Any, Any] = type(key).__eq__, type(key).__hash__
    return any(isinstance(f, types.FunctionType) and not is_library(f.__module__) for f in methods)
