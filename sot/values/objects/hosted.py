"""Objects of C classes that the program makes of known values: buffers and streams in memory, decimal contexts."""
from __future__ import annotations

import array
import contextlib
import decimal
from copy import copy
from typing import TYPE_CHECKING, Any

from sot.guards.library_functions import FlagGuard
from sot.guards.origin import known
from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import ABSENT, NotConstant, Value
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sot.values.protocols import Emitter, Machine


BUFFERS = bytearray, array.array


def renewed(hosted: Any) -> Any:
    """Another object of the same class in the same state."""
    if not getattr(hosted, "closed", False):
        return copy(hosted)
    made = type(hosted)()
    made.close()
    return made


class HostedValue(Value):
    """``hosted`` is such an object, in the state that the program's has at this point of the trace. ``is_lent``: a
    tensor has its memory, or its bytes are not known. ``saved`` is a copy of the value that was saved into it, and
    ``at_start`` whether loading begins there.
    """

    is_lent = at_start = False
    saved: Value | None = None

    def __init__(self, hosted: Any) -> None:
        self.hosted, self.pytype = hosted, type(hosted)

    @property
    def is_stream(self) -> bool:
        return hasattr(self.hosted, "closed")

    def snapshot(self) -> Callable[[], None]:
        before, others = renewed(self.hosted), (self.is_lent, self.saved, self.at_start)

        def undo() -> None:
            self.hosted = before
            self.is_lent, self.saved, self.at_start = others
        return undo

    def host(self, m: Machine, depth: int = 0) -> Any:
        if self.is_stream or self.is_lent:      # reading moves it, or capture does not know what is in it
            raise NotConstant(self)
        return self.hosted

    def truth(self, m: Machine) -> bool | None:
        return bool(self.hosted)

    def length(self, m: Machine) -> Value | None:
        return None if self.is_stream else wrap_new(m, len(self.hosted))

    def step(self, m: Machine) -> Value | Any:
        """The next line of a stream; ABSENT at its end."""
        m.touch(self)
        line = next(self.hosted, ABSENT)
        return line if line is ABSENT else wrap_new(m, line)

    def load_slot(self, m: Machine, name: str) -> Value:
        return self.load_computed(m, name)

    def load_computed(self, m: Machine, name: str) -> Value:
        return wrap_new(m, getattr(self.hosted, name))

    def rebuild(self, e: Emitter) -> str:
        if self.is_lent:
            raise NotRebuildable("a buffer whose bytes are not known")
        return e.variable(self, f"{e.const(renewed)}({e.const(renewed(self.hosted))})")


# ---- decimal ------------------------------------------------------------------------------------------------------
FIELDS_OF_CONTEXT = frozenset(("prec", "rounding", "Emin", "Emax", "capitals", "clamp"))


class DecimalContext(HostedValue):
    """The context of a ``decimal.localcontext()`` of the program."""

    def host(self, m: Machine, depth: int = 0) -> Any:
        raise NotConstant(self)

    def truth(self, m: Machine) -> bool | None:
        return True

    def length(self, m: Machine) -> Value | None:
        return None

    def load_attr(self, m: Machine, name: str) -> Value:
        if name not in FIELDS_OF_CONTEXT:
            raise Break(Reason.UNSUPPORTED, f"{name} of a context of decimal")
        return wrap_new(m, getattr(self.hosted, name))


def context_state() -> tuple:
    """The state of the current context."""
    c = decimal.getcontext()
    signals = [frozenset(signal for signal, on in held.items() if on) for held in (c.flags, c.traps)]
    return (*(getattr(c, name) for name in sorted(FIELDS_OF_CONTEXT)), *signals)


def current_context(m: Machine) -> decimal.Context:
    """That in which the program computes. That of the thread is guarded, and must not be changed."""
    if m.entered.decimals:
        return m.entered.decimals[-1].hosted
    m.guard(FlagGuard(known(context_state, "the state of decimal.getcontext"), context_state()))
    return decimal.getcontext()


@contextlib.contextmanager
def in_decimal_context(m: Machine, function: Any) -> Iterator[None]:
    """Let capture call a function that may compute with decimals. It may set flags of a context of the program; Python
    runs what would set those of the thread.
    """
    m.entered.has_decimals = m.entered.has_decimals or function is decimal.Decimal or getattr(
        function, "__self__", None) is decimal.Decimal
    if not m.entered.has_decimals:
        yield
        return
    outer, context = decimal.getcontext(), current_context(m)
    if m.entered.decimals:
        m.touch(m.entered.decimals[-1])
    used = m.entered.decimals[-1].hosted if m.entered.decimals else context.copy()
    before = context_state()
    decimal.setcontext(used)
    try:
        yield
        if not m.entered.decimals and context_state() != before:
            raise Break(Reason.SIDE_EFFECT, "a computation that sets flags of the thread's context of decimal")
    finally:
        decimal.setcontext(outer)
