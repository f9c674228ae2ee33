"""From real objects to values. Which value stands for an object of a class is told by rows, which the interpreter adds.

``wrap(m, real, origin)`` makes the Value of an object that existed before the frame ran and guards what makes
the Value true: its type, its value if it is a constant, its properties if it is a tensor. ``wrap_new`` makes the
Value of an object that capture computed itself and that nobody else holds: no guards.
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

# By the class of the object; the row of ``object`` is for all that have none.
EXISTING: Registry[type, Callable[[Any, Any, Origin], Value]] = Registry("the value of an existing object")
COMPUTED: Registry[type, Callable[[Any, Any], Value]] = Registry("the value of a computed object")


def wrap(m: Machine, real: Any, origin: Origin | None) -> Value:
    """The Value of an existing object; registers its guards."""
    if origin is None:
        return wrap_known(m, real)
    return (EXISTING.get(type(real)) or EXISTING[object])(m, real, origin)


def wrap_attr(m: Machine, base: Value, name: str, real: Any) -> Value:
    """The Value of ``base.name``, an attribute of an existing object read off the real one."""
    assert base.origin is not None
    return wrap(m, real, attribute(base.origin, name, base.pytype))


def wrap_known(m: Machine, real: Any) -> Value:
    """The Value of a library's object or of one that a class holds: reached by identity, not guarded."""
    if is_constant(real):
        return Const(real)
    return wrap(m, real, known(real, getattr(real, "__qualname__", type(real).__qualname__)))


def wrap_new(m: Machine, real: Any) -> Value:
    """The Value of an object that capture has just computed."""
    if isinstance(real, Value):
        return real
    return (COMPUTED.get(type(real)) or COMPUTED[object])(m, real)
