"""Objects of C classes that the program makes of known values: buffers and streams in memory."""
from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from sot.values.base import ABSENT, NotConstant, Value
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


def renewed(hosted: Any) -> Any:
    """Another object of the same class in the same state."""
    if not getattr(hosted, "closed", False):
        return copy(hosted)
    made = type(hosted)()
    made.close()
    return made


class HostedValue(Value):
    """``hosted`` is such an object, in the state that the program's has at this point of the trace."""

    def __init__(self, hosted: Any) -> None:
        self.hosted, self.pytype = hosted, type(hosted)

    @property
    def is_stream(self) -> bool:
        return hasattr(self.hosted, "closed")

    def snapshot(self) -> Callable[[], None]:
        before = renewed(self.hosted)

        def undo() -> None:
            self.hosted = before
        return undo

    def host(self, m: Machine, depth: int = 0) -> Any:
        if self.is_stream:      # reading moves it
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
        return e.variable(self, f"{e.const(renewed)}({e.const(renewed(self.hosted))})")
