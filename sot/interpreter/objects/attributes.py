"""Attribute access, as ``object.__getattribute__`` and similar methods of CPython define it.

``load`` follows the descriptor protocol over Values: data descriptors of the type, then the instance's ``__dict__``,
then other attributes of the type, then ``__getattr__``. Descriptors and hooks in Python are entered as frames. Reads
from classes outside torch and the standard library are guarded.
"""
from __future__ import annotations

import collections
import functools
import threading
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.guards.guards import HasKeyGuard, IsGuard
from sot.guards.origin import Attr, ClassAttr, Item, known
from sot.interpreter.objects.computed_attributes import function_attrs, native_attr
from sot.interpreter.objects.lookup import (
    class_value,
    guard_protocol,
    is_data_descriptor,
    like_real,
    lookup,
    no_attribute,
)
from sot.polyfills import builtin as polyfill
from sot.support import user_annotations
from sot.support.errors import Break, Reason
from sot.support.lookups import own_dict
from sot.support.registry import HANDLERS
from sot.torch_compat.callables import PYBIND_METHOD
from sot.values.base import ABSENT, ANSWERS, ENTERED, NONE, Const, Opaque, Value
from sot.values.callables import BoundMethod, CellValue, FunctionValue, SuperValue
from sot.values.classes import ClassValue, DescriptorValue
from sot.values.constants import cannot_change, is_constant, is_library
from sot.values.iterators import CoroutineValue
from sot.values.objects import DictValue, ObjectValue, ReadOnlyDict, TupleValue
from sot.values.objects.class_attributes import ClassAttributes
from sot.values.wrapping import wrap, wrap_attr, wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

TUPLE_GETTER: Any = type(vars(collections.namedtuple("_", "field"))["field"])     # the fields of a named tuple
LRU_CACHE: Any = type(functools.lru_cache(len))
BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
                   type(np.random.Generator.random))      # of Cython


@ANSWERS.add((Value, "load_attr"))
def load(m: Machine, obj: Value, name: str) -> Value:
    """``obj.name``; raises AttributeError in the captured program if there is none."""
    if isinstance(obj, Const):
        if isinstance(obj.unguarded, types.ModuleType):
            return load_module(m, obj, name)
        if isinstance(obj.unguarded, type):
            return load_from_class(m, obj.real, name)
    cls = obj.pytype
    hook, owner = lookup(None, cls, "__getattribute__")
    if name == "__class__" and not isinstance(hook, types.FunctionType) and (
            lookup(None, cls, name)[0] is vars(object)["__class__"]):
        return wrap_known(m, cls)
    if hook is super.__getattribute__ or (
            not isinstance(hook, types.FunctionType) and getattr(hook, "__name__", None) != "__getattribute__"):
        raise Break(Reason.UNSUPPORTED, f"{hook} as __getattribute__")
    if isinstance(hook, types.FunctionType):
        function = class_value(m, hook, owner, "__getattribute__")
        fallback, owner = lookup(m, cls, "__getattr__")
        if fallback is ABSENT:
            return function.call(m, [obj, Const(name)], {})
        return m.enter(polyfill.getattribute_or_getattr,
                       [obj, Const(name), function, class_value(m, fallback, owner, "__getattr__")])
    return generic_load(m, obj, name)


def generic_load(m: Machine, obj: Value, name: str, asks: bool = True) -> Value:
    """``object.__getattribute__(obj, name)``. ``asks``: if that raises AttributeError, ``__getattr__`` is called."""
    cls = obj.pytype
    raw, owner = lookup(m, cls, name)
    if raw is vars(object)["__class__"]:
        return wrap_known(m, cls)
    if raw is not ABSENT:
        guard_protocol(m, type(raw))
    is_data = raw is not ABSENT and is_data_descriptor(raw)
    value = ABSENT if is_data else obj.load_held(m, name)
    if value is not ABSENT:
        return value
    if raw is ABSENT:
        return missing(m, obj, name) if asks else no_such_attribute(m, obj, name)
    if asks and isinstance(obj, ObjectValue) and may_raise(raw):
        hook, above = lookup(m, cls, "__getattr__")
        if isinstance(hook, types.FunctionType):
            return m.enter(polyfill.getattribute_or_getattr, [
                obj, Const(name), Const(object.__getattribute__), class_value(m, hook, above, "__getattr__")])
    return get_data(m, obj, raw, owner, name) if is_data else bind(m, obj, cls, raw, owner, name)


