"""Attribute access, as CPython's ``object.__getattribute__`` and its kin define it.

``load`` follows the descriptor protocol over Values: data descriptors of the type, then the instance's
``__dict__``, then other attributes of the type, then ``__getattr__``. Python-level descriptors and hooks are
entered as frames. What is read from classes outside torch and the standard library is guarded.
"""
from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from sot.errors import Break, Reason
from sot.execute.frame import DISCARD
from sot.execute.wrapping import is_library
from sot.guards import HasKeyGuard
from sot.origin import Attr, ClassAttr, known
from sot.polyfills import builtin as polyfill
from sot.values.base import ABSENT, NONE, Const, Value
from sot.values.callables import BoundMethod, FunctionValue, SuperValue
from sot.values.objects import DictValue, ExceptionValue, ListValue, ObjectValue, TupleValue

if TYPE_CHECKING:
    from sot.execute.machine import Machine

BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)


def lookup(m: Machine | None, cls: type, name: str) -> tuple[Any, type]:
    """The attribute of a class found along its MRO, and the class that has it."""
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name], owner
        if m is not None and not is_library(owner.__module__):
            m.guard(HasKeyGuard(Attr(known(owner, owner.__qualname__), "__dict__"), name, False))
    return ABSENT, object


def class_value(m: Machine, raw: Any, owner: type, name: str) -> Value:
    """The Value of what a class holds under a name."""
    return m.wrap(raw, ClassAttr(known(owner, owner.__qualname__), name))


def load(m: Machine, obj: Value, name: str) -> Value:
    """``obj.name``; raises AttributeError in the captured program when there is none."""
    if isinstance(obj, Const):
        if isinstance(obj.real, types.ModuleType):
            return load_module(m, obj, name)
        if isinstance(obj.real, type):
            return load_from_class(m, obj.real, name)
    cls = obj.pytype
    if name == "__class__":
        return m.wrap_known(cls)
    hook, _ = lookup(None, cls, "__getattribute__")
    if isinstance(hook, types.FunctionType):
        return m.enter(hook, [obj, Const(name)])
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
    kind = type(raw)
    return hasattr(kind, "__get__") and (hasattr(kind, "__set__") or hasattr(kind, "__delete__"))


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
    getter, _ = lookup(None, type(raw), "__get__")
    if isinstance(getter, types.FunctionType):
        return m.enter(getter, [class_value(m, raw, owner, name), obj, Const(obj.pytype)])
    if isinstance(obj, Const):
        return native_attr(m, obj, name)
    raise Break(Reason.UNSUPPORTED, f"the descriptor {type(raw).__qualname__} {name!r}")


def property_part(m: Machine, raw: property, owner: type, name: str, part: str) -> Value:
    function = getattr(raw, part)
    class_value(m, raw, owner, name)
    return m.wrap(function, Attr(ClassAttr(known(owner, owner.__qualname__), name), part))


def load_slot(m: Machine, obj: Value, name: str) -> Value:
    if isinstance(obj, ObjectValue):
        found = obj.slots.get(name) or obj.slots_read.get(name)
        if found is not None:
            return found
        if name == "default_factory" and isinstance(obj, DictValue):
            return obj.default_factory or NONE
        if obj.real is not ABSENT:
            if not hasattr(obj.real, name):
                m.throw(AttributeError, name)
            value = m.wrap_attr(obj, name, getattr(obj.real, name))
            obj.slots_read[name] = value
            return value
        if isinstance(obj, TupleValue) or isinstance(obj, ExceptionValue):
            return struct_field(m, obj, name)
        m.throw(AttributeError, f"{obj.pytype.__name__!r} object has no attribute {name!r}")
    return native_attr(m, obj, name)


