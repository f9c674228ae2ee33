"""``Tensor.apply_`` and ``Tensor.map_``: a node calls the function of the program for each element.

Only a function of which the program cannot tell when it runs is in a graph (``quiet_functions.py``), and only for
memory that the graph has made: these methods count no version.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.interpreter.torch_ops.data_sizes.asked_in_graph import can_ask, is_made_here
from sot.interpreter.torch_ops.data_sizes.storages import change_made_here
from sot.interpreter.torch_ops.hooks.quiet_functions import quiet_function
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from sot.interpreter.machine import Machine


def calling(name: str, function: FunctionType) -> Callable[..., None]:
    """The target of the node, which the printed graph refers to by name."""
    def call(tensor: torch.Tensor, *others: torch.Tensor) -> None:
        getattr(tensor, name)(*others, function)
    call.__name__ = call.__qualname__ = name
    return call


def _method(name: str) -> None:
    @handles(getattr(torch.Tensor, name))
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        *given, function = args or [NONE]
        tensors = [value for value in given if isinstance(value, TensorValue)]
        fits = len(given) == len(tensors) == (1 if name == "apply_" else 2) and not kwargs
        quiet = quiet_function(m, function) if fits and all(map(is_plain, tensors)) and can_ask(m, tensors) and (
            is_made_here(m, tensors[0])) else None
        if quiet is None:
            raise Break(Reason.OPAQUE_VALUE, f"{function} as an argument of {name}")
        change_made_here(m, name, calling(name, quiet), tuple(tensor.ref for tensor in tensors), tensors[0])
        return tensors[0]


def is_plain(tensor: TensorValue) -> bool:
    return tensor.pytype is torch.Tensor and tensor.fake.device.type == "cpu" and not tensor.fake.requires_grad


_method("apply_")
_method("map_")
