"""Exceptions: their arguments, causes and contexts, and how emitted code rebuilds them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.origin import HandledOutside, Origin
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.tracebacks import Places, traceback_of
from sot.values.base import ABSENT, Const, NotConstant, Value
from sot.values.objects.instances import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter

KEEP_IN_INIT = (StopIteration, SystemExit, ImportError)     # C code stores more than ``args`` in these
MAKE_TRACEBACK = _hook.plain(traceback_of)


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

        def undo() -> None:
            self._args, self.cause, self.context, self.suppress, self.raised_unchained = before
        return undo

    def replay(self, e: Emitter) -> None:
        raise NotRebuildable("a changed exception that existed before")

    def fill(self, e: Emitter, name: str) -> None:
        if self.trace:
            e.line(f"{name}.__traceback__ = {e.const(MAKE_TRACEBACK)}({e.const(self.trace)})")
        if issubclass(self.pytype, KEEP_IN_INIT):
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