def struct_field(m: Machine, obj: ObjectValue, name: str) -> Value:
    """A named field of a struct sequence such as ``torch.return_types.max``; ``value`` of StopIteration."""
    if isinstance(obj, TupleValue):
        fields = [k for k in dir(obj.pytype) if type(getattr(obj.pytype, k)) is types.MemberDescriptorType]
        probe = obj.pytype(tuple(range(len(obj.items))))  # type: ignore[call-arg]
        if name in fields:
            return m.settle_at(obj.items, getattr(probe, name))
    if name == "value" and isinstance(obj, ExceptionValue):
        return obj.args[0] if obj.args else NONE
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")


def load_computed(m: Machine, obj: Value, name: str) -> Value:
    """Attributes that C code computes."""
    if name == "__dict__" and isinstance(obj, ObjectValue):
        return obj.attrs
    if isinstance(obj, ExceptionValue):
        simple = {"args": lambda: TupleValue(list(obj.args)), "__cause__": lambda: obj.cause or NONE,
                  "__context__": lambda: obj.context or NONE, "__suppress_context__": lambda: Const(obj.suppress)}
        if name in simple:
            return simple[name]()
    if isinstance(obj, Const):
        return native_attr(m, obj, name)
    if isinstance(obj, FunctionValue):
        return load_of_function(m, obj, name)
    if isinstance(obj, ListValue) and name == "maxlen":
        return m.wrap_new(obj.maxlen)
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of {obj}")


def load_of_function(m: Machine, obj: FunctionValue, name: str) -> Value:
    if name == "__code__":
        return Const(obj.code)
    if name in ("__name__", "__qualname__"):
        return Const(obj.name.rpartition(".")[2] if name == "__name__" else obj.name)
    if name == "__closure__":
        return TupleValue(list(obj.closure)) if obj.closure else NONE
    if name == "__defaults__":
        return TupleValue(list(obj.defaults)) if obj.defaults else NONE
    if name == "__dict__":
        return function_attrs(obj).attrs
    if obj.real is not ABSENT and obj.origin is not None:
        return m.wrap_attr(obj, name, getattr(obj.real, name))
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of a function")


def function_attrs(obj: FunctionValue) -> ObjectValue:
    if obj.attrs is None:
        real = obj.real if obj.origin is not None else ABSENT
        obj.attrs = ObjectValue(types.FunctionType, real, obj.origin if real is not ABSENT else None)
    return obj.attrs


def native_attr(m: Machine, obj: Value, name: str) -> Value:
    """Read an attribute of a constant for real: it runs no user code."""
    try:
        found = getattr(obj.real, name)
    except AttributeError as e:
        m.throw(AttributeError, str(e))
    if callable(found) and getattr(found, "__self__", None) is obj.real:
        raw, _ = lookup(None, obj.pytype, name)
        if raw is not ABSENT:
            return BoundMethod(Const(raw), obj, name)
    if isinstance(found, (list, dict, set)):
        return m.wrap_known(found)
    return m.wrap_known(found) if not isinstance(found, (tuple, torch.Size)) else m.wrap_new(found)


def instance_attr(m: Machine, obj: Value, name: str) -> Value | Any:
    if isinstance(obj, (ObjectValue, FunctionValue)):
        if isinstance(obj, FunctionValue):
            obj = function_attrs(obj)
        if obj._attrs is None and not has_dict(obj):
            return ABSENT
        return obj.attrs.get(m, name)
    if isinstance(obj, Const) and obj.real is not None:
        held = getattr(obj.real, "__dict__", None)
        if held is not None and name in held:
            return m.wrap_known(held[name])
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
    if kind is classmethod:
        return BoundMethod(wrap_inside(m, raw, owner, name), Const(cls), name)
    if isinstance(raw, BUILTIN_METHODS):
        return BoundMethod(Const(raw), obj, name)
    if kind is types.ClassMethodDescriptorType:
        return m.wrap_known(getattr(cls, name))
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
    elif isinstance(hook, types.FunctionType):
        return class_value(m, hook, owner, "__getattr__").call(m, [obj, Const(name)], {})
    return m.throw(AttributeError, f"{obj.pytype.__name__!r} object has no attribute {name!r}")