def may_raise(raw: Any) -> bool:
    """Whether reading it from an instance may raise AttributeError: it calls code, or is a slot that may be empty."""
    return isinstance(raw, (property, functools.cached_property, types.MemberDescriptorType)) or isinstance(
        lookup(None, type(raw), "__get__")[0], types.FunctionType)


def get_data(m: Machine, obj: Value, raw: Any, owner: type, name: str) -> Value:
    if isinstance(obj, Const) and owner is torch.FunctionSchema and is_constant(getattr(obj.real, name)):
        return native_attr(m, obj, name)
    if isinstance(raw, property):
        if raw.fget is None:
            m.throw(AttributeError, f"property {name!r} of {obj.pytype.__qualname__!r} object has no getter")
        getter = property_part(m, raw, owner, name, "fget")
        return getter.call(m, [obj], {})
    if isinstance(raw, types.MemberDescriptorType):
        return obj.load_slot(m, name)
    if isinstance(raw, types.GetSetDescriptorType):
        return obj.load_computed(m, name)
    if isinstance(raw, TUPLE_GETTER) and isinstance(obj, TupleValue):
        return m.settle_at(obj.items, raw.__reduce__()[1][0])
    getter, _ = lookup(None, type(raw), "__get__")
    if isinstance(getter, types.FunctionType):
        return m.enter(getter, [class_value(m, raw, owner, name), obj, Const(obj.pytype)])
    if isinstance(obj, Const):
        return native_attr(m, obj, name)
    raise Break(Reason.UNSUPPORTED, f"the descriptor {type(raw).__qualname__} {name!r}")


def bind_descriptor(m: Machine, raw: Any, obj: Value) -> Value:
    """``raw.__get__(obj)``, for an attribute that C code computes."""
    if not isinstance(raw, types.GetSetDescriptorType) or not issubclass(obj.pytype, raw.__objclass__):
        raise Break(Reason.OPAQUE_CALL, f"__get__ of {raw}")
    return obj.load_attr(m, raw.__name__)


def property_part(m: Machine, raw: property, owner: type, name: str, part: str) -> Value:
    function = getattr(raw, part)
    class_value(m, raw, owner, name)
    return wrap(m, function, Attr(ClassAttr(known(owner, owner.__qualname__), name), part))


@ANSWERS.add((Value, "load_held"))
def held(m: Machine, obj: Value, name: str) -> Value | Any:
    return ABSENT


@ANSWERS.add((ObjectValue, "load_held"))
def held_by_object(m: Machine, obj: ObjectValue, name: str) -> Value | Any:
    if obj._attrs is None and not has_dict(obj):
        return ABSENT
    return obj.attrs.get(m, name)


@ANSWERS.add((FunctionValue, "load_held"))
def held_by_function(m: Machine, obj: FunctionValue, name: str) -> Value | Any:
    return held_by_object(m, function_attrs(obj), name)


@ANSWERS.add((Const, "load_held"))
def held_by_constant(m: Machine, obj: Const, name: str) -> Value | Any:
    if obj.unguarded is None or (found := own_dict(obj.unguarded)) is None:
        return ABSENT
    if not is_library(obj.pytype.__module__):       # a member of an enum of the program
        owner = known(obj.unguarded, f"{obj.pytype.__qualname__}.{found.get('_name_', '')}")
        held_in = Attr(owner, "__dict__")
        m.guard(HasKeyGuard(held_in, name, name in found))
        return wrap(m, found[name], Item(held_in, name, f"{owner}.{name}")) if name in found else ABSENT
    return wrap_known(m, found[name]) if name in found else ABSENT


