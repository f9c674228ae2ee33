"""Names for the functions of torch, which mean the same function in each process with the same torch."""
from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

import torch

from sot.torch_compat.compilers import TORCH
from sot.torch_compat.inductor.own_functions import own_function

LIBRARY = ("_operator", "builtins", "math")
FUNCTIONS: Any = torch._C._VariableFunctions
NAMESPACES = ("aten", "prims")      # a program may register kernels for others


def name_of(function: Any) -> str | None:
    """The name of a function of torch, or of the package with its code; None for those of a program."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        name = str(function)
        return name if name.partition(".")[0] in NAMESPACES else None
    if type(function) is BuiltinFunctionType:
        owner, own_name = function.__self__, function.__name__
        if getattr(FUNCTIONS, own_name, None) is function:
            return f"torch.{own_name}"
        if isinstance(owner, ModuleType) and (owner.__name__ in LIBRARY or owner.__name__.startswith("torch._C")):
            return f"{owner.__name__}.{own_name}"
        return None
    if isinstance(function, MethodDescriptorType):
        return f"Tensor.{function.__name__}" if function.__objclass__ is torch._C.TensorBase else None
    if isinstance(function, FunctionType):
        if not function.__closure__ and function.__code__.co_filename.startswith(TORCH):
            return f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}"
        return own_function(function)
    return None
