"""The table of instruction handlers. To handle an opcode, decorate a function with its canonical name."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.bytecode import REFUSED, Instr
from sot.errors import Break, Reason

if TYPE_CHECKING:
    from sot.execute.frame import Frame
    from sot.execute.machine import Machine

Handler = Callable[["Machine", "Frame", Instr], Any]
HANDLERS: dict[str, Handler] = {}


def op(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler
    return register


@op(*REFUSED)
def refused(m: Machine, frame: Frame, instr: Instr) -> None:
    raise Break(Reason.OPCODE, f"{instr.op} ({REFUSED[instr.op]})")
