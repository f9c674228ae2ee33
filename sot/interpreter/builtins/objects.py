"""Functions of any object: type, isinstance, attributes by name, hash, callable, super."""
from __future__ import annotations

import abc
import operator
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from sot.guards.class_guards import SubclassesGuard
from sot.guards.origin import ById, known
from sot.interpreter.builtins import special_methods
from sot.interpreter.builtins.common import (
    foldable,
    is_native,
    is_none,
    no_keywords,
    run_native,
    slot,
    take,
)
from sot.interpreter.namespaces import variable
from sot.interpreter.objects import attribute_stores, attributes, class_statements, introspection
from sot.interpreter.objects.lookup import class_value, lookup, takes_writes
from sot.polyfills import builtin as polyfill
from sot.support.errors import Break, PyRaise, Reason, Skip
from sot.support.registry import HANDLERS, handles
from sot.torch_compat.tensors import KNOWN_CHECKS
from sot.values.base import ABSENT, ENTERED, NONE, Const, Opaque, Value, boolean
from sot.values.callables import BoundMethod, CellValue, FunctionValue, SuperValue
from sot.values.constants import is_library
from sot.values.objects import ListValue, ObjectValue, TupleValue
from sot.values.tensor import TensorValue, has_own_code
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


# ---- types --------------------------------------------------------------------------------------------------
@handles(type)
def type_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 3 and not kwargs:
        return class_statements.called(m, args)
    if len(args) != 1:
        raise Break(Reason.CLASS_BODY, "")
    return wrap_known(m, args[0].pytype)


@handles(isinstance)
def isinstance_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, info = take("isinstance", args, kwargs, "obj", "class_or_tuple", required=2)
    return _any_class(m, value, info, _instance_of, polyfill.isinstance_of_any)


def _instance_of(m: Machine, value: Value, cls: Any) -> bool | None:
    """``instance_of``, which asks for ``__class__`` if the type is no subclass."""
    answer = instance_of(m, value, cls)
    if answer is False and isinstance(value, ObjectValue):
        hook, _ = lookup(None, value.pytype, "__getattribute__")
        claimed, _ = lookup(None, value.pytype, "__class__")
        if isinstance(hook, types.FunctionType) or claimed is not vars(object)["__class__"]:
            raise Break(Reason.UNSUPPORTED, f"the __class__ that {value} claims")
    return answer


@handles(issubclass)
def issubclass_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, info = take("issubclass", args, kwargs, "cls", "class_or_tuple", required=2)
    if not isinstance(value, Const) or not isinstance(value.real, type):
        if isinstance(value, Const) and typing.get_origin(value.real) is None:
            m.throw(TypeError, "issubclass() arg 1 must be a class")
        raise Break(Reason.UNSUPPORTED, f"issubclass of {value}")
    return _any_class(m, value, info, subclass_of, polyfill.issubclass_of_any)


def _any_class(m: Machine, value: Value, info: Value, test: Any, function: Any) -> Value:
    """Whether the test holds for one class of a class, tuple or union."""
    classes = flatten(m, info)
    for i, cls in enumerate(classes):
        try:
            answer = test(m, value, cls)
        except TypeError as e:      # not a class, or a protocol without runtime checks
            m.throw(TypeError, *e.args)
        if answer is None:
            return m.enter(function, [value, TupleValue([Const(c) for c in classes[i:]])])
        if answer:
            return boolean(True)
    return boolean(False)


def flatten(m: Machine, info: Value) -> list[Any]:
    """The classes of a classinfo: a class, a union, or tuples of them."""
    items = info.items_list(m) if isinstance(info, TupleValue) else None
    if isinstance(info, Const) and isinstance(info.real, tuple):
        items = [Const(v) for v in info.real]
    if items is not None:
        return [cls for item in items for cls in flatten(m, item)]
    if not isinstance(info, Const):
        raise Break(Reason.UNSUPPORTED, f"{info} as a class")
    real = info.real
    if isinstance(real, types.UnionType) or typing.get_origin(real) is typing.Union:
        return [cls for item in typing.get_args(real) for cls in flatten(m, Const(item))]
    if real is None:
        return [type(None)]
    if not isinstance(real, type) and typing.get_origin(real) is not None and typing.get_args(real):
        m.throw(TypeError, "isinstance() argument 2 cannot be a parameterized generic")
    return [real]


