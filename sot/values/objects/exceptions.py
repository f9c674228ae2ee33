"""Exceptions: their arguments, causes and contexts, and how emitted code rebuilds them."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.origin import HandledOutside, Origin
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.tracebacks import Places, looking_like, traceback_of
from sot.values.base import ABSENT, Const, NotConstant, TracebackValue, Value
from sot.values.constants import is_constant
from sot.values.objects.instances import ObjectValue
from sot.values.objects.sequences import TupleValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine

KEEP_IN_INIT = (StopIteration, SystemExit, ImportError)     # C code stores more than ``args`` in these
MAKE_TRACEBACK = _hook.plain(traceback_of)
FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def builtin_base(kind: type) -> Any:
    """The first builtin class that an exception class is below, which has the C code."""
    return next(c for c in kind.__mro__ if c.__module__ == "builtins")


def fields_of(kind: type) -> list[str]:
    """What C code keeps in such an exception, besides what it keeps in any."""
    return [name for c in builtin_base(kind).__mro__ if c not in (BaseException, object)
            for name, raw in vars(c).items() if isinstance(raw, FIELDS)]


def renewed(error: BaseException, kind: Any) -> BaseException:
    """An exception of a class with the arguments and fields of another. No code of the program runs."""
    base = builtin_base(kind)
    made: BaseException = base.__new__(kind, *error.args)
    made.args = error.args
    for name in fields_of(base):
        try:
            if (value := getattr(error, name)) is not getattr(made, name, ABSENT):     # None is not always "no value"
                setattr(made, name, value)
        except (AttributeError, TypeError):     # it has no value
            pass
    return made


RENEWED = _hook.plain(renewed)


class ExceptionValue(ObjectValue):
    """An exception that is made during capture, or an existing one, whose arguments capture does not read."""

    def __init__(self, pytype: type, args: list[Value], real: Any = ABSENT, origin: Origin | None = None) -> None:
        super().__init__(pytype, real, origin)
        self._args = args
        self.new_args = args
        self.cause: Value | None = None
        self.context: Value | None = None
        self.suppress = False
        self.raised_unchained = False       # raised while nothing was handled, at least in the captured function
        self.trace: Places = ()     # the frames that it went through; CPython 3.11 needs a traceback
        self.hosted: Any = None     # has the fields that C code keeps in this one

    @property
    def args(self) -> list[Value]:
        if self.real is not ABSENT:
            raise Break(Reason.UNSUPPORTED, "reading an exception that Python raised")
        return self._args

    @args.setter
    def args(self, args: list[Value]) -> None:
        self._args = args

    def snapshot(self) -> Callable[[], None]:
        before = (self._args, self.cause, self.context, self.suppress, self.raised_unchained)
        hosted, slots = self.hosted, self.slots

        def undo() -> None:
            self._args, self.cause, self.context, self.suppress, self.raised_unchained = before
            self.hosted, self.slots = hosted, slots
        return undo

    def rebuild(self, e: Emitter) -> str:
        if self.hosted is None:
            return super().rebuild(e)
        made = e.variable(self, f"{e.const(RENEWED)}({e.const(self.hosted)}, {e.const(self.pytype)})")
        e.fill_attrs(made, self)
        self.fill(e, made)
        return made

    def replay(self, e: Emitter) -> None:
        raise NotRebuildable("a changed exception that existed before")

    def fill(self, e: Emitter, name: str) -> None:
        if self.trace:
            frames = tuple(looking_like(code, place) for code, place in self.trace)
            e.line(f"{name}.__traceback__ = {e.const(MAKE_TRACEBACK)}({e.const(frames)})")
        if issubclass(self.pytype, KEEP_IN_INIT) and self.hosted is None:
            base = next(c for c in KEEP_IN_INIT if issubclass(self.pytype, c))
            e.line(f"{e.const(base)}.__init__({name}{''.join(', ' + e.value(a) for a in self.args)})")
        elif self.args is not self.new_args:
            e.line(f"{name}.args = ({''.join(e.value(a) + ', ' for a in self.args)})")
        if self.cause is not None:
            e.line(f"{name}.__cause__ = {e.value(self.cause)}")
        if self.context is not None:
            e.line(f"{name}.__context__ = {e.value(self.context)}")
        elif self.raised_unchained:
            e.line(f"{name}.__context__ = {e.ref(HandledOutside())}")
        if self.suppress:
            e.line(f"{name}.__suppress_context__ = True")

    def describe(self) -> str:
        if self.real is not ABSENT:
            return self.pytype.__name__
        try:
            text = ", ".join(repr(a.unguarded if isinstance(a, Const) else a.constant()) for a in self.args)
        except NotConstant:
            text = "..."
        return f"{self.pytype.__name__}({text})"


def traceback_value(exception: Value) -> TracebackValue:
    is_made = isinstance(exception, ExceptionValue) and exception.real is ABSENT
    return TracebackValue(exception.trace if is_made else None)     # type: ignore[attr-defined]


class GroupValue(ExceptionValue):
    """An exception group. ``members`` are its exceptions, which the second argument held when the group was made."""

    def __init__(self, pytype: type, args: list[Value], members: TupleValue) -> None:
        super().__init__(pytype, args)
        self.members = members

    def rebuild(self, e: Emitter) -> str:
        made = e.variable(self, f"{e.const(BaseExceptionGroup)}.__new__({e.const(self.pytype)}, "
                                f"{e.value(self.new_args[0])}, {e.value(self.members)})")
        e.fill_attrs(made, self)
        e.later(lambda: e.line(f"{made}.args = ({''.join(e.value(a) + ', ' for a in self.args)})"))
        self.fill(e, made)
        return made


def like_native(m: Machine, error: BaseException, outside: BaseException | None,
                seen: dict[int, ExceptionValue]) -> ExceptionValue:
    """The Value of an exception that C or library code has raised during capture; raises NotConstant if it has other
    arguments than constants.

    Arguments:
        outside: the exception that capture itself was handling then.
        seen: those made so far of its causes and contexts, by ``id``.
    """
    if id(error) in seen:
        return seen[id(error)]
    if not all(is_constant(a) for a in error.args):
        raise NotConstant(error)
    made = seen[id(error)] = ExceptionValue(type(error), [wrap_new(m, a) for a in error.args])
    if fields_of(type(error)):
        made.hosted = renewed(error, builtin_base(type(error)))
    for name, held in vars(error).items():
        made.attrs.overlay[name] = wrap_new(m, held)
    if error.__cause__ is not None:
        made.cause = like_native(m, error.__cause__, outside, seen)
    if error.__context__ is not None and error.__context__ is not outside:
        made.context = like_native(m, error.__context__, outside, seen)
    made.suppress = error.__suppress_context__
    return made
