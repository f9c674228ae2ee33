"""What the current context or thread holds: context variables and ``threading.local``, read under guards."""
from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from sot.guards.origin import Origin
from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import ABSENT, Value
from sot.values.objects.instances import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


class ContextVarValue(Value):
    """An existing ``ContextVar``. ``held`` is its value in this trace: None until it is read."""

    pytype = contextvars.ContextVar

    def __init__(self, real: contextvars.ContextVar, origin: Origin) -> None:
        self.real: Any = real
        self.origin: Origin = origin
        self.held: Value | None = None

    def snapshot(self) -> Callable[[], None]:
        held = self.held

        def undo() -> None:
            self.held = held
        return undo

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self.real

    def replay(self, e: Emitter) -> None:
        """Nothing: the calls of ``set`` and ``reset`` are effects, in the order of the program."""


class MadeContextVar(ContextVarValue):
    """A ``ContextVar`` that the call makes. No context holds anything for it before."""

    def __init__(self, name: Value, default: Value | None, nothing: Value) -> None:
        self.real, self.name, self.default, self.nothing = ABSENT, name, default, nothing
        self.held = nothing

    def load_attr(self, m: Machine, name: str) -> Value:
        return self.name if name == "name" else super().load_attr(m, name)

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        default = "" if self.default is None else f", default={e.value(self.default)}"
        return e.variable(self, f"{e.const(contextvars.ContextVar)}({e.value(self.name)}{default})")

    def __str__(self) -> str:
        return "a context variable of the call"


class ContextValue(Value):
    """A ``Context`` that the trace has copied. ``held`` is what it holds for the variables that the trace knows."""

    pytype = contextvars.Context

    def __init__(self, held: dict[ContextVarValue, Value | None]) -> None:
        self.held = held
        self.entered = False

    def snapshot(self) -> Callable[[], None]:
        before = self.held, self.entered

        def undo() -> None:
            self.held, self.entered = before
        return undo

    def truth(self, m: Machine) -> bool | None:
        return None     # whether it holds anything

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        raise NotRebuildable("a context, before it is copied")


class LocalValue(ObjectValue):
    """A ``threading.local``, whose ``__dict__`` is that of the current thread."""

    def load_attr(self, m: Machine, name: str) -> Value:
        return self.attrs if name == "__dict__" else super().load_attr(m, name)


class TokenValue(Value):
    """What ``ContextVar.set`` returns: the variable, what it held before, and in which context of the trace."""

    pytype = contextvars.Token

    def __init__(self, variable: ContextVarValue, before: Value, within: ContextValue | None) -> None:
        self.variable, self.before = variable, before
        self.within = within
        self.used = False

    def snapshot(self) -> Callable[[], None]:
        used = self.used

        def undo() -> None:
            self.used = used
        return undo

    def load_attr(self, m: Machine, name: str) -> Value:
        if name == "var":
            return self.variable
        if name == "old_value":
            return self.before
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a token")

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        raise NotRebuildable("a token of a context variable, before the variable is set")


class Entered:
    """What the program has entered and not left, the outermost first.

    Arguments:
        contexts: contexts of variables, copied in the trace.
        catching: each ``catch_warnings``.
        decimals: the context of each ``decimal.localcontext``.
        has_decimals: whether the program computes with decimals at all.
        made_globals: the dicts in which ``exec`` and ``eval`` run code, by the id of the value of the dict.
    """

    def __init__(self) -> None:
        self.contexts: list[ContextValue] = []
        self.catching: list[Any] = []
        self.decimals: list[Any] = []
        self.has_decimals = False
        self.made_globals: dict[int, Any] = {}