@ANSWERS.add((Opaque, "load_held"))
def opaque_attr(m: Machine, obj: Opaque, name: str) -> Value | Any:
    """What a C object holds under a name. Its ``__dict__`` can be read, but not captured."""
    if obj.origin is None or obj.pytype.__getattribute__ is not object.__getattribute__:
        raise obj.refusal(f"{obj}, an object of type {obj.pytype.__qualname__},")
    held = own_dict(obj.real)
    if held is None:
        return ABSENT
    if name in held:
        return wrap_attr(m, obj, name, held[name])
    m.guard(HasKeyGuard(Attr(obj.origin, "__dict__"), name, False))
    return ABSENT


def has_dict(obj: ObjectValue) -> bool:
    return obj.pytype.__dictoffset__ != 0 or issubclass(obj.pytype, threading.local)


def bind(m: Machine, obj: Value, cls: type, raw: Any, owner: type, name: str) -> Value:
    """An attribute of a class, read through an instance."""
    kind = type(raw)
    if kind is types.FunctionType:
        return BoundMethod(class_value(m, raw, owner, name), obj, name)
    if kind is staticmethod:
        return wrap_inside(m, raw, owner, name)
    if kind in (classmethod, types.ClassMethodDescriptorType):
        return bind_to_class(m, cls, raw, owner, name)
    if isinstance(raw, BUILTIN_METHODS):
        return BoundMethod(Const(raw), obj, name)
    if isinstance(raw, user_annotations.Wrapper) or kind is LRU_CACHE:
        return BoundMethod(class_value(m, raw, owner, name), obj, name)
    if kind is PYBIND_METHOD:
        return BoundMethod(Const(raw.__func__), obj, name)
    if kind is functools.cached_property:
        return m.enter(polyfill.cached_property_get, [obj, Const(name), wrap_known(m, raw.func)])
    if kind is types.BuiltinFunctionType or not hasattr(kind, "__get__"):
        return class_value(m, raw, owner, name)
    getter, _ = lookup(None, kind, "__get__")
    if isinstance(getter, types.FunctionType):
        return m.enter(getter, [class_value(m, raw, owner, name), obj, Const(cls)])
    if isinstance(raw, functools.partial):
        return class_value(m, raw, owner, name)
    raise Break(Reason.UNSUPPORTED, f"the descriptor {kind.__qualname__} {name!r}")


def wrap_inside(m: Machine, raw: Any, owner: type, name: str) -> Value:
    """The function inside a staticmethod or classmethod."""
    class_value(m, raw, owner, name)
    return wrap(m, raw.__func__, Attr(ClassAttr(known(owner, owner.__qualname__), name), "__func__"))


OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType)     # for example dict.__getitem__ as a __getattr__
MODULE_STORES = ("_parameters", "_buffers", "_modules")


def missing(m: Machine, obj: Value, name: str) -> Value:
    """Nothing was found: call ``__getattr__``, or raise AttributeError."""
    hook, owner = lookup(m, obj.pytype, "__getattr__")
    if hook is torch.nn.Module.__getattr__ and isinstance(obj, ObjectValue):
        for store in MODULE_STORES:
            held = obj.attrs.get(m, store)
            if isinstance(held, DictValue):
                value = held.get(m, name)
                if value is not ABSENT:
                    return value
    elif isinstance(hook, (types.FunctionType, *OF_C)):
        return class_value(m, hook, owner, "__getattr__").call(m, [obj, Const(name)], {})
    elif hook is not ABSENT:
        raise Break(Reason.UNSUPPORTED, f"{hook} as __getattr__")
    return no_such_attribute(m, obj, name)


def no_such_attribute(m: Machine, obj: Value, name: str) -> Any:
    return no_attribute(m, f"{obj.pytype.__name__!r} object has no attribute {name!r}", name, obj)


OF_ANY_CLASS = frozenset({"__name__", "__qualname__", "__module__", "__mro__", "__base__", "__bases__"})


