"""Attribute access, as CPython's ``object.__getattribute__`` and its kin define it.

``load`` follows the descriptor protocol over Values: data descriptors of the type, then the instance's
``__dict__``, then other attributes of the type, then ``__getattr__``. Python-level descriptors and hooks are
entered as frames. What is read from classes outside torch and the standard library is guarded.
"""
from __future__ import annotations

import builtins
import collections
import functools
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.guards.guards import EmptySlotGuard, HasKeyGuard, IsGuard, slot_is_empty
from sot.guards.origin import Attr, ClassAttr, known
from sot.interpreter.frame import DISCARD
from sot.interpreter.wrapping import is_fixed, is_library
from sot.polyfills import builtin as polyfill
from sot.support import user_annotations
from sot.support.errors import Break, PyRaise, Reason, Skip
from sot.support.registry import HANDLERS
from sot.torch_compat.callables import PYBIND_METHOD
from sot.values.base import ABSENT, ENTERED, NONE, Const, Opaque, TracebackValue, Value, boolean
from sot.values.callables import BoundMethod, FunctionValue, SuperValue
from sot.values.objects import DELETED, DictValue, ExceptionValue, ListValue, ObjectValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

TUPLE_GETTER: Any = type(vars(collections.namedtuple("_", "field"))["field"])     # the fields of a named tuple
LRU_CACHE: Any = type(functools.lru_cache(len))
BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
                   type(np.random.Generator.random))      # of Cython


def _no_place() -> str:
    """How this Python says that an object without ``__dict__`` takes no attribute."""
    try:
        object().name = None  # type: ignore[attr-defined]
    except AttributeError as e:
        return str(e).replace("'object'", "{}").replace("'name'", "{}")
    raise AssertionError


class _Slotted:
    __slots__ = ("name",)


def _full_names() -> bool:
    """Does this Python name a class with its module when it says that a slot is empty?"""
    try:
        return bool(_Slotted().name)  # type: ignore[attr-defined]
    except AttributeError as e:
        return __name__ in str(e)


NO_PLACE, FULL_NAMES = _no_place(), _full_names()


def lookup(m: Machine | None, cls: type, name: str) -> tuple[Any, type]:
    """The attribute of a class found along its MRO, and the class that has it."""
    if cls.__mro__ is None:     # its metaclass is reckoning it at the moment
        raise Break(Reason.UNSUPPORTED, f"class {cls.__name__} before it is made")
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name], owner
        if m is not None and not is_fixed(owner.__module__):
            m.guard(HasKeyGuard(Attr(known(owner, owner.__qualname__), "__dict__"), name, False))
    return ABSENT, object


def class_value(m: Machine, raw: Any, owner: type, name: str) -> Value:
    """The Value of what a class holds under a name."""
    if (made := m.made_classes.get(id(owner))) is not None and (member := made.member(name)) is not None:
        return member
    return m.wrap(raw, ClassAttr(known(owner, owner.__qualname__), name))


def load(m: Machine, obj: Value, name: str) -> Value:
    """``obj.name``; raises AttributeError in the captured program when there is none."""
    if isinstance(obj, Const):
        if isinstance(obj.unguarded, types.ModuleType):
            return load_module(m, obj, name)
        if isinstance(obj.unguarded, type):
            return load_from_class(m, obj.real, name)
    cls = obj.pytype
    if name == "__class__" and lookup(None, cls, name)[0] is vars(object)["__class__"]:
        return m.wrap_known(cls)
    hook, owner = lookup(None, cls, "__getattribute__")
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


def generic_load(m: Machine, obj: Value, name: str) -> Value:
    """``object.__getattribute__(obj, name)``, then ``__getattr__``."""
    cls = obj.pytype
    raw, owner = lookup(m, cls, name)
    if raw is not ABSENT and is_data_descriptor(raw):
        return get_data(m, obj, raw, owner, name)
    value = instance_attr(m, obj, name)
    if value is not ABSENT:
        return value
    if raw is not ABSENT:
        return bind(m, obj, cls, raw, owner, name)
    return missing(m, obj, name)


def is_data_descriptor(raw: Any) -> bool:
    """Does it come before what an instance has, when it is read?"""
    return hasattr(type(raw), "__get__") and takes_writes(raw)


