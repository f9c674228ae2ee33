"""The table of instruction handlers. To handle an opcode, decorate a function with its canonical name."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.bytecode import REFUSED, Instr
from sot.support.errors import Break, Reason
from sot.support.registry import Registry

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine

Handler = Callable[["Machine", "Frame", Instr], Any]
HANDLERS: Registry[str, Handler] = Registry("a handler of instructions")
op = HANDLERS.add


@op(*REFUSED)
def refused(m: Machine, frame: Frame, instr: Instr) -> None:
    raise Break(Reason.OPCODE, f"{instr.op} ({REFUSED[instr.op]})")