def instance_of(m: Machine, value: Value, cls: Any) -> bool | None:
    """``isinstance(value, cls)``; None if a metaclass decides whose code has to be executed."""
    if value.pytype is cls:
        return True
    check, _ = lookup(None, type(cls), "__instancecheck__")
    if isinstance(check, types.FunctionType) and check not in KNOWN_CHECKS and (
            not is_library(check.__module__) or check.__module__.partition(".")[0] == "torch"):
        return None
    if isinstance(value, Const):
        return isinstance(value.unguarded, cls)
    if getattr(cls, "_is_protocol", False):
        if value.real is not ABSENT and not isinstance(value, TensorValue):
            return isinstance(value.real, cls)
        return introspection.fits_protocol(m, value, cls)
    if isinstance(value, TensorValue) and type(cls).__name__ == "tensortype":
        fake = value.fake
        return (fake.dtype, fake.layout, fake.device.type) == (cls.dtype, cls.layout, "cuda" if cls.is_cuda else "cpu")
    if isinstance(value, TensorValue) and (
            cls is torch.nn.Buffer or cls is torch.nn.Parameter and has_own_code(value.pytype)):
        found = attempt(m, value, "_is_buffer" if cls is torch.nn.Buffer else "_is_param")
        return found is not None and found is not ABSENT and bool(found.truth(m))
    if isinstance(value, Opaque):
        return isinstance(value.real, cls)
    if isinstance(cls, type):
        return issubclass(value.pytype, cls)
    whole = typing.get_origin(cls)
    return issubclass(value.pytype, whole) if whole else isinstance(object(), cls)     # this raises


def subclass_of(m: Machine, value: Value, cls: Any) -> bool | None:
    check, _ = lookup(None, type(cls), "__subclasscheck__")
    if isinstance(check, types.FunctionType) and not is_library(check.__module__):
        return None
    return issubclass(value.constant(), cls)


