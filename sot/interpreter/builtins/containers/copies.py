"""``copy.copy`` and ``copy.deepcopy`` of containers, objects and tensors."""
from __future__ import annotations

import collections
import copy
import copyreg
import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.guards import HasKeyGuard, IsGuard, LengthGuard
from sot.guards.origin import Attr, known
from sot.interpreter.builtins.common import EXACT, call_slot, is_native, is_none, slot, take
from sot.interpreter.loop import evaluate
from sot.interpreter.objects.tensor_facts import fact
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.wrapping import is_plain_class
from sot.polyfills.torch_code import copied_parameter
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.torch_compat.tensors import storage_id
from sot.values.base import ABSENT, Const, Value
from sot.values.callables import FunctionValue, known_function
from sot.values.objects import DELETED, DictValue, ListValue, ObjectValue, SetValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

REDUCERS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def refuse_copy(value: Value) -> Any:
    raise Break(Reason.UNSUPPORTED, f"a copy of {value}")


@handles(copy.copy)
def copy_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("copy", args, kwargs, "x", required=1)
    if is_atomic(m, value) or value.pytype is tuple:
        return value
    if slot(m, value, "__copy__") is not None:
        return call_slot(m, value, "__copy__", [])  # type: ignore[return-value]
    if value.pytype is set:
        return HANDLERS[set.copy](m, [value], {})
    if isinstance(value, TensorValue):
        return copied_tensor(m, value)
    return copied(m, value, lambda v: v, {})


@handles(copy.deepcopy)
def deepcopy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, memo = take("deepcopy", args, kwargs, "x", "memo", required=1)
    if not is_none(memo):
        raise Break(Reason.UNSUPPORTED, "copy.deepcopy with a memo")
    return deep(m, value, {"memory": set()})


def deep(m: Machine, value: Value, memo: dict[Any, Any]) -> Value:
    """The deep copy of a value, if that needs no user code."""
    if id(value) in memo:
        return memo[id(value)]
    if is_atomic(m, value):
        return value
    if value.pytype is tuple:
        old = value.items_list(m) or []
        new = [deep(m, v, memo) for v in old]
        return value if all(a is b for a, b in zip(old, new, strict=True)) else TupleValue(new)
    if isinstance(value, TensorValue):
        made = memo[id(value)] = deep_tensor(m, value, memo)
        return made
    if isinstance(value, TupleValue) or slot(m, value, "__deepcopy__") is not None:
        refuse_copy(value)
    return copied(m, value, lambda v: deep(m, v, memo), memo)


def copied_tensor(m: Machine, value: TensorValue) -> Value:
    """Another tensor with the same memory, without the history and the gradient."""
    if value.pytype is not torch.Tensor or has_more(m, value) or value.fake.is_conj() or value.fake.is_neg():
        refuse_copy(value)
    made = torch_call(m, "call_function", getattr, [value, Const("data")], {})
    assert isinstance(made, TensorValue)
    if value.fake.requires_grad:
        torch_call(m, "call_method", "requires_grad_", [made], {})
    return with_attributes(m, made, value.attrs)


def has_more(m: Machine, value: TensorValue) -> bool:
    """Whether a tensor has a gradient, new data, hooks, or attributes from before the call. The last are guarded."""
    if value.attrs.keys() & {"grad", "data"} or value in m.retained or any(
            handle.tensor is value for handle in m.added_hooks):
        return True
    if value.real is ABSENT or value.origin is None:
        return False
    m.guard(LengthGuard(Attr(value.origin, "__dict__"), len(vars(value.real))))
    m.guard(IsGuard(Attr(value.origin, "_backward_hooks"), None))
    return bool(vars(value.real)) or value.real._backward_hooks is not None


def with_attributes(m: Machine, made: TensorValue, attributes: dict[str, Value]) -> TensorValue:
    for name, held in attributes.items():
        if held is not DELETED:
            made.store_attr(m, name, held)
    return made


