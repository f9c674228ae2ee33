"""From real objects to values. The interpreter adds rows that select the value for each class of objects.

``wrap(m, real, origin)`` makes the Value of an object that existed before the frame ran. It guards what the Value
relies
on: the type, the value of a constant, the properties of a tensor. ``wrap_new`` makes the Value of an object that
    capture
has computed itself and that nothing else refers to, without guards.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.guards.origin import attribute, known
from sot.support.registry import Registry
from sot.values.base import Const, Value
from sot.values.constants import is_constant

if TYPE_CHECKING:
    from sot.guards.origin import Origin
    from sot.values.protocols import Machine

# By the class of the object. The row of ``object`` is the default.
EXISTING: Registry[type, Callable[[Any, Any, Origin], Value]] = Registry("the value of an existing object")
COMPUTED: Registry[type, Callable[[Any, Any], Value]] = Registry("the value of a computed object")


def wrap(m: Machine, real: Any, origin: Origin | None) -> Value:
    """The Value of an existing object; registers its guards."""
    if origin is None:
        return wrap_known(m, real)
    return (EXISTING.get(type(real)) or EXISTING[object])(m, real, origin)


def wrap_attr(m: Machine, base: Value, name: str, real: Any) -> Value:
    """The Value of ``base.name``, an attribute that was read off the real object."""
    assert base.origin is not None
    return wrap(m, real, attribute(base.origin, name, base.pytype))


def wrap_known(m: Machine, real: Any) -> Value:
    """The Value of an object that a library or a class holds. It is reached by identity and not guarded."""
    if is_constant(real):
        return Const(real)
    return wrap(m, real, known(real, getattr(real, "__qualname__", type(real).__qualname__)))


def wrap_new(m: Machine, real: Any) -> Value:
    """The Value of an object that capture has just computed."""
    if isinstance(real, Value):
        return real
    return (COMPUTED.get(type(real)) or COMPUTED[object])(m, real)