@handles(type.__instancecheck__)
def type_instancecheck(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, value = take("__instancecheck__", args, kwargs, "cls", "instance", required=2)
    return boolean(issubclass(value.pytype, cls.constant()))


@handles(type.__subclasscheck__)
def type_subclasscheck(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, value = take("__subclasscheck__", args, kwargs, "cls", "subclass", required=2)
    return boolean(type.__subclasscheck__(cls.constant(), value.constant()))


@handles(abc.ABCMeta.__instancecheck__)
def abc_instancecheck(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, value = take("__instancecheck__", args, kwargs, "cls", "instance", required=2)
    return boolean(issubclass(value.pytype, cls.constant()))


@handles(type.__subclasses__)
def subclasses(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, = take("__subclasses__", args, kwargs, "cls", required=1)
    if not isinstance(cls, Const) or m.made_classes:    # a class made during capture is not the program's class
        raise Break(Reason.UNSUPPORTED, f"the subclasses of {cls}, which change over time,")
    found = type.__subclasses__(cls.real)
    m.guard(SubclassesGuard(known(cls.real, cls.real.__qualname__), tuple(map(ById, found))))
    return ListValue([wrap_known(m, c) for c in found])


@handles(type.mro)
def type_listing(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, = take("mro", args, kwargs, "cls", required=1)
    if not isinstance(cls, Const):
        raise Break(Reason.UNSUPPORTED, f"the mro of {cls}")
    return run_native(m, lambda: list(cls.real.__mro__))


@handles(callable)
def callable_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("callable", args, kwargs, "obj", required=1)
    if isinstance(value, (Const, Opaque)):
        return boolean(callable(value.real))
    if isinstance(value, (FunctionValue, BoundMethod)):
        return boolean(True)
    return boolean(slot(m, value, "__call__") is not None)


# ---- attributes by name ---------------------------------------------------------------------------------------
def name_of(m: Machine, value: Value, what: str) -> str:
    if not isinstance(value, Const) or not isinstance(value.real, str):
        if issubclass(value.pytype, str):       # its text is known only after the graph
            raise Break(Reason.UNSUPPORTED, f"{what}: {value} as the name of an attribute")
        m.throw(TypeError, f"attribute name must be string, not {value.pytype.__name__!r}")
    return value.constant()


def attempt(m: Machine, obj: Value, name: str) -> Value | None:
    """``obj.name``; ABSENT if there is none, None if that depends on user code."""
    try:
        found = obj.load_attr(m, name)
    except PyRaise as e:
        if issubclass(e.value.pytype, AttributeError):
            return ABSENT
        raise
    if found is ENTERED:
        m.frames.pop()          # it has not run yet; a polyfill will enter it again and catch the exception
        return None
    return found


@handles(getattr)
def getattr_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name, default = take("getattr", args, kwargs, "obj", "name", "default", required=2)
    text = name_of(m, name, "getattr()")
    if default is None:
        return obj.load_attr(m, text)
    found = attempt(m, obj, text)
    if found is None:
        return m.enter(polyfill.getattr_or_default, [obj, name, default])
    return default if found is ABSENT else found


@handles(hasattr)
def hasattr_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name = take("hasattr", args, kwargs, "obj", "name", required=2)
    text = name_of(m, name, "hasattr()")
    if isinstance(obj, TensorValue) and text not in obj.attrs and obj.ref.real is None:
        if not text.startswith("__") and text not in ("grad", "grad_fn"):
            return boolean(hasattr(obj.pytype, text))
    found = attempt(m, obj, text)
    if found is None:
        return m.enter(polyfill.has_attribute, [obj, name])
    return boolean(found is not ABSENT)


def store(m: Machine, obj: Value, name: str, value: Value | None, generic: bool) -> Value:
    """setattr and delattr; with ``generic``, ``object.__setattr__`` and ``object.__delattr__``, whose result is
    None.
    """
    hook_name = "__delattr__" if value is None else "__setattr__"
    given = [] if value is None else [value]
    if generic and issubclass(obj.pytype, type):
        raise Break(Reason.OPERATION_FAILED, f"object.{hook_name}() of a class")
    hook, owner = lookup(m, obj.pytype, hook_name)
    if not generic and not is_native(hook):
        function = class_value(m, hook, owner, hook_name)
        return m.enter(polyfill.call_for_effect, [function, obj, Const(name), *given])
    raw, owner = lookup(m, obj.pytype, name)
    if raw is not ABSENT and takes_writes(raw):
        if isinstance(raw, property):
            part = "fdel" if value is None else "fset"
            if getattr(raw, part) is not None:
                function = attributes.property_part(m, raw, owner, name, part)
                return m.enter(polyfill.call_for_effect, [function, obj, *given])
        setter, _ = lookup(None, type(raw), "__delete__" if value is None else "__set__")
        if isinstance(setter, types.FunctionType):
            descriptor = class_value(m, raw, owner, name)
            return m.enter(polyfill.call_for_effect, [wrap_known(m, setter), descriptor, obj, *given])
    if generic:
        obj.set_attr(m, name, value)
    else:
        attribute_stores.store(m, obj, name, value)
    return NONE


@handles(setattr)
def setattr_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name, value = take("setattr", args, kwargs, "obj", "name", "value", required=3)
    return store(m, obj, name_of(m, name, "setattr()"), value, False)


@handles(delattr)
def delattr_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name = take("delattr", args, kwargs, "obj", "name", required=2)
    return store(m, obj, name_of(m, name, "delattr()"), None, False)


@handles(object.__setattr__)
def object_setattr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name, value = take("__setattr__", args, kwargs, "obj", "name", "value", required=3)
    return store(m, obj, name_of(m, name, "__setattr__"), value, True)


@handles(object.__delattr__)
def object_delattr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name = take("__delattr__", args, kwargs, "obj", "name", required=2)
    return store(m, obj, name_of(m, name, "__delattr__"), None, True)


HANDLERS[BaseException.__setattr__] = object_setattr


@handles(object.__getattribute__)
def object_getattribute(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, name = take("__getattribute__", args, kwargs, "obj", "name", required=2)
    text = name_of(m, name, "__getattribute__")
    if isinstance(obj, ObjectValue):
        return attributes.generic_load(m, obj, text, asks=False)
    return obj.load_attr(m, text)


@handles(type.__getattribute__)
def type_getattribute(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, name = take("__getattribute__", args, kwargs, "cls", "name", required=2)
    return attributes.load_from_class(m, cls.constant(), name_of(m, name, "__getattribute__"))


@handles(dir)
def dir_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 1 and isinstance(args[0], Const):
        return run_native(m, dir, args[0].real)
    if len(args) == 1 and not kwargs and isinstance(slot(m, args[0], "__dir__"), types.FunctionType):
        return m.enter(polyfill.dir_of, [args[0]])
    raise Break(Reason.UNSUPPORTED, "dir()")


SINGLETONS_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)


# ---- identity and hash ------------------------------------------------------------------------------------------
@handles(hash)
def hash_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("hash", args, kwargs, "obj", required=1)
    if value.pytype.__hash__ is None:
        m.throw(TypeError, f"unhashable type: {value.pytype.__name__!r}")
    raw = slot(m, value, "__hash__")
    if isinstance(raw, types.FunctionType) and not foldable(value, "__hash__"):
        return special_methods.by_method(m, hash, value, "__hash__")
    if isinstance(value, Const) and raw is not object.__hash__ and not isinstance(value.real, type):
        return run_native(m, hash, value.real)
    if isinstance(value, TupleValue) and raw in (tuple.__hash__, torch.Size.__hash__):
        items = m.settle(value.items)
        return m.enter(polyfill.hash_tuple, [value]) if not all(isinstance(v, Const) for v in items) else run_native(
            m, hash, value.constant())
    if isinstance(value, Const) and isinstance(value.real, SINGLETONS_OF_TORCH):
        return run_native(m, hash, value.real)
    if isinstance(value, TensorValue):
        return introspection.hash_of_tensor(m, [value], {})
    if raw is object.__hash__:
        return introspection.hash_of_object(m, [value], {})
    raise Break(Reason.UNSUPPORTED, f"hash of {value}")


@handles(polyfill.combined_hash)
def combined_hash(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return run_native(m, polyfill.combined_hash, [v.constant() for v in args[0].items_list(m) or []])


# ---- super ----------------------------------------------------------------------------------------------------
@handles(super)
def super_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("super", kwargs)
    if not args:
        return _implicit_super(m)
    if len(args) != 2 or not isinstance(args[0], Const):
        raise Break(Reason.UNSUPPORTED, "super() of one argument")
    if not isinstance(args[0].real, type):
        m.throw(TypeError, f"super() argument 1 must be a type, not {args[0].pytype.__name__}")
    return bound_super(args[0].real, args[1])


def bound_super(cls: type, self_: Value) -> Value:
    """Make a super object. Other objects may claim another class, or be refused."""
    is_subclass = isinstance(self_, Const) and isinstance(self_.real, type) and cls in (self_.real.__mro__ or ())
    if not is_subclass and cls not in (self_.pytype.__mro__ or ()):
        raise Break(Reason.OPERATION_FAILED, "super() of an object that is no instance of the class")
    return SuperValue(cls, self_)


def _implicit_super(m: Machine) -> Value:
    """``super()`` without arguments. A function that raises needs Python's own frame."""
    frame = m.frames[-1]
    cell = frame.cells.get("__class__")
    if cell is None or not frame.native.co_varnames:
        raise Skip(Reason.UNSUPPORTED, "super() outside of a method")
    assert isinstance(cell, CellValue)
    name = frame.native.co_varnames[0]
    held, cls = variable(m, frame, name), cell.get(m)
    if held is ABSENT or not isinstance(cls, Const) or not isinstance(cls.real, type):
        raise Skip(Reason.UNSUPPORTED, "super() without an object or a class")
    return bound_super(cls.real, held)


# ---- the other methods of object and type --------------------------------------------------------------------
@handles(object.__init_subclass__, object.__subclasshook__)
def nothing(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE


@handles(vars(object)["__init_subclass__"])
def init_subclass(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs:
        m.throw(TypeError, f"{args[0].constant().__qualname__}.__init_subclass__() takes no keyword arguments")
    return NONE


@handles(object.__dir__, object.__sizeof__, object.__reduce__, object.__reduce_ex__)
def left_to_python(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.UNSUPPORTED, "a method of object")


@handles(types.MethodType)
def new_method(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, self_ = take("MethodType", args, kwargs, "function", "instance", required=2)
    return BoundMethod(function, self_, getattr(function, "name", "method").rpartition(".")[2])


@handles(types.FunctionType.__get__)
def function_get(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, self_, _ = take("__get__", args, kwargs, "self", "instance", "owner", required=2)
    if is_none(self_):
        return function
    return new_method(m, [function, self_], {})


@handles(property.__get__)
def property_get(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    descriptor, self_, _ = take("__get__", args, kwargs, "self", "instance", "owner", required=2)
    return descriptor if is_none(self_) else wrap_known(m, descriptor.constant().fget).call(m, [self_], {})


@handles(types.MethodType.__call__, types.FunctionType.__call__, types.BuiltinFunctionType.__call__,
         types.MethodWrapperType.__call__, types.WrapperDescriptorType.__call__,
         types.MethodDescriptorType.__call__)
def call_callable(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``f.__call__(...)``"""
    if isinstance(args[0], Opaque):
        raise args[0].refusal(str(args[0]), Reason.OPAQUE_CALL)
    return args[0].call(m, args[1:], kwargs)


@handles(polyfill.type_attribute)
def type_attribute(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, name = (a.constant() for a in args)
    raw, owner = lookup(m, cls, name)
    return NONE if raw is ABSENT else class_value(m, raw, owner, name)


@handles(typing.cast)
def cast(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return take("cast", args, kwargs, "typ", "val", required=2)[1]


@handles(operator.call) if hasattr(operator, "call") else lambda f: f
def operator_call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0].call(m, args[1:], kwargs)

