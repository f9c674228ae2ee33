"""Subscripts and membership: ``obj[key]``, ``obj[key] = value``, ``del obj[key]`` and ``item in obj``.

The instructions and the functions of the operator module share this code. Containers use the handlers of their slots
(sequences.py, mappings.py, sets.py). A subclass's special method in Python is entered as a frame instead.
"""
from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

import torch

from sot.graph.fake_rules import select
from sot.interpreter.builtins.common import (
    call_slot,
    call_slot_for_effect,
    equal,
    fix_nan,
    fold,
    foldable,
    has_own_index,
    no_keywords,
    slot,
    take,
)
from sot.interpreter.frame import DISCARD
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.torch_ops import deferred_scalars, elements
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import operators as polyfill
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import ANSWERS, NONE, Const, NotConstant, Opaque, Value, boolean
from sot.values.deferred_scalars import DeferredScalar
from sot.values.iterators import GeneratorValue, IteratorValue, SliceValue
from sot.values.numbers import is_among, is_dynamic
from sot.values.objects import TupleValue
from sot.values.objects.identities import IdentityNumber
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

WHOLE = Const(slice(None))


def refuse_deferred(obj: Value, key: Value) -> None:
    """Only tensors have elements at a position that is read after the graph. Python looks up a key of a dict."""
    if issubclass(obj.pytype, dict) and obj.pytype.__getitem__ is dict.__getitem__:
        return
    for part in key.slice_parts if isinstance(key, SliceValue) else (key,):
        if isinstance(part, DeferredScalar) and not isinstance(part, IdentityNumber):
            raise part.needed()


# ---- reading
@ANSWERS.add((Value, "getitem"))
def getitem(m: Machine, obj: Value, key: Value) -> Value:
    """``obj[key]``, by the methods of its class."""
    refuse_deferred(obj, key)
    result = call_slot(m, obj, "__getitem__", [key])
    if result is None:
        refuse_opaque(obj)
        m.throw(TypeError, f"{obj.pytype.__name__!r} object is not subscriptable")
    return result  # type: ignore[return-value]


@ANSWERS.add((TensorValue, "getitem"))
def part_of_tensor(m: Machine, obj: TensorValue, key: Value) -> Value:
    key = elements.with_tensors(key, obj)
    part: Value = obj
    if any(is_dynamic(v) or isinstance(v, DeferredScalar) for v in (
            key.items if isinstance(key, TupleValue) else [key])):
        part, key = selected(m, obj, key)
        if isinstance(key, TupleValue) and not key.items:
            return part
    return with_bounds(m, operator.getitem, part, key)


def with_bounds(m: Machine, function: Any, part: Value, key: Value, *stored: Value) -> Value:
    """A subscript of a tensor. A tensor that is a bound of a slice is read if torch needs its value."""
    try:
        return torch_call(m, "call_function", function, [part, key, *stored], {})
    except Break:
        if (bounds := with_bounds_read(m, key)) is None:
            raise
    return torch_call(m, "call_function", function, [part, bounds, *stored], {})


def with_bounds_read(m: Machine, key: Value) -> Value | None:
    """The key with numbers in place of the tensors in its slices; None if it has none that may be read."""
    parts: list[Value] = []
    for part in m.settle(key.items) if isinstance(key, TupleValue) else [key]:
        if isinstance(part, SliceValue) and any(isinstance(v, TensorValue) for v in part.slice_parts):
            bounds = [bound(m, v) if isinstance(v, TensorValue) else v for v in part.slice_parts]
            if None in bounds:
                return None
            parts.append(SliceValue(bounds))    # type: ignore[arg-type]
        else:
            parts.append(part)
    if not isinstance(key, TupleValue):
        return None if parts[0] is key else parts[0]
    return None if all(map(operator.is_, parts, key.items)) else TupleValue(parts)


def bound(m: Machine, tensor: TensorValue) -> Value | None:
    """A bound of a slice, which torch reads off a tensor."""
    if not elements.is_position(tensor.ref) or not deferred_scalars.begin_to_read(m, "int", tensor):
        return None
    return deferred_scalars.read(m, "int", tensor)