def takes_writes(raw: Any) -> bool:
    """Is it asked when the attribute of an instance is set or deleted?"""
    return hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__")


def get_data(m: Machine, obj: Value, raw: Any, owner: type, name: str) -> Value:
    if isinstance(raw, property):
        if raw.fget is None:
            m.throw(AttributeError, f"property {name!r} of {obj.pytype.__qualname__!r} object has no getter")
        getter = property_part(m, raw, owner, name, "fget")
        return getter.call(m, [obj], {})
    if isinstance(raw, types.MemberDescriptorType):
        return load_slot(m, obj, name)
    if isinstance(raw, types.GetSetDescriptorType):
        return load_computed(m, obj, name)
    if isinstance(raw, TUPLE_GETTER) and isinstance(obj, TupleValue):
        return m.settle_at(obj.items, raw.__reduce__()[1][0])
    getter, _ = lookup(None, type(raw), "__get__")
    if isinstance(getter, types.FunctionType):
        return m.enter(getter, [class_value(m, raw, owner, name), obj, Const(obj.pytype)])
    if isinstance(obj, Const):
        return native_attr(m, obj, name)
    raise Break(Reason.UNSUPPORTED, f"the descriptor {type(raw).__qualname__} {name!r}")


def bind_descriptor(m: Machine, raw: Any, obj: Value) -> Value:
    """``raw.__get__(obj)``, of an attribute that C code computes."""
    if not isinstance(raw, types.GetSetDescriptorType) or not issubclass(obj.pytype, raw.__objclass__):
        raise Break(Reason.OPAQUE_CALL, f"__get__ of {raw}")
    return obj.load_attr(m, raw.__name__)


def property_part(m: Machine, raw: property, owner: type, name: str, part: str) -> Value:
    function = getattr(raw, part)
    class_value(m, raw, owner, name)
    return m.wrap(function, Attr(ClassAttr(known(owner, owner.__qualname__), name), part))


def load_slot(m: Machine, obj: Value, name: str) -> Value:
    if isinstance(obj, ObjectValue):
        if name == "__dict__":
            return obj.attrs
        if name == "__suppress_context__" and isinstance(obj, ExceptionValue):
            return load_computed(m, obj, name)
        found = obj.slots.get(name) or obj.slots_read.get(name)
        if found is DELETED:
            empty_slot(m, obj, name)
        if found is not None:
            return found
        if name == "default_factory" and isinstance(obj, DictValue):
            return obj.default_factory or NONE
        if obj.real is not ABSENT:
            if slot_is_empty(obj.real, name):
                if obj.origin is not None:
                    m.guard(EmptySlotGuard(obj.origin, name))
                empty_slot(m, obj, name)
            value = m.wrap_attr(obj, name, object.__getattribute__(obj.real, name))
            obj.slots_read[name] = value
            return value
        if isinstance(obj, TupleValue) or isinstance(obj, ExceptionValue):
            return struct_field(m, obj, name)
        empty_slot(m, obj, name)
    if isinstance(obj, FunctionValue):
        return load_of_function(m, obj, name)
    if not isinstance(obj, Opaque):
        return native_attr(m, obj, name)
    if obj.origin is None or slot_is_empty(obj.real, name):
        raise obj.refusal(f"{obj}, an object of type {obj.pytype.__qualname__},")
    return m.wrap_attr(obj, name, getattr(obj.real, name))      # another at the next call, perhaps


def empty_slot(m: Machine, obj: Value, name: str) -> None:
    cls = obj.pytype
    owner = f"{cls.__module__}.{cls.__qualname__}" if FULL_NAMES else cls.__name__
    m.throw(AttributeError, f"{owner!r} object has no attribute {name!r}")


def struct_field(m: Machine, obj: ObjectValue, name: str) -> Value:
    """A named field of a struct sequence such as ``torch.return_types.max``; ``value`` of StopIteration."""
    if isinstance(obj, TupleValue):
        fields = [k for k in dir(obj.pytype) if type(getattr(obj.pytype, k)) is types.MemberDescriptorType]
        probe = obj.pytype(tuple(range(len(obj.items))))
        if name in fields:
            return m.settle_at(obj.items, getattr(probe, name))
    if name == "value" and isinstance(obj, ExceptionValue):
        return obj.args[0] if obj.args else NONE
    if name in ("name", "obj") and issubclass(obj.pytype, (AttributeError, NameError)):
        return NONE     # not given; what Python raises by itself has them among its slots
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")