def deep_tensor(m: Machine, value: TensorValue, memo: dict[Any, Any]) -> Value:
    """A clone, if the program cannot tell it from a copy of the storage: no gradient, no view."""
    fake = value.fake
    if value.pytype is torch.nn.Parameter:      # the copy keeps nothing but the values
        return evaluate(m, known_function(m, copied_parameter), [value])
    if storage_id(fake) in memo["memory"]:
        refuse_copy(value)      # the copies share memory, too
    memo["memory"].add(storage_id(fake))
    if (value.pytype is not torch.Tensor or fake.requires_grad or has_more(m, value)
            or fact(m, value, "_is_view").real or fake.is_conj() or fake.is_neg() or not fake.is_contiguous()):
        refuse_copy(value)
    made = torch_call(m, "call_function", torch.clone, [value], {})
    assert isinstance(made, TensorValue)
    return with_attributes(m, made, {name: held if held is DELETED else deep(m, held, memo)
                                     for name, held in value.attrs.items()})


def is_atomic(m: Machine, value: Value) -> bool:
    """Whether the copy of a value is the value itself."""
    if isinstance(value, Const) and (value.pytype in EXACT or isinstance(value.real, type)):
        return True
    return isinstance(value, FunctionValue) or (isinstance(value, Const) and isinstance(value.real, enum.Enum))


def copied(m: Machine, value: Value, each: Any, memo: dict[Any, Any]) -> Value:
    """A copy of a list, set, dict or plain object. ``each`` copies its parts."""
    kind = value.pytype
    if isinstance(value, ListValue) and kind in (list, collections.deque):
        made = memo[id(value)] = ListValue([], kind)
        made.maxlen = value.maxlen
        made.items = [each(v) for v in m.settle(value.items)]
        return made
    if isinstance(value, SetValue) and kind is set:
        return SetValue({k: each(value.items[k]) for k in value.history_now(m).result})
    if isinstance(value, DictValue) and kind in (dict, collections.OrderedDict, collections.defaultdict):
        table = memo[id(value)] = DictValue(kind)
        table.default_factory = value.slots.get("default_factory", value.default_factory)
        for key in value.keys(m):
            table.set(m, key, each(value.get(m, key)), value.key_value(m, key))
        return table
    if type(value) is not ObjectValue or not is_plain_class(kind):
        refuse_copy(value)
    return copied_object(m, value, each, memo)  # type: ignore[arg-type]


def copied_object(m: Machine, value: ObjectValue, each: Any, memo: dict[Any, Any]) -> Value:
    """A new instance with the same attributes. Of what customises copies, a class may have ``__getstate__`` and
    ``__setstate__``, as modules do.
    """
    kind = value.pytype
    m.guard(HasKeyGuard(known(copyreg.dispatch_table, "copyreg.dispatch_table"), kind, kind in copyreg.dispatch_table))
    asks = isinstance(kind.__getattribute__, types.FunctionType)        # for the methods below
    if asks or kind in copyreg.dispatch_table:
        refuse_copy(value)
    own = {name: raw for name in REDUCERS if (raw := slot(m, value, name)) is not None and not is_native(raw)}
    getter, setter = own.pop("__getstate__", None), own.pop("__setstate__", None)
    if own or kind.__new__ is not object.__new__ or any("__slots__" in vars(c) for c in kind.__mro__[:-1]) or not all(
            raw is None or isinstance(raw, types.FunctionType) for raw in (getter, setter)):
        refuse_copy(value)
    made = memo[id(value)] = ObjectValue(kind)
    state = value.attrs if getter is None else evaluate(m, known_function(m, getter), [value])
    if not isinstance(state, DictValue) or state.pytype is not dict:
        refuse_copy(value)
    parts = {name: each(state.get(m, name)) for name in state.keys(m)}  # type: ignore[attr-defined]
    table = DictValue() if setter is not None and parts else made.attrs
    for name, part in parts.items():
        table.set(m, name, part)
    if table is not made.attrs:
        evaluate(m, known_function(m, setter), [made, table])
    return made
