"""Class lookup: attributes along the MRO (except special methods), and the error for a missing attribute."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.guards.guards import HasKeyGuard, IsGuard
from sot.guards.origin import Attr, ClassAttr, known
from sot.support.errors import Break, PyRaise, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.constants import cannot_change, is_library
from sot.values.objects import DELETED, ExceptionValue
from sot.values.objects.class_attributes import Written
from sot.values.wrapping import wrap, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def lookup(m: Machine | None, cls: type, name: str) -> tuple[Any, type]:
    """The attribute of a class found along its MRO, and the class that defines it."""
    if m is None or m.written_classes or m.made_classes:
        return searched(m, cls, name)
    found = m.looked_up.get((id(cls), name))
    if found is None:
        found = m.looked_up[id(cls), name] = (*searched(m, cls, name), cls)     # which lives as long as the entry
    return found[0], found[1]


def searched(m: Machine | None, cls: type, name: str) -> tuple[Any, type]:
    """The same, without the memory of the capture. The absence of the name in classes before it is guarded."""
    if cls.__mro__ is None:     # its metaclass is computing it now
        raise Break(Reason.UNSUPPORTED, f"class {cls.__name__} before it is made")
    for owner in cls.__mro__:
        if m is not None and (written := m.written_classes.get(id(owner))) is not None:
            value = written.overlay.get(name)
            if value is DELETED:
                continue
            if value is not None:
                return Written(value), owner
        if name in owner.__dict__:
            return owner.__dict__[name], owner
        if m is not None and not cannot_change(owner):
            m.guard(HasKeyGuard(Attr(known(owner, owner.__qualname__), "__dict__"), name, False))
    return ABSENT, object


def class_value(m: Machine, raw: Any, owner: type, name: str) -> Value:
    """The Value of a class attribute."""
    if isinstance(raw, Written):
        return raw.value
    if (made := m.made_classes.get(id(owner))) is not None and (member := made.member(name)) is not None:
        return member
    return wrap(m, raw, ClassAttr(known(owner, owner.__qualname__), name))


def guard_protocol(m: Machine, kind: type) -> None:
    """Guard whether a class attribute is a descriptor, and of which kind, because its own class may gain or lose
    methods.
    """
    is_fixed = kind is Written or cannot_change(kind) or is_library(kind.__module__)
    for name in () if is_fixed else ("__get__", "__set__", "__delete__"):
        found, owner = lookup(m, kind, name)
        if found is not ABSENT and not cannot_change(owner):
            m.guard(IsGuard(ClassAttr(known(owner, owner.__qualname__), name), found))


def is_data_descriptor(raw: Any) -> bool:
    """Whether it takes precedence over the instance's attribute when it is read."""
    return hasattr(type(raw), "__get__") and takes_writes(raw)


def takes_writes(raw: Any) -> bool:
    """Whether it is called when the attribute of an instance is set or deleted."""
    return hasattr(type(raw), "__set__") or hasattr(type(raw), "__delete__")


def no_attribute(m: Machine, text: str, name: str | None, obj: Value) -> Any:
    """Raise AttributeError as CPython does, with the name and the object in it."""
    error = ExceptionValue(AttributeError, [Const(text)])
    error.slots = {"name": wrap_new(m, name), "obj": obj}
    raise PyRaise(error)


def like_real(m: Machine, error: AttributeError, obj: Value) -> Any:
    """Raise in the captured program the exception that reading an attribute has raised."""
    return no_attribute(m, str(error), error.name, obj)