CHAIN = ("args", "__cause__", "__context__", "__suppress_context__")


def load_computed(m: Machine, obj: Value, name: str) -> Value:
    """Attributes that C code computes."""
    if name == "__dict__" and isinstance(obj, ObjectValue):
        return obj.attrs
    if isinstance(obj, ExceptionValue) and obj.real is ABSENT:
        simple = {"args": lambda: TupleValue(list(obj.args)), "__cause__": lambda: obj.cause or NONE,
                  "__context__": lambda: context_of(m, obj), "__suppress_context__": lambda: boolean(obj.suppress),
                  "__traceback__": lambda: TracebackValue() if obj.trace else NONE}
        if name in simple:
            return simple[name]()
    if isinstance(obj, Const):
        return native_attr(m, obj, name)
    if isinstance(obj, ExceptionValue) and name in CHAIN and id(obj) not in m.mutated:
        return m.wrap_attr(obj, name, getattr(obj.real, name))
    if isinstance(obj, FunctionValue):
        return load_of_function(m, obj, name)
    if isinstance(obj, ListValue) and name == "maxlen":
        return m.wrap_new(obj.maxlen)
    what = f"reading .{name} of {obj}"
    raise obj.refusal(what, Reason.UNSUPPORTED) if isinstance(obj, Opaque) else Break(Reason.UNSUPPORTED, what)


def context_of(m: Machine, exception: ExceptionValue) -> Value:
    return exception.context or (m.handled_outside() if exception.raised_unchained else NONE)


WRITABLE = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__"})


def load_of_function(m: Machine, obj: FunctionValue, name: str) -> Value:
    if name in obj.fields:
        return obj.fields[name]
    if name == "__code__":
        return Const(obj.code)
    if name in ("__name__", "__qualname__"):
        return Const(obj.name.rpartition(".")[2] if name == "__name__" else obj.name)
    if name == "__closure__":
        return TupleValue(list(obj.closure)) if obj.closure else NONE
    if name == "__defaults__":
        return obj.made_defaults or (TupleValue(list(obj.defaults)) if obj.defaults else NONE)
    if name == "__kwdefaults__" and obj.real is ABSENT:
        return keyword_defaults(obj)
    if name == "__dict__":
        return function_attrs(obj).attrs
    if obj.real is not ABSENT and obj.origin is not None:
        try:
            return m.wrap_attr(obj, name, getattr(obj.real, name))
        except AttributeError as e:
            return like_real(m, e, obj)
    if name == "__annotations__" and obj.real is ABSENT:
        obj.annotations = obj.annotations or DictValue(dict)
        return obj.annotations
    if name == "__doc__" and obj.real is ABSENT:
        return m.wrap_new(types.FunctionType(obj.code, {}, None, None, (types.CellType(),) * len(obj.closure)).__doc__)
    if name == "__module__" and obj.real is ABSENT:
        return m.namespace(obj.namespace).get(m, "__name__") or NONE
    if name == "__type_params__" and obj.real is ABSENT:
        return TupleValue([])
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of a function")


def keyword_defaults(obj: FunctionValue) -> Value:
    made = DictValue(dict)
    made.overlay.update(obj.kwdefaults)
    return made if obj.kwdefaults else NONE


def function_attrs(obj: FunctionValue) -> ObjectValue:
    if obj.attrs is None:
        real = obj.real if obj.origin is not None else ABSENT
        obj.attrs = ObjectValue(types.FunctionType, real, obj.origin if real is not ABSENT else None)
        obj.attrs.attrs.owner = obj
    return obj.attrs


def native_attr(m: Machine, obj: Value, name: str) -> Value:
    """Read an attribute of a constant for real: it runs no user code."""
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
    return m.wrap_known(found) if not isinstance(found, (tuple, torch.Size)) else m.wrap_new(found)