def selected(m: Machine, obj: Any, key: Value, stores: bool = False) -> tuple[Any, Value]:
    """The tensor after all indices that are varying numbers, and the rest of the key. torch would make a constant of
    such an index. Guards keep it in range, where they can: a graph that changes its inputs should not raise.
    """
    parts = m.settle(key.items) if isinstance(key, TupleValue) else [key]
    plain = all(v.pytype in (int, slice, type(None), type(Ellipsis)) for v in parts)
    taken = [v for v in parts if v.pytype in (int, slice)]
    if not plain or len(taken) > obj.fake.dim():
        return obj, key
    if any(v is NONE for v in parts):       # torch makes these axes before it takes an element to the right of them
        axes = [v if v.pytype in (type(None), type(Ellipsis)) else WHOLE for v in parts]
        obj = torch_call(m, "call_function", operator.getitem, [obj, TupleValue(axes)], {})
        parts = [WHOLE if v is NONE else v for v in parts]
        taken = [v for v in parts if v.pytype in (int, slice)]
    rest: list[Value] = []
    dim, skipped = 0, obj.fake.dim() - len(taken)
    for position, v in enumerate(parts):
        if v.pytype is type(Ellipsis):
            dim += skipped
        elif is_dynamic(v) or isinstance(v, DeferredScalar):
            guarded = stores or elements.may_be_guarded(v)
            if guarded and not elements.is_in_range(m, v, obj.fake.shape[dim]):
                raise Break(Reason.OPERATION_FAILED, f"{'setitem' if stores else 'getitem'}: an index out of range")
            obj = selected_at(m, obj, dim, v, None if guarded else position)
            continue
        else:
            dim += 1
        rest.append(v)
    return obj, TupleValue([] if all(v is WHOLE for v in rest) else rest)


def selected_at(m: Machine, obj: Any, dim: int, index: Value, position: int | None) -> Any:
    """The part at an index, which may be out of range if the position in the key is given."""
    target, more = (torch.select, []) if position is None else (select, [Const(position)])
    try:
        return torch_call(m, "call_function", target, [obj, Const(dim), index, *more], {})
    except PyRaise:     # the parts to the left of it may raise first
        raise Break(Reason.OPERATION_FAILED, "getitem: an index out of range") from None


@ANSWERS.add((Const, "getitem"))
def constant_item(m: Machine, obj: Const, key: Value) -> Value:
    """An item of a string, a range, an enum class, or ``cls[...]``."""
    refuse_deferred(obj, key)
    real = obj.real
    if isinstance(real, (tuple, frozenset)) and isinstance(key, (Const, SliceValue)):
        result = fold(m, operator.getitem, [obj, key])
        if result is not None:
            return result
    if isinstance(real, type):
        return class_item(m, obj, key)
    if isinstance(real, types.MappingProxyType) and isinstance(key, Const) and key.real in real:
        return wrap_known(m, real[key.real])
    if foldable(obj, "__getitem__"):
        if isinstance(key, TensorValue):
            key = torch_call(m, "call_function", operator.index, [key], {})
        result = fold(m, operator.getitem, [obj, key])
        if result is not None:
            return result
        if has_own_index(m, key):
            return m.enter(polyfill.item_by_index, [obj, key])
    result = call_slot(m, obj, "__getitem__", [key])
    if result is None:
        m.throw(TypeError, f"{obj.pytype.__name__!r} object is not subscriptable")
    return result  # type: ignore[return-value]


def class_item(m: Machine, obj: Const, key: Value) -> Value:
    """``cls[key]``: the metaclass decides (enums), then ``__class_getitem__`` (generics)."""
    maker = slot(m, obj, "__getitem__")
    if maker is None:
        own, _ = lookup(None, obj.real, "__class_getitem__")
        if isinstance(own, classmethod) and isinstance(own.__func__, types.FunctionType) and (
                own.__func__.__module__ != "typing"):
            return obj.load_attr(m, "__class_getitem__").call(m, [key], {})
    elif not foldable(obj, "__getitem__"):
        return call_slot(m, obj, "__getitem__", [key])  # type: ignore[return-value]
    result = fold(m, operator.getitem, [obj, key])
    if result is None:
        raise Break(Reason.UNSUPPORTED, f"an item of {obj}")
    return result


# ---- writing
@ANSWERS.add((Value, "setitem"))
def setitem(m: Machine, obj: Value, key: Value, value: Value) -> Value | None:
    refuse_deferred(obj, key)
    result = call_slot_for_effect(m, obj, "__setitem__", [key, value])
    if result is None:
        refuse_opaque(obj)
        m.throw(TypeError, f"{obj.pytype.__name__!r} object does not support item assignment")
    return result


@ANSWERS.add((TensorValue, "setitem"))
def set_part_of_tensor(m: Machine, obj: TensorValue, key: Value, value: Value) -> None:
    key = elements.with_tensors(key, obj)
    part: Value = obj
    parts = m.settle(key.items) if isinstance(key, TupleValue) else [key]
    of_file = m.assumptions.of_file     # exporting/stores.py writes the stores of a saved model
    if any(map(is_dynamic, parts)) and not of_file and not any(isinstance(v, DeferredScalar) for v in parts):
        part, rest = selected(m, obj, key, stores=True)
        if part is not obj:
            key = rest if isinstance(rest, TupleValue) and rest.items else Const(...)
    with_bounds(m, operator.setitem, part, key, value)


