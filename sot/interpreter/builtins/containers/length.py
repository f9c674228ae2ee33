"""len(), and other attributes of torch values that need no operation."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.interpreter.builtins import special_methods
from sot.interpreter.builtins.common import call_slot, foldable, is_native, overridden, run_native, slot, take
from sot.interpreter.objects.tensor_facts import refuse_replaced
from sot.interpreter.torch_ops.overrides import asked
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import special_methods as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import ANSWERS, Const, Opaque, Value, boolean
from sot.values.iterators import SliceValue
from sot.values.tensor import TensorValue, refuse_instances
from sot.values.text import VaryingText
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(len)
def len_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("len", args, kwargs, "obj", required=1)
    return value.len(m)


@ANSWERS.add((Opaque, "len"))
def len_of_opaque(m: Machine, value: Opaque) -> Value:
    raise Break(Reason.OPAQUE_VALUE, str(value))


@ANSWERS.add((TensorValue, "len"))
def len_of_tensor(m: Machine, value: TensorValue) -> Value:
    refuse_replaced(m, value, "__len__")
    return tensor_len(m, [value], {})


@ANSWERS.add((Const, "len"))
def len_of_constant(m: Machine, value: Const) -> Value:
    return run_native(m, len, value.real) if foldable(value, "__len__") else len_by_method(m, value)


@ANSWERS.add((VaryingText, "len"))
def len_of_text(m: Machine, value: VaryingText) -> Value:
    return value.characters(m) or len_of_constant(m, value)


@ANSWERS.add((Value, "len"))
def len_by_method(m: Machine, value: Value) -> Value:
    if not overridden(m, value, "__len__") and (found := value.length(m)) is not None:
        return found
    raw = slot(m, value, "__len__")
    if raw is None or isinstance(value, SliceValue):
        m.throw(TypeError, f"object of type {value.pytype.__name__!r} has no len()")
    if is_native(raw) and raw not in HANDLERS:
        raise Break(Reason.OPAQUE_CALL, f"len() of {value}")
    if special_methods.is_trusted(raw):
        return call_slot(m, value, "__len__", [])  # type: ignore[return-value]
    return special_methods.enter(m, polyfill.length, value, "__len__")


@handles(torch.Tensor.__len__)
def tensor_len(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = args
    if not isinstance(value, TensorValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    if value.fake.dim() == 0:
        m.throw(TypeError, "len() of a 0-d tensor")
    return torch_call(m, "call_function", len, [value], {}) if m.modes or asked(m, value) else (
        wrap_new(m, value.fake.shape[0]))


@handles(torch.Tensor.__iter__)
def tensor_iter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(iter).call(m, args, kwargs)


@handles(torch.is_tensor)
def is_tensor(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("is_tensor", args, kwargs, "obj", required=1)
    return boolean(issubclass(value.pytype, torch.Tensor))


@handles(torch.is_storage)
def is_storage(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    kind = args[0].pytype
    return boolean(issubclass(kind, (torch.UntypedStorage, torch.TypedStorage)) and kind.__module__.startswith("torch"))


@handles(torch.nn.Parameter)
def parameter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    data, requires_grad = take("Parameter", args, kwargs, "data", "requires_grad")
    if not isinstance(data, TensorValue) or m.assumptions.compiles:
        raise Break(Reason.UNSUPPORTED, "making a parameter")
    refuse_instances("making a parameter", [data])
    return torch_call(m, "call_function", torch.nn.Parameter, [data, requires_grad or Const(True)], {})


@handles(torch.nn.Buffer)
def buffer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    data, persistent = take("Buffer", args, kwargs, "data", "persistent")
    if not isinstance(data, TensorValue) or (data.fake.requires_grad and m.assumptions.compiles):
        raise Break(Reason.UNSUPPORTED, "making a buffer")
    refuse_instances("making a buffer", [data])
    made = torch_call(m, "call_method", "detach", [data], {})
    assert isinstance(made, TensorValue)
    if data.fake.requires_grad:
        torch_call(m, "call_method", "requires_grad_", [made], {})
    made.attrs = {"persistent": persistent or Const(True), "_is_buffer": Const(True)}
    return made
