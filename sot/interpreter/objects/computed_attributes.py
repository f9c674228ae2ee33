"""Attributes that C code computes or keeps: slots, fields of functions, exceptions and struct sequences."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING

import torch

from sot.guards.guards import EmptySlotGuard, slot_is_empty
from sot.interpreter.loop import evaluate
from sot.interpreter.objects.lookup import like_real, lookup
from sot.interpreter.unwinding import handled_outside
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, ANSWERS, NONE, Const, Opaque, Value, boolean
from sot.values.callables import BoundMethod, FunctionValue
from sot.values.objects import DELETED, DictValue, ExceptionValue, ListValue, ObjectValue, TupleValue
from sot.values.objects.exceptions import GroupValue, traceback_value
from sot.values.wrapping import wrap_attr, wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


class _Slotted:
    __slots__ = ("name",)


def _full_names() -> bool:
    """Whether this Python names a class with its module in the message about an empty slot."""
    try:
        return bool(_Slotted().name)  # type: ignore[attr-defined]
    except AttributeError as e:
        return __name__ in str(e)


FULL_NAMES = _full_names()


@ANSWERS.add((ObjectValue, "load_slot"))
def slot_of_object(m: Machine, obj: ObjectValue, name: str) -> Value:
    if name == "__dict__":
        return obj.attrs
    found = obj.slots.get(name) or obj.slots_read.get(name)
    if found is DELETED:
        empty_slot(m, obj, name)
    if found is not None:
        return found
    if obj.real is ABSENT:
        empty_slot(m, obj, name)
    if slot_is_empty(obj.real, name):
        if obj.origin is not None:
            m.guard(EmptySlotGuard(obj.origin, name))
        empty_slot(m, obj, name)
    value = wrap_attr(m, obj, name, object.__getattribute__(obj.real, name))
    obj.slots_read[name] = value
    return value


@ANSWERS.add((DictValue, "load_slot"))
def slot_of_dict(m: Machine, obj: DictValue, name: str) -> Value:
    if name == "default_factory" and name not in obj.slots and name not in obj.slots_read:
        return obj.default_factory or NONE
    return slot_of_object(m, obj, name)


@ANSWERS.add((TupleValue, "load_slot"))
def slot_of_tuple(m: Machine, obj: TupleValue, name: str) -> Value:
    """A named field of a struct sequence such as ``torch.return_types.max``."""
    if obj.real is not ABSENT or name == "__dict__" or name in obj.slots:
        return slot_of_object(m, obj, name)
    fields = [k for k in dir(obj.pytype) if type(getattr(obj.pytype, k)) is types.MemberDescriptorType]
    if name in fields:
        return m.settle_at(obj.items, getattr(obj.pytype(tuple(range(len(obj.items)))), name))
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")


@ANSWERS.add((ExceptionValue, "load_slot"))
def slot_of_exception(m: Machine, obj: ExceptionValue, name: str) -> Value:
    if name == "__suppress_context__":
        return obj.load_computed(m, name)
    if obj.real is not ABSENT or name == "__dict__" or name in obj.slots:
        return slot_of_object(m, obj, name)
    if isinstance(obj, GroupValue):
        return obj.new_args[0] if name == "message" else obj.members
    if obj.hosted is not None:
        return wrap_new(m, getattr(obj.hosted, name))
    if name == "value":
        return obj.args[0] if obj.args else NONE
    if name == "code" and len(obj.args) <= 1:
        return obj.args[0] if obj.args else NONE
    if name in ("name", "obj") and issubclass(obj.pytype, (AttributeError, NameError)):
        return NONE     # not given; exceptions that Python itself raises have them as slots
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")


@ANSWERS.add((Opaque, "load_slot"))
def slot_of_opaque(m: Machine, obj: Opaque, name: str) -> Value:
    if obj.origin is None or slot_is_empty(obj.real, name):
        raise obj.refusal(f"{obj}, an object of type {obj.pytype.__qualname__},")
    return wrap_attr(m, obj, name, getattr(obj.real, name))      # the next call may see another object


def empty_slot(m: Machine, obj: Value, name: str) -> None:
    cls = obj.pytype
    owner = f"{cls.__module__}.{cls.__qualname__}" if FULL_NAMES else cls.__name__
    m.throw(AttributeError, f"{owner!r} object has no attribute {name!r}")


CHAIN = ("args", "__cause__", "__context__", "__suppress_context__")


@ANSWERS.add((Value, "load_computed"))
def computed(m: Machine, obj: Value, name: str) -> Value:
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")


@ANSWERS.add((Opaque, "load_computed"))
def computed_of_opaque(m: Machine, obj: Opaque, name: str) -> Value:
    raise obj.refusal(f"reading .{name} of {obj}", Reason.UNSUPPORTED)


@ANSWERS.add((ObjectValue, "load_computed"))
def computed_of_object(m: Machine, obj: ObjectValue, name: str) -> Value:
    return obj.attrs if name == "__dict__" else computed(m, obj, name)


@ANSWERS.add((ListValue, "load_computed"))
def computed_of_list(m: Machine, obj: ListValue, name: str) -> Value:
    return wrap_new(m, obj.maxlen) if name == "maxlen" else computed_of_object(m, obj, name)


@ANSWERS.add((ExceptionValue, "load_computed"))
def computed_of_exception(m: Machine, obj: ExceptionValue, name: str) -> Value:
    if obj.real is not ABSENT:
        if name in CHAIN and id(obj) not in m.mutated:
            return wrap_attr(m, obj, name, getattr(obj.real, name))
        return computed_of_object(m, obj, name)
    if name == "args":
        return TupleValue(list(obj.args))
    if name == "__cause__":
        return obj.cause or NONE
    if name == "__context__":
        return context_of(m, obj)
    if name == "__suppress_context__":
        return boolean(obj.suppress)
    if name == "__traceback__":
        return traceback_value(obj) if obj.trace else NONE
    return computed_of_object(m, obj, name)


def context_of(m: Machine, exception: ExceptionValue) -> Value:
    return exception.context or (handled_outside(m) if exception.raised_unchained else NONE)


# The attributes of a function that can be set, with the class of their values.
WRITABLE = {name: kind for name, kind in {
    "__name__": str, "__qualname__": str, "__module__": object, "__doc__": object, "__annotations__": dict,
    "__annotate__": object, "__type_params__": tuple}.items() if name in vars(types.FunctionType)}
VALUES = 1      # annotationlib.Format.VALUE
HAS_ANNOTATE = "__annotate__" in vars(types.FunctionType)       # since CPython 3.14


@ANSWERS.add((FunctionValue, "load_slot"), (FunctionValue, "load_computed"))
def load_of_function(m: Machine, obj: FunctionValue, name: str) -> Value:
    if name in obj.fields:
        return obj.fields[name]
    if name == "__code__":
        return Const(obj.code)
    if name in ("__name__", "__qualname__") and (obj.real is ABSENT or obj.origin is None):
        return Const(obj.name.rpartition(".")[2] if name == "__name__" else obj.name)
    if name == "__globals__":
        return m.namespace(obj.namespace)
    if name == "__closure__":
        return TupleValue(list(obj.closure)) if obj.closure else NONE
    if name == "__defaults__":
        return obj.made_defaults or (TupleValue(list(obj.defaults)) if obj.defaults else NONE)
    if name == "__kwdefaults__" and obj.real is ABSENT:
        if not obj.kwdefaults:
            return NONE
        if obj.made_kwdefaults is None:
            obj.made_kwdefaults = DictValue(dict)
            obj.made_kwdefaults.overlay.update(obj.kwdefaults)
        return obj.made_kwdefaults
    if name == "__dict__":
        return function_attrs(obj).attrs
    if obj.real is not ABSENT and obj.origin is not None:
        try:
            return wrap_attr(m, obj, name, getattr(obj.real, name))
        except AttributeError as e:
            return like_real(m, e, obj)
    if name == "__annotate__" and obj.real is ABSENT and HAS_ANNOTATE and not obj.fields.get("__annotations__"):
        return NONE
    if name == "__annotations__" and obj.real is ABSENT:
        if obj.annotations is None and (annotate := obj.fields.get("__annotate__", NONE)) is not NONE:
            obj.annotations = evaluate(m, annotate, [Const(VALUES)])
        obj.annotations = obj.annotations or DictValue(dict)
        return obj.annotations
    if name == "__doc__" and obj.real is ABSENT:
        return wrap_new(m, types.FunctionType(obj.code, {}, None, None, (types.CellType(),) * len(obj.closure)).__doc__)
    if name == "__module__" and obj.real is ABSENT:
        found = m.namespace(obj.namespace).get(m, "__name__")
        return NONE if found is ABSENT else found
    if name == "__type_params__" and obj.real is ABSENT:
        return TupleValue([])
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of a function")


def function_attrs(obj: FunctionValue) -> ObjectValue:
    if obj.attrs is None:
        real = obj.real if obj.origin is not None else ABSENT
        obj.attrs = ObjectValue(types.FunctionType, real, obj.origin if real is not ABSENT else None)
        obj.attrs.attrs.owner = obj
    return obj.attrs


@ANSWERS.add((Value, "load_slot"), (Const, "load_computed"))
def native_attr(m: Machine, obj: Value, name: str) -> Value:
    """Read an attribute of a constant during capture. It runs no user code."""
    if obj.real is ABSENT:
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")
    try:
        found = getattr(obj.real, name)
    except AttributeError as e:
        like_real(m, e, obj)
    if callable(found) and getattr(found, "__self__", None) is obj.real:
        raw, _ = lookup(None, obj.pytype, name)
        if raw is not ABSENT:
            return BoundMethod(Const(raw), obj, name)
    if isinstance(found, types.MappingProxyType):
        return Const(found)
    return wrap_known(m, found) if not isinstance(found, (tuple, torch.Size)) else wrap_new(m, found)
