"""Wrapper subclasses of Tensor: a class with its own ``__torch_dispatch__`` whose instances hold other tensors.

torch's protocol for them has two methods. ``__tensor_flatten__`` names the inner tensors, and gives a context that has
all else. ``__tensor_unflatten__`` makes an instance of both.
"""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from sot.torch_compat.functions import DISABLED

NO_DISPATCH = torch.Tensor.__torch_dispatch__
NOTED_BY_TORCH = frozenset({"_is_param", "_is_buffer", "fake_mode", "fake_device"})  # by torch, on any instance
# Those of a jagged nested tensor, which follow from its inner tensors and its context.
OF_NESTED = frozenset({"_size", "_strides", "_ragged_idx", "_lengths", "_metadata_cache",
                       "_dynamo_propagated_dynamic_indices", "_sym_sizes_capsule", "_sym_sizes_capsule_len",
                       "_sym_strides_capsule", "_sym_strides_capsule_len"})


def is_wrapper_class(kind: Any) -> bool:
    """Whether it is a class of the protocol."""
    return (isinstance(kind, type) and issubclass(kind, torch.Tensor) and kind.__torch_dispatch__ is not NO_DISPATCH
            and hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__"))


def is_own_class_of_torch(kind: type) -> bool:
    """Whether it is a wrapper class of torch itself, such as that of jagged nested tensors: the functions that its
    ``__torch_function__`` calls are a part of each operation.
    """
    return kind.__module__.startswith("torch.") and not kind.__module__.startswith("torch.testing.") and (
        is_wrapper_class(kind))


def is_wrapper(value: Any) -> bool:
    kind = type(value)
    return kind is not torch.Tensor and kind is not torch.nn.Parameter and is_wrapper_class(kind) and (
        is_traceable_wrapper_subclass(value))


def is_ragged(size: Any) -> bool:
    """Whether it is the size of a ragged dimension, which no int has."""
    return isinstance(size, torch.SymInt) and size.node.is_nested_int()


def as_torch_calls(*given: Any) -> contextlib.AbstractContextManager:
    """While this is entered, an operation with these arguments runs the functions of torch's own wrapper classes."""
    kinds = {type(value) for part in given for value in (part if isinstance(part, (list, tuple)) else (part,))}
    has_functions = any(issubclass(kind, torch.Tensor) and kind.__torch_function__ is not DISABLED
                        and is_own_class_of_torch(kind) for kind in kinds)
    return torch._C._EnableTorchFunction() if has_functions else contextlib.nullcontext()


def flatten(wrapper: Any) -> tuple[list[str], Any]:
    """The names of the inner tensors, and the context, with which are the other objects that torch may name: the mesh
    of a DTensor.
    """
    names, context = wrapper.__tensor_flatten__()
    held = {name: getattr(wrapper, name) for name in names}
    others = {name: value for name, value in held.items() if not isinstance(value, torch.Tensor)}
    return [name for name in names if name not in others], (context, others) if others else context


def inner_tensors(wrapper: Any) -> list[tuple[str, torch.Tensor]]:
    return [(name, getattr(wrapper, name)) for name in flatten(wrapper)[0]]


def plain_parts(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold the elements: those inside of a wrapper, at any depth, or the tensor itself."""
    if not is_wrapper(value):
        yield value
        return
    for _, part in inner_tensors(value):
        yield from plain_parts(part)


def other_attributes(wrapper: torch.Tensor) -> dict[str, Any]:
    """The attributes of an instance that are no inner tensors."""
    names = {*flatten(wrapper)[0], *NOTED_BY_TORCH, *(OF_NESTED if wrapper.is_nested else ())}
    return {name: held for name, held in vars(wrapper).items() if name not in names}


def makers(kind: type) -> Iterator[tuple[type, str, Any]]:
    """The members of a class by which torch makes instances, takes them apart, and computes with them."""
    own = itertools.takewhile(lambda base: base is not torch.Tensor, kind.__mro__)
    for cls in own:
        for name in ("__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__", "__torch_dispatch__"):
            if name in vars(cls):
                yield cls, name, vars(cls)[name]