# ---- classes and modules ----------------------------------------------------------------------------------
def load_from_class(m: Machine, cls: type, name: str) -> Value:
    """``cls.name``"""
    meta_raw, meta_owner = lookup(None, type(cls), name)
    if meta_raw is not ABSENT and is_data_descriptor(meta_raw):
        if isinstance(meta_raw, property):
            return property_part(m, meta_raw, meta_owner, name, "fget").call(m, [Const(cls)], {})
        made = m.made_classes.get(id(cls))
        if meta_raw is vars(type)["__dict__"]:
            return dict_of_class(m, cls, made)
        member = None if made is None else made.member(name)
        if isinstance(getattr(type(vars(cls).get(name)), "__get__", None), types.FunctionType) or (
                member is not None and hasattr(member.pytype, "__get__")):
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of a class, where it is a descriptor,")
        if member is not None:
            return member
        if made is not None and name not in OF_ANY_CLASS:
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of a class that is being made")
        try:
            found = getattr(cls, name)
        except AttributeError as e:
            return like_real(m, e, wrap_known(m, cls))
        if made is not None or cannot_change(cls):
            return wrap_known(m, found)
        origin = Attr(known(cls, cls.__qualname__), name)
        if name in ("__bases__", "__mro__"):
            m.guard(IsGuard(origin, found))
            return wrap_known(m, found)
        return wrap(m, found, origin)
    raw, owner = lookup(m, cls, name)
    if raw is not ABSENT:
        return bind_to_class(m, cls, raw, owner, name)
    if meta_raw is not ABSENT:
        return bind(m, Const(cls), type(cls), meta_raw, meta_owner, name)
    hook, _ = lookup(None, type(cls), "__getattr__")
    if isinstance(hook, types.FunctionType) and not is_library(hook.__module__):
        return m.enter(hook, [Const(cls), Const(name)])
    refuse_written(m, cls)
    try:
        return wrap_known(m, getattr(cls, name))
    except AttributeError as e:
        return like_real(m, e, Const(cls))


def dict_of_class(m: Machine, cls: type, made: ClassValue | None) -> Value:
    """``cls.__dict__``"""
    if made is None:
        attrs = m.written_classes.get(id(cls))
        if attrs is None:
            attrs = m.written_classes[id(cls)] = ClassAttributes(cls)
        return ReadOnlyDict(attrs, cls)
    held = DictValue(dict)
    for name, raw in vars(cls).items():
        member = made.member(name) or Const(raw)
        if isinstance(raw, (staticmethod, classmethod)) and isinstance(member, FunctionValue):
            member = DescriptorValue(type(raw), [member])       # type makes these of __new__ and __init_subclass__
        held.overlay[name] = member
    return ReadOnlyDict(held, cls)


def bind_to_class(m: Machine, cls: type, raw: Any, owner: type, name: str) -> Value:
    kind = type(raw)
    if kind is TUPLE_GETTER and id(owner) in m.made_classes:
        raise Break(Reason.UNSUPPORTED, f"the descriptor {name} of a class that is being made")
    if kind is staticmethod:
        return wrap_inside(m, raw, owner, name)
    if kind is classmethod:
        return BoundMethod(wrap_inside(m, raw, owner, name), Const(cls), name)
    if kind is types.ClassMethodDescriptorType:     # not by name, because super() skips what the class has
        if raw in HANDLERS or id(cls) in m.made_classes:
            return BoundMethod(Const(raw), Const(cls), name)
        return wrap_known(m, raw.__get__(None, cls))
    if kind is types.FunctionType or not hasattr(kind, "__get__") or isinstance(raw, (property, *BUILTIN_METHODS)):
        return class_value(m, raw, owner, name)
    if kind is types.BuiltinFunctionType:
        return Const(raw)
    getter, _ = lookup(None, kind, "__get__")
    if isinstance(getter, types.FunctionType) and (not is_library(getter.__module__) or makes_function(cls, name)):
        return m.enter(getter, [class_value(m, raw, owner, name), NONE, Const(cls)])
    refuse_written(m, cls)
    return wrap_known(m, getattr(cls, name))


def makes_function(cls: type, name: str) -> bool:
    """Whether each access makes a new function, as ``partialmethod`` does."""
    found = getattr(cls, name)
    return isinstance(found, types.FunctionType) and getattr(cls, name) is not found


def refuse_written(m: Machine, cls: type) -> None:
    """Break where the class itself would be read, if the program has written attributes that are not in it yet."""
    if m.written_classes and any(
            id(owner) in m.written_classes and m.written_classes[id(owner)].overlay for owner in cls.__mro__):
        raise Break(Reason.UNSUPPORTED, f"reading {cls.__qualname__} after a change of its attributes")