def delitem(m: Machine, obj: Value, key: Value) -> Value | None:
    """``del obj[key]``. A pushed frame drops its result."""
    refuse_deferred(obj, key)
    result = call_slot_for_effect(m, obj, "__delitem__", [key])
    if result is None:
        refuse_opaque(obj)
        m.throw(TypeError, f"{obj.pytype.__name__!r} object doesn't support item deletion")
    return result


def refuse_opaque(obj: Value) -> None:
    if isinstance(obj, Opaque):
        raise obj.refusal(str(obj))


# ---- membership
@ANSWERS.add((Value, "contains"))
def contains(m: Machine, container: Value, item: Value) -> Value:
    result = call_slot(m, container, "__contains__", [item])
    if result is not None:
        return result
    refuse_opaque(container)
    if slot(m, container, "__iter__") is None and slot(m, container, "__getitem__") is None:
        m.throw(TypeError, f"argument of type {container.pytype.__name__!r} is not iterable")
    return m.enter(polyfill.contains, [container, item])


@ANSWERS.add((IteratorValue, "contains"), (GeneratorValue, "contains"))
def contains_by_steps(m: Machine, container: Value, item: Value) -> Value:
    return m.enter(polyfill.contains, [container, item])


@ANSWERS.add((Const, "contains"))
def constant_contains(m: Machine, container: Const, item: Value) -> Value:
    if foldable(container, "__contains__"):
        elements_ = container.real if is_dynamic(item) else None
        if isinstance(elements_, (tuple, frozenset)) and (known := is_among(m, item, elements_)) is not None:
            return boolean(known)
        try:
            found = item.host(m)
        except NotConstant:
            pass
        else:
            fix_nan(m, item)
            return fold(m, operator.contains, [container, Const(found)])  # type: ignore[return-value]
    return contains(m, container, item)


@ANSWERS.add((TensorValue, "contains"))
def tensor_contains(m: Machine, container: TensorValue, item: Value) -> Value:
    """Membership in a tensor depends on its values, so it is a break. But no tensor contains a string."""
    return torch_call(m, "call_method", "__contains__", [container, item], {})


def among(m: Machine, items: list[Value], item: Value) -> bool | None:
    """``item in items``; None if that needs user code."""
    for candidate in items:
        same = equal(m, candidate, item)
        if same is None:
            return None
        if same:
            return True
    return False


def contains_in_sequence(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``list.__contains__`` and similar methods."""
    container, item = take("__contains__", args, kwargs, "self", "item", required=2)
    items = container.items_list(m) or []
    found = None
    if is_dynamic(item) and all(isinstance(v, Const) and not is_dynamic(v) for v in items):
        found = is_among(m, item, [v.real for v in items])
    if found is None:
        found = among(m, items, item)
    return m.enter(polyfill.contains, [container, item]) if found is None else boolean(found)


# ---- the functions of the operator module
@handles(operator.getitem)
def operator_getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, key = take("getitem", args, kwargs, "a", "b", required=2)
    return obj.getitem(m, key)


def for_effect(apply: Any, name: str, *parameters: str) -> Any:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        depth = len(m.frames)
        apply(m, *take(name, args, kwargs, *parameters, required=len(parameters)))
        if len(m.frames) > depth and m.frames[-1].on_return == DISCARD:
            raise Break(Reason.UNSUPPORTED, f"operator.{name} of an object of a user's class")
        return NONE
    return handler


HANDLERS[operator.setitem] = for_effect(lambda m, obj, key, value: obj.setitem(m, key, value), "setitem", "a", "b", "c")
HANDLERS[operator.delitem] = for_effect(delitem, "delitem", "a", "b")


@handles(operator.contains)
def operator_contains(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    container, item = take("contains", args, kwargs, "a", "b", required=2)
    return m.enter(polyfill.member, [container, item])


# ---- slices
@handles(slice)
def make_slice(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("slice", kwargs)
    if not 1 <= len(args) <= 3:
        raise Break(Reason.BAD_CALL, "slice()")
    parts = [NONE, args[0], NONE] if len(args) == 1 else [*args, NONE][:3]
    if all(isinstance(p, Const) and not is_dynamic(p) for p in parts):
        return Const(slice(*(p.real for p in parts)))
    return SliceValue(parts)


@handles(slice.indices)
def slice_indices(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = fold(m, slice.indices, args)
    if result is None:
        raise Break(Reason.TENSOR_VALUE, "slice.indices")
    return result
