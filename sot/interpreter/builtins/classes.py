"""Creation of instances: ``object.__new__`` and ``__init__``, exceptions, enums, dataclass helpers, namespaces."""
from __future__ import annotations

import dataclasses
import enum
import reprlib
import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import hosts, refuse, run_native, take
from sot.interpreter.wrapping import is_plain_class
from sot.polyfills import builtin as polyfill
from sot.support.errors import Break, Reason, Skip
from sot.support.registry import HANDLERS, handles, polyfills
from sot.values.base import NONE, Const, NotConstant, Value
from sot.values.constants import is_constant, is_library
from sot.values.deferred_scalars import DeferredScalar
from sot.values.objects import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

# Code of wrappers that only guard against recursion, by ``id``. The wrapped function is followed instead.
SEEN_THROUGH = frozenset(make(abs).__code__ for make in (
    getattr(dataclasses, "_recursive_repr", None), reprlib.recursive_repr()) if make is not None)

polyfills(type.__call__)(polyfill.type_call)


# ---- plain objects ------------------------------------------------------------------------------------------
def initializer(cls: Any) -> Any:
    return cls.__init__


@handles(object.__new__)
def object_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls = args[0].constant() if args else None
    if not isinstance(cls, type):
        raise Break(Reason.BAD_CALL, "object.__new__()")
    if getattr(cls, "__abstractmethods__", None):
        run_native(m, object.__new__, cls)      # raises the TypeError that names the missing methods
    if (len(args) > 1 or kwargs) and (cls.__new__ is not object.__new__ or initializer(cls) is object.__init__):
        m.throw(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)"
                if cls.__new__ is not object.__new__ else f"{cls.__name__}() takes no arguments")
    if cls.__new__ is not object.__new__ and not is_plain_class(cls):
        raise Break(Reason.OPAQUE_CALL, f"{cls.__qualname__}()")
    if hasattr(cls, "__del__"):     # __del__ runs when the last reference goes, and a break adds a reference
        raise Skip(Reason.UNSUPPORTED, f"{cls.__qualname__}(), which has a __del__,")
    if not is_plain_class(cls):
        raise Break(Reason.OPAQUE_CALL, f"{cls.__qualname__}()")
    return ObjectValue(cls)


@handles(object.__init__)
def object_init(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls = args[0].pytype
    if (len(args) > 1 or kwargs) and (initializer(cls) is not object.__init__ or cls.__new__ is object.__new__):
        m.throw(TypeError, "object.__init__() takes exactly one argument (the instance to initialize)"
                if initializer(cls) is not object.__init__ else f"{cls.__name__}() takes no arguments")
    return NONE


@handles(object)
def new_object(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("object", args, kwargs)
    return ObjectValue(object)


@handles(types.SimpleNamespace)
def namespace(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args:
        raise Break(Reason.UNSUPPORTED, "SimpleNamespace of a mapping")
    made = ObjectValue(types.SimpleNamespace)
    for name, value in kwargs.items():
        made.attrs.set(m, name, value)
    return made


HANDLERS[types.SimpleNamespace.__init__] = refuse(Reason.UNSUPPORTED, "SimpleNamespace.__init__")


# ---- instances of user subclasses of numbers and strings
# ----------------------------------------------------------------------
def _refuse_subclass(base: type) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cls = args[0].constant()
        if cls is not base:
            raise Break(Reason.UNSUPPORTED, f"an instance of {cls.__qualname__}, a subclass of {base.__name__},")
        if HANDLERS.find(base) is None:     # the call of a class without a handler leads here again
            raise Break(Reason.OPAQUE_CALL, f"{base.__name__}() of a value that is not known during capture")
        return Const(base).call(m, args[1:], kwargs)
    return handler


for _base in (int, float, complex, str, bytes):
    HANDLERS[_base.__new__] = _refuse_subclass(_base)


# ---- enums ------------------------------------------------------------------------------------------------------
@handles(enum.EnumMeta.__call__)
def enum_call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A member by its value."""
    if any(isinstance(a, DeferredScalar) for a in args):
        raise Break(Reason.TENSOR_VALUE, "it is the value of an enum member")
    try:
        cls, *values = (a.host(m) for a in args)
        missing: Any = getattr(cls, "_missing_", None)
        if len(values) == 1 and not is_library(getattr(missing, "__module__", None)) and (
                not is_constant(values[0]) or values[0] not in cls._value2member_map_):
            return m.enter(enum.Enum.__new__, args)     # it calls the program's method
        return run_native(m, cls, *values, **{k: v.constant() for k, v in kwargs.items()})
    except NotConstant:
        raise Break(Reason.UNSUPPORTED, "an enum member by this value") from None


def _enum_member(name: str) -> None:
    raw: Any = vars(enum.EnumMeta).get(name)
    if raw is None:
        return

    @handles(raw)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = hosts(m, args)
        if found is None:
            raise Break(Reason.UNSUPPORTED, f"EnumMeta.{name} of these arguments")
        result = run_native(m, lambda: (getattr(found[0], name)(*found[1:]),))
        return result.items_list(m)[0]  # type: ignore[index]


for _name in ("__getitem__", "__contains__", "__len__"):
    _enum_member(_name)
