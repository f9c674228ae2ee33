"""Instances of subclasses of Tensor: in the graph they are views, which get their class after the graph."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.interpreter.torch_ops.overrides import asked
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.wrapping import is_followed_tensor
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.tensors import convert_result
from sot.values.base import NONE, Const, Value
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(torch.Tensor.as_subclass)
def as_subclass(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The same memory as an instance of another class: a view in the graph, which gets its class after the graph."""
    tensor, kind = args if len(args) == 2 and not kwargs else (NONE, NONE)
    if not isinstance(tensor, TensorValue) or not isinstance(kind, Const) or not is_followed_tensor(kind.real) or (
            id(kind.real) in m.made_classes):
        raise Break(Reason.OPAQUE_CALL, "Tensor.as_subclass")
    asking, m.asks_classes = m.asks_classes, False
    modes, m.modes = m.modes, ()
    try:
        made = torch_call(m, "call_function", torch.ops.aten.alias.default, [tensor], {})
    finally:
        m.asks_classes, m.modes = asking, modes
    made.pytype = kind.real
    return made


@handles(torch.Tensor.__new__)
def new_tensor(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``Subclass(tensor)``, if the class has no ``__new__``."""
    kind, *data = args
    if not isinstance(kind, Const) or kind.real is torch.Tensor or kwargs or len(data) != 1 or asked(m, data[0]):
        raise Break(Reason.OPAQUE_CALL, f"{kind}()")
    return as_subclass(m, [*data, kind], {})


@handles(torch.Tensor._make_subclass)
def make_subclass(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A detached instance of a subclass. One that requires grad is a leaf and is left to Python."""
    kind, data = args if len(args) == 2 and not kwargs else (NONE, NONE)
    if not isinstance(kind, Const) or not isinstance(data, TensorValue) or asked(m, data) or m.modes:
        raise Break(Reason.OPAQUE_CALL, "Tensor._make_subclass")
    return as_subclass(m, [torch_call(m, "call_method", "detach", [data], {}), kind], {})


@handles(convert_result)
def converted(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The action of ``Tensor.__torch_function__`` on results: all tensors become instances of the class."""
    result, kind = args
    cls = kind.constant()
    if cls is torch.Tensor:
        return result
    if isinstance(result, TensorValue):
        return result if issubclass(result.pytype, cls) else as_subclass(m, args, {})
    if isinstance(result, TupleValue):
        return TupleValue([converted(m, [v, kind], {}) for v in m.settle(result.items)], result.pytype)
    if isinstance(result, ListValue):
        return ListValue([converted(m, [v, kind], {}) for v in m.settle(result.items)], result.pytype)
    return result


