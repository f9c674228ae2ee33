"""The result of a function that became a subgraph: tensors, alone or in tuples, lists and dicts with constants."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.graph import TensorRef
from sot.interpreter.control_flow.speculate import Refusal
from sot.values.base import ABSENT, Const, Value
from sot.values.objects import DictValue, ListValue, TupleValue
from sot.values.tensor import TensorValue, has_own_code

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def tensors_of(m: Machine, value: Value) -> list[TensorRef]:
    """The tensors of a result, in order. Raises Refusal for a result that a subgraph cannot have."""
    if isinstance(value, TensorValue):
        if has_own_code(value.pytype):
            raise Refusal(f"it returns an instance of {value.pytype.__qualname__}")
        return [value.ref]
    if type(value) is DictValue and value.pytype is dict and value.real is ABSENT:
        return [ref for key in value.keys(m) for ref in tensors_of(m, held(m, value, key))]
    if type(value) in (TupleValue, ListValue) and value.pytype in (tuple, list):
        return [ref for item in value.items_list(m) or () for ref in tensors_of(m, item)]
    if not isinstance(value, Const):
        raise Refusal(f"it returns {value}")
    return []


def with_tensors(m: Machine, value: Value, made: list[Value]) -> Value:
    """The same structure with the next tensors of ``made``, which is emptied, in place of its own."""
    if isinstance(value, TensorValue):
        return made.pop(0)
    if isinstance(value, (TupleValue, ListValue)):
        items = [with_tensors(m, item, made) for item in value.items_list(m) or ()]
        return TupleValue(items) if isinstance(value, TupleValue) else ListValue(items)
    if isinstance(value, DictValue):
        made_dict = DictValue()
        for key in value.keys(m):
            made_dict.set(m, key, with_tensors(m, held(m, value, key), made), value.key_value(m, key))
        return made_dict
    return value


def is_alike(m: Machine, a: Value, b: Value, outermost: bool = True) -> bool:
    """Whether a loop may carry a value and then the other one: both have one structure and the same integers.
    ``outermost``: a list is as good as a tuple.
    """
    if isinstance(a, (TupleValue, ListValue)) and isinstance(b, (TupleValue, ListValue)):
        xs, ys = a.items_list(m) or [], b.items_list(m) or []
        return (outermost or type(a) is type(b)) and len(xs) == len(ys) and all(
            is_alike(m, x, y, False) for x, y in zip(xs, ys, strict=True))
    if isinstance(a, DictValue) and isinstance(b, DictValue):
        keys = list(a.keys(m))
        return keys == list(b.keys(m)) and all(is_alike(m, held(m, a, k), held(m, b, k), False) for k in keys)
    if isinstance(a, Const) and isinstance(b, Const):
        return type(a.constant()) is type(b.constant()) is int and a.constant() == b.constant()
    return isinstance(a, TensorValue) and isinstance(b, TensorValue)


def held(m: Machine, value: DictValue, key: Any) -> Value:
    found = value.get(m, key)
    assert isinstance(found, Value)
    return found