def instance_attr(m: Machine, obj: Value, name: str) -> Value | Any:
    if isinstance(obj, (ObjectValue, FunctionValue)):
        if isinstance(obj, FunctionValue):
            obj = function_attrs(obj)
        if obj._attrs is None and not has_dict(obj):
            return ABSENT
        return obj.attrs.get(m, name)
    if isinstance(obj, Opaque):
        return opaque_attr(m, obj, name)
    if isinstance(obj, Const) and obj.unguarded is not None:
        held = getattr(obj.unguarded, "__dict__", None)
        if held is not None and name in held:
            return m.wrap_known(held[name])
    return ABSENT


def opaque_attr(m: Machine, obj: Opaque, name: str) -> Value | Any:
    """What an object made of C code holds under a name: its ``__dict__`` can be read, but is not followed."""
    if obj.origin is None or obj.pytype.__getattribute__ is not object.__getattribute__:
        raise obj.refusal(f"{obj}, an object of type {obj.pytype.__qualname__},")
    held = getattr(obj.real, "__dict__", None)
    if held is None:
        return ABSENT
    if name in held:
        return m.wrap_attr(obj, name, held[name])
    m.guard(HasKeyGuard(Attr(obj.origin, "__dict__"), name, False))
    return ABSENT


def has_dict(obj: ObjectValue) -> bool:
    return obj.pytype.__dictoffset__ != 0


def bind(m: Machine, obj: Value, cls: type, raw: Any, owner: type, name: str) -> Value:
    """An attribute of a class, seen through an instance."""
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
        return m.enter(polyfill.cached_property_get, [obj, Const(name), m.wrap_known(raw.func)])
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
    return m.wrap(raw.__func__, Attr(ClassAttr(known(owner, owner.__qualname__), name), "__func__"))


OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType)     # dict.__getitem__ as a __getattr__, for one
MODULE_STORES = ("_parameters", "_buffers", "_modules")


def missing(m: Machine, obj: Value, name: str) -> Value:
    """Nothing found: ``__getattr__``, or AttributeError."""
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
    return no_attribute(m, f"{obj.pytype.__name__!r} object has no attribute {name!r}", name, obj)


def no_attribute(m: Machine, text: str, name: str | None, obj: Value) -> Any:
    """Raise AttributeError, as CPython does: with the name and the object in it."""
    error = ExceptionValue(AttributeError, [Const(text)])
    error.slots = {"name": m.wrap_new(name), "obj": obj}
    raise PyRaise(error)


def like_real(m: Machine, error: AttributeError, obj: Value) -> Any:
    """Raise in the captured program what reading an attribute has raised for real."""
    return no_attribute(m, str(error), error.name, obj)


OF_ANY_CLASS = frozenset({"__name__", "__qualname__", "__module__", "__mro__", "__base__", "__bases__"})


# ---- classes and modules ----------------------------------------------------------------------------------
def load_from_class(m: Machine, cls: type, name: str) -> Value:
    """``cls.name``"""
    meta_raw, meta_owner = lookup(None, type(cls), name)
    if meta_raw is not ABSENT and is_data_descriptor(meta_raw):
        if isinstance(meta_raw, property):
            return property_part(m, meta_raw, meta_owner, name, "fget").call(m, [Const(cls)], {})
        made = m.made_classes.get(id(cls))
        if made is not None and (member := made.member(name)) is not None:
            return member
        if made is not None and name not in OF_ANY_CLASS:
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of a class that is being made")
        try:
            found = getattr(cls, name)
        except AttributeError as e:
            return like_real(m, e, m.wrap_known(cls))
        if made is None and name in ("__bases__", "__mro__") and not is_library(cls.__module__):
            m.guard(IsGuard(Attr(known(cls, cls.__qualname__), name), found))
        return m.wrap_known(found)
    raw, owner = lookup(m, cls, name)
    if raw is not ABSENT:
        return bind_to_class(m, cls, raw, owner, name)
    if meta_raw is not ABSENT:
        return bind(m, Const(cls), type(cls), meta_raw, meta_owner, name)
    hook, _ = lookup(None, type(cls), "__getattr__")
    if isinstance(hook, types.FunctionType) and not is_library(hook.__module__):
        return m.enter(hook, [Const(cls), Const(name)])
    try:
        return m.wrap_known(getattr(cls, name))
    except AttributeError as e:
        return like_real(m, e, Const(cls))


