"""Making exceptions, their text, and the exception that is being handled."""
from __future__ import annotations

import builtins
import sys
import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import hosts, slot, take, throw_like
from sot.interpreter.objects import attributes
from sot.interpreter.unwinding import handled_outside, set_traceback
from sot.polyfills import exceptions
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles, polyfills
from sot.values.base import ABSENT, NONE, Const, Value
from sot.values.objects import ExceptionValue, TupleValue
from sot.values.objects.exceptions import builtin_base, traceback_value
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

# C code takes more than ``args`` from their arguments. It is asked for known arguments.
WITH_FIELDS = (OSError, UnicodeError, SyntaxError, ImportError)


def new_exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``BaseException.__new__``: it keeps the arguments, whatever ``__init__`` does."""
    return ExceptionValue(args[0].constant(), list(args[1:]))


def init_exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, *rest = args
    if not isinstance(self_, ExceptionValue):
        return NONE
    if issubclass(self_.pytype, WITH_FIELDS):
        return init_with_fields(m, self_, rest, kwargs)
    if kwargs and not (issubclass(self_.pytype, (AttributeError, NameError)) and {*kwargs} <= {"name", "obj"}):
        raise Break(Reason.UNSUPPORTED, f"{self_.pytype.__name__}() with keywords")
    if kwargs or len(rest) != len(self_.args) or any(a is not b for a, b in zip(rest, self_.args, strict=True)):
        m.touch(self_)
        self_.args = rest
        self_.slots = {**self_.slots, **kwargs}
    return NONE


def init_with_fields(m: Machine, self_: ExceptionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """C code takes the fields from the arguments."""
    found = hosts(m, [*args, *kwargs.values()])
    base = builtin_base(self_.pytype)
    m.touch(self_)
    self_.args = args
    if found is None:
        if kwargs or len(args) > 1 or base is SyntaxError:
            raise Break(Reason.UNSUPPORTED, f"{self_.pytype.__name__} with more than a message")
        return NONE
    try:
        self_.hosted = base(*found[:len(args)], **dict(zip(kwargs, found[len(args):], strict=True)))
    except Exception as e:
        return throw_like(m, e)
    if len(self_.hosted.args) != len(args):
        self_.args = [wrap_new(m, a) for a in self_.hosted.args]
    return NONE


def new_os_error(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The number of an error selects the class. ``__new__`` takes the fields, unless a subclass has an ``__init__`` in
    Python.
    """
    cls = args[0].constant()
    made = ExceptionValue(cls, list(args[1:]))
    if not isinstance(cls.__init__, types.FunctionType):
        init_with_fields(m, made, list(args[1:]), kwargs)
        if cls is OSError and made.hosted is not None:
            made.pytype = type(made.hosted)
    elif kwargs or len(args) > 2:
        raise Break(Reason.UNSUPPORTED, f"{cls.__name__} with more than a message")
    return made


def init_os_error(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``__new__`` has done this already, unless a subclass has an ``__init__`` in Python."""
    self_, *rest = args
    cls: Any = self_.pytype
    return init_exception(m, [self_, *rest], kwargs) if isinstance(cls.__init__, types.FunctionType) else NONE


def _register() -> None:
    for cls in vars(builtins).values():
        if not isinstance(cls, type) or not issubclass(cls, BaseException) or issubclass(cls, BaseExceptionGroup):
            continue
        of_os = issubclass(cls, OSError)
        for name, handler in (("__new__", new_os_error if of_os else new_exception),
                              ("__init__", init_os_error if of_os else init_exception)):
            if name in vars(cls):
                HANDLERS[vars(cls)[name]] = handler


_register()
polyfills(BaseException.add_note)(exceptions.add_note)


@handles(BaseException.with_traceback)
def with_traceback(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, traceback = take("with_traceback", args, kwargs, "self", "tb", required=2)
    if not isinstance(self_, ExceptionValue):
        raise Break(Reason.UNSUPPORTED, f"with_traceback of {self_}")
    set_traceback(m, self_, traceback)
    return self_


# ---- text -------------------------------------------------------------------------------------------------------
@handles(BaseException.__str__, KeyError.__str__, AttributeError.__str__, NameError.__str__)
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


@handles(ImportError.__str__, OSError.__str__, SyntaxError.__str__, UnicodeDecodeError.__str__,
         UnicodeEncodeError.__str__, UnicodeTranslateError.__str__)
def str_of_fields(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The text that C code makes of the fields."""
    self_: Any = args[0]
    if self_.real is not ABSENT or self_.slots:
        raise Break(Reason.UNSUPPORTED, f"str of {self_}")
    if self_.hosted is None:
        return exception_str(m, args, kwargs)
    if repr(hosts(m, self_.args)) != repr([*self_.hosted.args]):
        raise Break(Reason.UNSUPPORTED, f"str of {self_}, whose arguments were changed,")
    return Const(str(self_.hosted))


@handles(BaseException.__repr__)
def exception_repr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, = take("__repr__", args, kwargs, "self", required=1)
    if not isinstance(self_, ExceptionValue):
        raise Break(Reason.UNSUPPORTED, f"repr of {self_}")
    name, found = self_.pytype.__name__, hosts(m, self_.args)
    if found is not None:
        return Const(name + (f"({found[0]!r})" if len(found) == 1 else repr(tuple(found))))
    written = exceptions.representation.__code__
    if len(self_.args) != 1 and any(f.native is written and f.locals.get("error") is self_ for f in m.frames):
        return Const(f"{name}(...)")
    return m.enter(exceptions.representation, [self_, Const(name), TupleValue(list(self_.args))])


# ---- the exception being handled --------------------------------------------------------------------------------
@handles(sys.exc_info)
def exc_info(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    handled = m.handled or handled_outside(m)
    return TupleValue([NONE] * 3 if handled is NONE else [Const(handled.pytype), handled, traceback_value(handled)])


@handles(sys.exception)
def exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.handled or handled_outside(m)