# ---- classes and modules ----------------------------------------------------------------------------------
def load_from_class(m: Machine, cls: type, name: str) -> Value:
    """``cls.name``"""
    meta_raw, meta_owner = lookup(None, type(cls), name)
    if meta_raw is not ABSENT and is_data_descriptor(meta_raw):
        if isinstance(meta_raw, property):
            return property_part(m, meta_raw, meta_owner, name, "fget").call(m, [Const(cls)], {})
        return m.wrap_known(getattr(cls, name))
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
        return m.throw(AttributeError, str(e))


def bind_to_class(m: Machine, cls: type, raw: Any, owner: type, name: str) -> Value:
    kind = type(raw)
    if kind is staticmethod:
        return wrap_inside(m, raw, owner, name)
    if kind is classmethod:
        return BoundMethod(wrap_inside(m, raw, owner, name), Const(cls), name)
    if kind is types.ClassMethodDescriptorType:
        return m.wrap_known(getattr(cls, name))
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
    if name == "__dict__":
        return m.namespace(module.__dict__)
    value = m.namespaces[id(module.__dict__)].get(m, name) if id(module.__dict__) in m.namespaces else ABSENT
    if value is not ABSENT:
        return value
    try:
        real = getattr(module, name)
    except AttributeError as e:
        return m.throw(AttributeError, str(e))
    return m.wrap(real, Attr(known(module, module.__name__), name))


def load_super(m: Machine, sup: SuperValue, name: str) -> Value:
    """``super(cls, self_).name``"""
    self_ = sup.self_
    start = self_.real if isinstance(self_, Const) and isinstance(self_.real, type) else self_.pytype
    mro = start.__mro__
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
    if isinstance(hook, types.FunctionType) and isinstance(obj, ObjectValue):
        args = [obj, Const(name)] + ([] if value is None else [value])
        function = class_value(m, hook, owner, hook_name)
        assert isinstance(function, FunctionValue)
        m.enter(function, args, {}, DISCARD)
        return
    generic_store(m, obj, name, value)


def generic_store(m: Machine, obj: Value, name: str, value: Value | None) -> None:
    """``object.__setattr__`` and ``object.__delattr__``"""
    if isinstance(obj, FunctionValue) and obj.real is ABSENT and value is not None and not name.startswith("__"):
        function_attrs(obj).attrs.set(m, name, value)
        return
    if not isinstance(obj, ObjectValue):
        raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {obj}")
    raw, owner = lookup(m, obj.pytype, name)
    if raw is not ABSENT and is_data_descriptor(raw):
        store_data(m, obj, raw, owner, name, value)
        return
    if not has_dict(obj):
        m.throw(AttributeError, f"{obj.pytype.__name__!r} object has no attribute {name!r}")
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
    elif isinstance(raw, types.MemberDescriptorType) and value is not None and not isinstance(obj, TupleValue):
        m.touch(obj)
        obj.slots[name] = value
    elif isinstance(obj, ExceptionValue) and name in ("__cause__", "__context__", "__suppress_context__", "args"):
        m.touch(obj)
        if name == "args" and isinstance(value, TupleValue):
            obj.args = value.items_list(m) or []
        elif name == "__suppress_context__" and value is not None:
            obj.suppress = bool(value.constant())
        else:
            setattr(obj, name.strip("_"), value)
    else:
        setter, _ = lookup(None, type(raw), "__set__" if value is not None else "__delete__")
        if not isinstance(setter, types.FunctionType):
            raise Break(Reason.UNSUPPORTED, f"setting .{name} of {obj}")
        m.enter(setter, [class_value(m, raw, owner, name), obj] + ([] if value is None else [value]), {}, DISCARD)


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
    return method.call(m, args, kwargs)