def bind_to_class(m: Machine, cls: type, raw: Any, owner: type, name: str) -> Value:
    kind = type(raw)
    if kind is staticmethod:
        return wrap_inside(m, raw, owner, name)
    if kind is classmethod:
        return BoundMethod(wrap_inside(m, raw, owner, name), Const(cls), name)
    if kind is types.ClassMethodDescriptorType:     # not by name: super() looks past what the class has
        if raw in HANDLERS or id(cls) in m.made_classes:
            return BoundMethod(Const(raw), Const(cls), name)
        return m.wrap_known(raw.__get__(None, cls))
    if kind is types.FunctionType or not hasattr(kind, "__get__") or isinstance(raw, (property, *BUILTIN_METHODS)):
        return class_value(m, raw, owner, name)
    if kind is types.BuiltinFunctionType:
        return Const(raw)
    getter, _ = lookup(None, kind, "__get__")
    if isinstance(getter, types.FunctionType) and not is_library(getter.__module__):
        return m.enter(getter, [class_value(m, raw, owner, name), NONE, Const(cls)])
    return m.wrap_known(getattr(cls, name))


def load_module(m: Machine, obj: Const, name: str) -> Value:
    """``module.name``"""
    module = obj.real
    if name == "__dict__" and lookup(m, type(module), name)[1] is types.ModuleType:
        return m.namespace(module.__dict__)
    value = m.namespaces[id(module.__dict__)].get(m, name) if id(module.__dict__) in m.namespaces else ABSENT
    if value is not ABSENT:
        return value
    try:
        real = getattr(module, name)
    except AttributeError as e:
        return like_real(m, e, obj)
    return m.wrap(real, Attr(known(module, module.__name__), name))


def load_super(m: Machine, sup: SuperValue, name: str) -> Value:
    """``super(cls, self_).name``"""
    self_ = sup.self_
    bound = isinstance(self_, Const) and isinstance(self_.real, type) and sup.cls in (self_.real.__mro__ or ())
    start = self_.real if bound else self_.pytype
    mro = start.__mro__ or ()
    if sup.cls not in mro:
        raise Break(Reason.UNSUPPORTED, f"super() of a class that is not yet made, {start.__name__},")
    for owner in mro[mro.index(sup.cls) + 1:]:
        if name in owner.__dict__:
            raw = owner.__dict__[name]
            if start is not self_.pytype:
                return bind_to_class(m, start, raw, owner, name)
            if is_data_descriptor(raw):
                return get_data(m, self_, raw, owner, name)
            return bind(m, self_, start, raw, owner, name)
    return m.throw(AttributeError, f"'super' object has no attribute {name!r}")


# ---- writing ------------------------------------------------------------------------------------------------
def store(m: Machine, obj: Value, name: str, value: Value | None) -> None:
    """``obj.name = value``, or ``del obj.name`` when value is None."""
    hook_name = "__delattr__" if value is None else "__setattr__"
    hook, owner = lookup(None, obj.pytype, hook_name)
    args = [obj, Const(name)] + ([] if value is None else [value])
    if not isinstance(hook, types.FunctionType) and getattr(hook, "__name__", None) != hook_name:
        if not isinstance(hook, OF_C) or Const(hook).call(m, args, {}) is ENTERED:
            raise Break(Reason.UNSUPPORTED, f"{hook} as {hook_name}")
        return
    if isinstance(hook, types.FunctionType) and isinstance(obj, ObjectValue):
        function = class_value(m, hook, owner, hook_name)
        assert isinstance(function, FunctionValue)
        m.enter(function, args, {}, DISCARD)
        return
    generic_store(m, obj, name, value)


