"""``__get__``, ``__set__`` and ``__delete__`` of descriptors that C code makes: slots and computed attributes."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import is_none, take
from sot.interpreter.objects import attributes
from sot.interpreter.objects.lookup import lookup
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Const, Value

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

KINDS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def descriptor_of(m: Machine, value: Value, instance: Value) -> Any:
    """The descriptor, which is for instances of a class like this one's."""
    if not isinstance(value, Const) or not isinstance(value.real, KINDS):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    raw = value.real
    if not issubclass(instance.pytype, raw.__objclass__):
        m.throw(TypeError, f"descriptor {raw.__name__!r} for {raw.__objclass__.__name__!r} objects doesn't apply to a "
                           f"{instance.pytype.__name__!r} object")
    return raw


@handles(*(kind.__get__ for kind in KINDS))
def get(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, instance, _ = take("__get__", args, kwargs, "self", "instance", "owner", required=2)
    if is_none(instance) and len(args) == 3:
        return self_
    raw = descriptor_of(m, self_, instance)
    if lookup(None, instance.pytype, raw.__name__)[0] is raw:
        return instance.load_attr(m, raw.__name__)
    return attributes.get_data(m, instance, raw, raw.__objclass__, raw.__name__)


@handles(*(kind.__set__ for kind in KINDS))
def set_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, instance, value = take("__set__", args, kwargs, "self", "instance", "value", required=3)
    return written(m, self_, instance, value)


@handles(*(kind.__delete__ for kind in KINDS))
def delete(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, instance = take("__delete__", args, kwargs, "self", "instance", required=2)
    return written(m, self_, instance, None)


def written(m: Machine, descriptor: Value, instance: Value, value: Value | None) -> Value:
    raw = descriptor_of(m, descriptor, instance)
    depth = len(m.frames)
    if lookup(None, instance.pytype, raw.__name__)[0] is not raw:
        raise Break(Reason.UNSUPPORTED, f"setting .{raw.__name__} past what hides it")
    instance.set_attr(m, raw.__name__, value)
    if len(m.frames) > depth:
        raise Break(Reason.UNSUPPORTED, f"setting .{raw.__name__} by Python code")
    return NONE
