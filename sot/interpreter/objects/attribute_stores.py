"""Writing and deleting attributes, as ``object.__setattr__`` and ``object.__delattr__`` do."""
from __future__ import annotations

import builtins
import sys
import types
from typing import TYPE_CHECKING, Any

from sot.guards.guards import HasKeyGuard
from sot.interpreter.effects.output import set_output
from sot.interpreter.frame import DISCARD
from sot.interpreter.objects import class_statements
from sot.interpreter.objects.attributes import OF_C, has_dict, property_part
from sot.interpreter.objects.computed_attributes import CHAIN, WRITABLE, function_attrs
from sot.interpreter.objects.lookup import class_value, lookup, takes_writes
from sot.interpreter.unwinding import set_traceback
from sot.support.errors import Break, PyRaise, Reason, Skip
from sot.values.base import ABSENT, ANSWERS, ENTERED, NONE, Const, Value
from sot.values.callables import FunctionValue
from sot.values.constants import cannot_change, is_library
from sot.values.objects import DELETED, DictValue, ExceptionValue, ObjectValue, TupleValue
from sot.values.objects.class_attributes import ClassAttributes
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


OF_OBJECT = vars(object)


def _no_place() -> str:
    """This Python's message for an attribute that an object without ``__dict__`` cannot have."""
    try:
        object().name = None  # type: ignore[attr-defined]
    except AttributeError as e:
        return str(e).replace("'object'", "{}").replace("'name'", "{}")
    raise AssertionError


NO_PLACE = _no_place()


def store(m: Machine, obj: Value, name: str, value: Value | None) -> None:
    """``obj.name = value``, or ``del obj.name`` if value is None."""
    hook_name = "__delattr__" if value is None else "__setattr__"
    hook, owner = lookup(None, obj.pytype, hook_name)
    args = [obj, Const(name)] + ([] if value is None else [value])
    if not isinstance(hook, types.FunctionType) and getattr(hook, "__name__", None) != hook_name:
        if not isinstance(hook, OF_C) or Const(hook).call(m, args, {}) is ENTERED:
            raise Break(Reason.UNSUPPORTED, f"{hook} as {hook_name}")
        return
    if isinstance(hook, types.FunctionType) and isinstance(obj, (ObjectValue, Const)):
        function = class_value(m, hook, owner, hook_name)
        assert isinstance(function, FunctionValue)
        m.enter(function, args, {}, DISCARD)
        return
    obj.set_attr(m, name, value)


@ANSWERS.add((Value, "set_attr"))
def set_elsewhere(m: Machine, obj: Value, name: str, value: Value | None) -> None:
    if obj.real is builtins:
        raise Skip(Reason.WATCHES, f"what sets {name} of builtins")     # capture uses these, too
    raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {obj}")


@ANSWERS.add((FunctionValue, "set_attr"))
def set_of_function(m: Machine, obj: FunctionValue, name: str, value: Value | None) -> None:
    if obj.real is not ABSENT or value is None:
        set_elsewhere(m, obj, name, value)
    elif name in WRITABLE and issubclass(value.pytype, WRITABLE[name]):
        fields = obj.fields
        m.undoable(lambda: setattr(obj, "fields", fields))
        obj.fields = {**fields, name: value}
    elif name == "__code__":
        set_code(m, obj, value)
    elif name not in vars(types.FunctionType) and not hasattr(object, name):
        function_attrs(obj).attrs.set(m, name, value)
    else:
        set_elsewhere(m, obj, name, value)


def set_code(m: Machine, function: FunctionValue, value: Value) -> None:
    """Exchange the code of a function that the program has made, as torch does for the name of a decorator's frame."""
    before, code = function.code, value.constant() if isinstance(value, Const) else None
    if not isinstance(code, types.CodeType) or len(code.co_freevars) != len(function.closure):
        raise Break(Reason.SIDE_EFFECT, f"setting .__code__ of {function} to {value}")
    m.undoable(lambda: setattr(function, "code", before))
    function.code = code


@ANSWERS.add((TensorValue, "set_attr"))
def set_of_tensor(m: Machine, obj: TensorValue, name: str, value: Value | None) -> None:
    obj.store_attr(m, name, value)