def generic_store(m: Machine, obj: Value, name: str, value: Value | None) -> None:
    """``object.__setattr__`` and ``object.__delattr__``"""
    if isinstance(obj, FunctionValue) and obj.real is ABSENT and value is not None and name in WRITABLE:
        fields = obj.fields
        m.undoable(lambda: setattr(obj, "fields", fields))
        obj.fields = {**fields, name: value}
        return
    if isinstance(obj, FunctionValue) and obj.real is ABSENT and value is not None and (
            not name.startswith("__") or name in ("__wrapped__", "__isabstractmethod__")):
        function_attrs(obj).attrs.set(m, name, value)
        return
    if isinstance(obj, TensorValue):
        obj.store_attr(m, name, value)
        return
    if isinstance(obj, Const) and (made := m.made_classes.get(id(obj.real))) is not None:
        m.classes.store(m, made, name, value)
        return
    if obj.real is builtins:
        raise Skip(Reason.WATCHES, f"what sets {name} of builtins")     # by which capture works, too
    if not isinstance(obj, ObjectValue):
        raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {obj}")
    raw, owner = lookup(m, obj.pytype, name)
    if raw is not ABSENT and takes_writes(raw):
        store_data(m, obj, raw, owner, name, value)
        return
    if not has_dict(obj):
        m.throw(AttributeError, NO_PLACE.format(repr(obj.pytype.__name__), repr(name)))
    if value is not None:
        obj.attrs.set(m, name, value)
    elif obj.attrs.get(m, name) is ABSENT:
        m.throw(AttributeError, f"{obj.pytype.__name__!r} object has no attribute {name!r}")
    else:
        obj.attrs.delete(m, name)


def store_data(m: Machine, obj: ObjectValue, raw: Any, owner: type, name: str, value: Value | None) -> None:
    if isinstance(raw, property):
        part = "fdel" if value is None else "fset"
        if getattr(raw, part) is None:
            m.throw(AttributeError, f"property {name!r} of {obj.pytype.__qualname__!r} object has no "
                                    f"{'deleter' if value is None else 'setter'}")
        function = property_part(m, raw, owner, name, part)
        if not isinstance(function, FunctionValue):
            raise Break(Reason.UNSUPPORTED, f"the setter of {name}")
        m.enter(function, [obj] + ([] if value is None else [value]), {}, DISCARD)
    elif isinstance(obj, ExceptionValue) and (name in CHAIN or name == "__traceback__"):
        store_in_exception(m, obj, name, value)
    elif isinstance(raw, types.MemberDescriptorType) and not isinstance(obj, TupleValue):
        if value is None:
            try:
                load_slot(m, obj, name)
            except PyRaise:
                m.throw(AttributeError, name)
        if "__slots__" not in vars(owner) and not isinstance(obj, DictValue):
            raise Break(Reason.UNSUPPORTED, f"setting .{name} of {obj}")    # C decides, and may refuse
        m.touch(obj)
        if value is None and obj.real is ABSENT:
            del obj.slots[name]
        else:
            obj.slots[name] = DELETED if value is None else value
    else:
        setter, _ = lookup(None, type(raw), "__set__" if value is not None else "__delete__")
        if not isinstance(setter, types.FunctionType):
            raise Break(Reason.UNSUPPORTED, f"setting .{name} of {obj}")
        m.enter(setter, [class_value(m, raw, owner, name), obj] + ([] if value is None else [value]), {}, DISCARD)


def store_in_exception(m: Machine, obj: ExceptionValue, name: str, value: Value | None) -> None:
    """Attributes that C code keeps in an exception. The traceback is as it was, whoever puts it back."""
    if name == "__traceback__" and isinstance(value, TracebackValue):
        return
    m.touch(obj)
    if name == "args" and isinstance(value, TupleValue):
        obj.args = value.items_list(m) or []
    elif name == "__suppress_context__" and isinstance(value, Const) and value.pytype is bool:
        obj.suppress = value.real
    elif name in ("__cause__", "__context__") and (value is NONE or isinstance(value, ExceptionValue)):
        setattr(obj, name.strip("_"), None if value is NONE else value)
        obj.suppress = obj.suppress or name == "__cause__"
    else:
        raise Break(Reason.UNSUPPORTED, f"setting .{name} of {obj}")


# ---- special methods ----------------------------------------------------------------------------------------
def special(m: Machine, obj: Value, name: str) -> Value | None:
    """The special method of an object's type, bound; None if the type has none."""
    raw, owner = lookup(m, obj.pytype, name)
    if raw is ABSENT or raw is None:
        return None
    return bind(m, obj, obj.pytype, raw, owner, name)


def call_special(m: Machine, obj: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``type(obj).name(obj, *args, **kwargs)``"""
    method = special(m, obj, name)
    if method is None:
        raise Break(Reason.OPERATION_FAILED, f"{obj.pytype.__name__!r} object has no {name}")
    if method is ENTERED:
        raise Break(Reason.UNSUPPORTED, f"{name}, which Python code has to find,")
    return method.call(m, args, kwargs)


