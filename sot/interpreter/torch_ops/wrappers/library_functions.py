"""Functions of torch in Python that are one node: those that make, change and read a DTensor, functional
collectives, and masks. Questions about a mesh are asked during capture.

Their arguments besides tensors (meshes, placements, groups, functions) are constants of the node. A mesh or a group is
guarded by identity, so rank and size of the world are those of the captured call.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.guards import IsGuard
from sot.interpreter.torch_ops import overrides
from sot.interpreter.torch_ops.wrappers.instances import as_torch
from sot.support.errors import Break, Reason
from sot.torch_compat import functions
from sot.torch_compat.fake_tensors import has_constant
from sot.torch_compat.subclasses import collectives
from sot.torch_compat.subclasses.library_functions import FUNCTIONS, HELD, OF_MESHES
from sot.values.base import ABSENT, NONE, Const, Value
from sot.values.callables import FunctionValue
from sot.values.constants import is_library
from sot.values.objects import DictValue, ListValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def called(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call of such a function as a node, or the answer of a mesh; None for another function."""
    if function.__qualname__ in OF_MESHES.get(function.__module__, ()):
        return answer_of_mesh(m, function, args, kwargs)
    if function.__qualname__ not in FUNCTIONS.get(function.__module__, ()) or makes_strided(function, kwargs):
        return None
    if m.modes or any(overrides.asked(m, value) for value in args):     # an override sees what the function calls
        return None
    if "run_check" in kwargs or function.__qualname__ == "DTensor.from_local" and len(args) > 3:
        check = kwargs.get("run_check", args[3] if len(args) > 3 else None)
        if not isinstance(check, Const) or check.constant():
            raise Break(Reason.SIDE_EFFECT, f"{function.__qualname__} with run_check")
    return whole_node(m, function, args, kwargs)


def answer_of_mesh(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a mesh tells about itself, such as its part of some name; None if it raises."""
    tensors: list[Value] = []
    call = bound(function, [place(m, value, tensors) for value in args],
                 {name: place(m, value, tensors) for name, value in kwargs.items()})
    if tensors:
        return None
    try:
        found = call()
    except Exception:  # noqa: BLE001 - Python raises it again
        return None
    return ListValue([wrap_known(m, item) for item in found]) if type(found) is list else wrap_known(m, found)


def makes_strided(function: Any, kwargs: dict[str, Value]) -> bool:
    """Whether it makes a nested tensor with strides, which is no instance of a subclass."""
    layout = kwargs.get("layout", NONE)
    return function in functions.of_either_layout and isinstance(layout, Const) and layout.real in (
        None, torch.strided)


def whole_node(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A node that calls a Python function. What is no tensor is a constant of it."""
    tensors: list[Value] = []
    places = [place(m, value, tensors) for value in args]
    named = {name: place(m, value, tensors) for name, value in kwargs.items()}
    if not tensors:
        raise Break(Reason.OPAQUE_CALL, function.__qualname__)
    if function.__module__.startswith(("torch.distributed.", collectives.__name__)):
        if not m.assumptions.interprets and any(isinstance(v, TensorValue) and has_constant(v.fake) for v in tensors):
            raise Break(Reason.SIDE_EFFECT, f"{function.__qualname__}, which a compiler would call with a constant,")
        m.builder.changes_traceless = True      # what is sent to other processes is not sent again
    return as_torch(m, bound(function, places, named), tensors, {})


def place(m: Machine, value: Value, tensors: list[Value]) -> Callable[[tuple], Any]:
    """What gives an argument when it gets the tensors of the call."""
    if isinstance(value, TensorValue):
        tensors.append(value)
        index = len(tensors) - 1
        return lambda given: given[index]
    if isinstance(value, (TupleValue, ListValue)):
        items = [place(m, item, tensors) for item in m.settle(value.items)]
        kind = list if isinstance(value, ListValue) else tuple
        return lambda given: kind(item(given) for item in items)
    held = constant(m, value)
    return lambda given: held


def constant(m: Machine, value: Value) -> Any:
    if isinstance(value, Const):
        return value.constant()
    real = value.real
    if isinstance(value, FunctionValue) and real is not ABSENT and is_library(real.__module__):
        return real
    if real is ABSENT or value.origin is None or isinstance(value, DictValue) or not (
            type(real).__module__.startswith(HELD)) or id(value) in m.mutated:
        raise Break(Reason.OPAQUE_VALUE, f"{value} as an argument of a function of torch")
    m.guard(IsGuard(value.origin, real))
    return real


def bound(function: Any, places: list, named: dict[str, Any]) -> Callable[..., Any]:
    """A plain function of the tensors alone."""
    def call(*tensors: Any) -> Any:
        return function(*(at(tensors) for at in places), **{name: at(tensors) for name, at in named.items()})
    call.__name__ = call.__qualname__ = function.__qualname__.replace(".", "_")
    call.__module__ = __name__      # the printed graph would look up one of torch in torch
    return call