@ANSWERS.add((Const, "set_attr"))
def set_of_constant(m: Machine, obj: Const, name: str, value: Value | None) -> None:
    made = m.made_classes.get(id(obj.real))
    raw, owner = lookup(None, obj.pytype, name)
    if made is None and isinstance(obj.real, types.ModuleType) and is_written_in_python(raw):
        store_data(m, obj, raw, owner, name, value)
    elif made is not None:
        class_statements.store(m, made, name, value)
    elif obj.real is sys and name == "stdout" and value is not None:
        set_output(m, value)
    elif isinstance(obj.real, type) and is_data(obj.real, name, value):
        set_of_class(m, obj.real, name, value)
    else:
        set_elsewhere(m, obj, name, value)


def is_data(cls: type, name: str, value: Value | None) -> bool:
    """Whether a class of the program is told to keep data under a name, which nothing but a lookup reads."""
    held, _ = lookup(None, cls, name)
    kinds = [] if value is None else [value.pytype]
    kinds += [] if held is ABSENT else [type(held)]
    return (type(cls) in class_statements.METACLASSES and not cannot_change(cls) and not is_library(cls.__module__)
            and not name.startswith("__")
            and not any(hasattr(kind, part) for kind in kinds for part in ("__get__", "__set__", "__delete__")))


def set_of_class(m: Machine, cls: type, name: str, value: Value | None) -> None:
    """``cls.name = value`` of a class that existed before."""
    attrs = m.written_classes.get(id(cls))
    if attrs is None:
        attrs = m.written_classes[id(cls)] = ClassAttributes(cls)
    if value is not None:
        attrs.set(m, name, value)
        return
    held = attrs.overlay.get(name, ABSENT)
    if held is DELETED or held is ABSENT and name not in vars(cls):
        raise Break(Reason.UNSUPPORTED, f"deleting .{name} of {cls.__qualname__}, which has none,")
    if held is ABSENT:
        assert attrs.origin is not None
        m.guard(HasKeyGuard(attrs.origin, name, True))
    attrs.delete(m, name)


def is_written_in_python(raw: Any) -> bool:
    """Is it a property, or a descriptor whose ``__set__`` is Python code: a flag of torch.backends?"""
    return isinstance(raw, property) or isinstance(getattr(type(raw), "__set__", None), types.FunctionType)


@ANSWERS.add((ObjectValue, "set_attr"))
def set_of_object(m: Machine, obj: ObjectValue, name: str, value: Value | None) -> None:
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


def set_class(m: Machine, obj: Value, value: Value | None) -> None:
    """``obj.__class__ = cls``, for instances whose classes add nothing to ``object`` in C and have no slots."""
    cls = value.real if isinstance(value, Const) else None
    if type(obj) is not ObjectValue or not isinstance(cls, type) or not all(
            is_of_object(kind) for kind in (obj.pytype, cls)):
        raise Break(Reason.UNSUPPORTED, f"setting .__class__ of {obj}")
    m.touch(obj)
    obj.pytype = cls


def is_of_object(cls: type) -> bool:
    made_by = next(c for c in cls.__mro__ if "__new__" in vars(c) and not isinstance(
        vars(c)["__new__"], (staticmethod, types.FunctionType)))
    return made_by is object and cls.__dictoffset__ != 0 and not hasattr(cls, "__del__") and not any(
        "__slots__" in vars(c) for c in cls.__mro__[:-1])


def store_data(m: Machine, obj: Value, raw: Any, owner: type, name: str, value: Value | None) -> None:
    if raw is OF_OBJECT["__class__"]:
        set_class(m, obj, value)
    elif isinstance(raw, property):
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
    elif isinstance(raw, types.MemberDescriptorType) and isinstance(obj, ObjectValue) and (
            not isinstance(obj, TupleValue)):
        if value is None:
            try:
                obj.load_slot(m, name)
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
    """Attributes that C code keeps in an exception."""
    if name == "__traceback__" and value is not None:
        set_traceback(m, obj, value)
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
