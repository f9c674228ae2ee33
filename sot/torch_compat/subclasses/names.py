"""What the code of a subclass may use: torch's operations, and the names of attributes that read metadata."""
from __future__ import annotations

import functools
import types

import torch

OF_TORCH = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, types.BuiltinFunctionType,
            types.MethodDescriptorType, types.WrapperDescriptorType)
OF_CONTAINERS = frozenset({"get", "keys", "values", "items", "index", "count", "startswith", "endswith", "join",
                           "split", "format", "copy"})
OF_FUNCTIONS = frozenset({"__name__", "__qualname__", "__func__", "__class__", "__self__", "__new__", "__init__",
                          "overloadpacket", "_schema", "namespace", "_overloadname", "default", "name", "args",
                          "kwargs", "partial", "wraps", "redispatch", "prod"})


@functools.cache
def known_names() -> frozenset[str]:
    """Names of attributes that are operations of torch, or read metadata."""
    spaces = (torch.Tensor, torch, torch.nn.functional, torch.nn, torch.utils, torch.ops, torch._C, torch.Size,
              torch.utils._pytree)
    names = {name for space in spaces for name in dir(space)} | set(OF_CONTAINERS) | set(OF_FUNCTIONS)
    return frozenset(name for name in names if not name.startswith("set_"))


@functools.cache
def overload_names() -> frozenset[str]:
    """Names of overloads such as ``Tensor`` and ``Scalar``, and of the operators of ATen."""
    schemas = torch._C._jit_get_all_schemas()
    return frozenset({schema.overload_name for schema in schemas} | {
        schema.name.partition("::")[2] for schema in schemas if schema.name.startswith(("aten::", "prims::"))})
