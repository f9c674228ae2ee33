"""Creation of instances: ``object.__new__`` and ``__init__``, exceptions, enums, dataclass helpers, namespaces."""
from __future__ import annotations

import builtins
import dataclasses
import enum
import reprlib
import sys
import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import hosts, refuse, run_native, slot, take
from sot.interpreter.objects import attributes
from sot.interpreter.unwinding import handled_outside
from sot.interpreter.wrapping import is_plain_class
from sot.polyfills import builtin as polyfill
from sot.polyfills import exceptions
from sot.support.errors import Break, Reason, Skip
from sot.support.registry import HANDLERS, handles, polyfills
from sot.values.base import ABSENT, NONE, Const, NotConstant, TracebackValue, Value
from sot.values.constants import is_constant, is_library
from sot.values.objects import ExceptionValue, ObjectValue, TupleValue

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
        return Const(base).call(m, args[1:], kwargs)
    return handler


for _base in (int, float, complex, str, bytes):
    HANDLERS[_base.__new__] = _refuse_subclass(_base)


# ---- exceptions ---------------------------------------------------------------------------------------------------
def new_exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``BaseException.__new__``: it keeps the arguments, whatever ``__init__`` does."""
    return ExceptionValue(args[0].constant(), list(args[1:]))


def init_exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, *rest = args
    if kwargs:
        raise Break(Reason.UNSUPPORTED, f"{self_.pytype.__name__}() with keywords")
    if isinstance(self_, ExceptionValue) and (len(rest) != len(self_.args) or any(
            a is not b for a, b in zip(rest, self_.args, strict=True))):
        m.touch(self_)
        self_.args = rest
    return NONE


def _register_exceptions() -> None:
    """The exceptions whose ``__new__`` and ``__init__`` only keep the arguments."""
    special = (OSError, UnicodeError, SyntaxError, BaseExceptionGroup)
    for cls in vars(builtins).values():
        if not isinstance(cls, type) or not issubclass(cls, BaseException) or issubclass(cls, special):
            continue
        for name, handler in (("__new__", new_exception), ("__init__", init_exception)):
            if name in vars(cls):
                HANDLERS[vars(cls)[name]] = handler


_register_exceptions()


@handles(BaseException.with_traceback)
def with_traceback(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0]


def new_os_error(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """An OSError with a message only. More arguments are a number and file names, and may select another class."""
    cls = args[0].constant()
    if len(args) > 2 or kwargs or cls.__module__ != "builtins":
        raise Break(Reason.UNSUPPORTED, f"{cls.__name__} with more than a message")
    return new_exception(m, args, kwargs)


for _kind in (v for v in vars(builtins).values() if isinstance(v, type) and issubclass(v, OSError)):
    for _name, _handler in (("__new__", new_os_error), ("__init__", init_exception)):
        if _name in vars(_kind):
            HANDLERS[vars(_kind)[_name]] = _handler
polyfills(BaseException.add_note)(exceptions.add_note)


@handles(BaseException.__str__, KeyError.__str__, AttributeError.__str__, NameError.__str__, ImportError.__str__)
def exception_str(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, = take("__str__", args, kwargs, "self", required=1)
    if not isinstance(self_, ExceptionValue):
        raise Break(Reason.OPAQUE_VALUE, str(self_))
    args = self_.args if self_.real is ABSENT else attributes.load(m, self_, "args").items_list(m) or []
    if not args:
        return Const("")
    if len(args) == 1:
        is_key_error = slot(m, self_, "__str__") is KeyError.__str__
        return Const(repr if is_key_error else str).call(m, [args[0]], {})
    return Const(str).call(m, [TupleValue(list(args))], {})


@handles(OSError.__str__)
def os_error_str(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].real is not ABSENT:
        raise Break(Reason.UNSUPPORTED, f"str of {args[0]}")
    return exception_str(m, args, kwargs)


@handles(BaseException.__repr__)
def exception_repr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, = take("__repr__", args, kwargs, "self", required=1)
    found = hosts(m, self_.args) if isinstance(self_, ExceptionValue) else None
    if found is None:
        raise Break(Reason.UNSUPPORTED, f"repr of {self_}")
    inner = ", ".join(repr(v) for v in found)
    return Const(f"{self_.pytype.__name__}({inner})")


# ---- enums ------------------------------------------------------------------------------------------------------
@handles(enum.EnumMeta.__call__)
def enum_call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A member by its value."""
    try:
        cls, *values = (a.host(m) for a in args)
        missing: Any = getattr(cls, "_missing_", None)
        if len(values) == 1 and not is_library(getattr(missing, "__module__", None)) and (
                not is_constant(values[0]) or values[0] not in cls._value2member_map_):
            raise Break(Reason.UNSUPPORTED, "an enum member that a Python method looks up")
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


# ---- the exception being handled --------------------------------------------------------------------------------
@handles(sys.exc_info)
def exc_info(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    handled = m.handled or handled_outside(m)
    return TupleValue([NONE] * 3 if handled is NONE else [Const(handled.pytype), handled, TracebackValue()])


@handles(sys.exception)
def exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.handled or handled_outside(m)