def load_module(m: Machine, obj: Const, name: str) -> Value:
    """``module.name``"""
    module = obj.real
    if name == "__dict__" and lookup(m, type(module), name)[1] is types.ModuleType:
        return m.namespace(module.__dict__)
    value = m.namespaces[id(module.__dict__)].get(m, name) if id(module.__dict__) in m.namespaces else ABSENT
    if value is not ABSENT:
        return value
    raw, owner = lookup(m, type(module), name)
    if owner is not types.ModuleType and raw is not ABSENT and is_data_descriptor(raw):
        return get_data(m, obj, raw, owner, name)       # a flag of torch.backends
    held = Attr(known(module, module.__name__), "__dict__")
    try:
        real = getattr(module, name)
    except AttributeError as e:
        m.guard(HasKeyGuard(held, name, False))
        return like_real(m, e, obj)
    if name in vars(module) or not is_library(module.__name__):
        return wrap(m, real, Attr(known(module, module.__name__), name))
    m.guard(HasKeyGuard(held, name, False))     # a library's __getattr__ returns the same at each call
    return wrap_known(m, real)


@ANSWERS.add((CellValue, "load_attr"))
def load_of_cell(m: Machine, obj: CellValue, name: str) -> Value:
    if name != "cell_contents":
        return load(m, obj, name)
    contents = obj.get(m)
    return m.throw(ValueError, "Cell is empty") if contents is ABSENT else contents


@ANSWERS.add((CoroutineValue, "load_attr"))
def load_of_coroutine(m: Machine, obj: CoroutineValue, name: str) -> Value:
    if obj.pytype is types.CoroutineType and name in ("send", "throw", "close"):
        return BoundMethod(Const(getattr(types.CoroutineType, name)), obj, name)
    raise Break(Reason.SUSPENDS, obj.name)


@ANSWERS.add((SuperValue, "load_attr"))
def load_super(m: Machine, sup: SuperValue, name: str) -> Value:
    """``super(cls, self_).name``"""
    self_ = sup.self_
    bound = isinstance(self_, Const) and isinstance(self_.real, type) and sup.cls in (self_.real.__mro__ or ())
    start = self_.real if bound else self_.pytype
    mro = start.__mro__ or ()
    if sup.cls not in mro:
        raise Break(Reason.UNSUPPORTED, f"super() of a class that is not yet made, {start.__name__},")
    refuse_written(m, start)
    for owner in mro[mro.index(sup.cls) + 1:]:
        if name in owner.__dict__:
            raw = owner.__dict__[name]
            if start is not self_.pytype:
                return bind_to_class(m, start, raw, owner, name)
            if is_data_descriptor(raw):
                return get_data(m, self_, raw, owner, name)
            return bind(m, self_, start, raw, owner, name)
    return m.throw(AttributeError, f"'super' object has no attribute {name!r}")


# ---- special methods ----------------------------------------------------------------------------------------
def special(m: Machine, obj: Value, name: str) -> Value | None:
    """The special method of an object's type, bound; None if the type has none."""
    raw, owner = lookup(m, obj.pytype, name)
    if raw is ABSENT or raw is None:
        return None
    return bind(m, obj, obj.pytype, raw, owner, name)


def special_method(m: Machine, obj: Value, name: str) -> Value:
    """The special method of an object's type, bound; a break if the type has none."""
    method = special(m, obj, name)
    if method is None:
        raise Break(Reason.OPERATION_FAILED, f"{obj.pytype.__name__!r} object has no {name}")
    return method


def call_special(m: Machine, obj: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``type(obj).name(obj, *args, **kwargs)``"""
    method = special_method(m, obj, name)
    if method is ENTERED:
        raise Break(Reason.UNSUPPORTED, f"{name}, which Python code looks up,")
    return method.call(m, args, kwargs)


@ANSWERS.add((Value, "call"))
def call_object(m: Machine, obj: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``obj(*args, **kwargs)``, by ``__call__``"""
    return call_special(m, obj, "__call__", args, kwargs)
