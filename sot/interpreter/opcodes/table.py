"""The tables of instruction handlers, and of the ways in which a frame's result is used.

To handle an opcode, decorate a function with its canonical name.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.bytecode import REFUSED, Instr
from sot.support.errors import Break, Reason
from sot.support.registry import Registry

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine
    from sot.values.base import Value

Handler = Callable[["Machine", "Frame", Instr], Any]
HANDLERS: Registry[str, Handler] = Registry("a handler of instructions")
op = HANDLERS.add

# Each takes the machine, the frame that has ended, and its result. The caller's frame is already on top.
RETURNS: Registry[str, Callable[[Machine, Frame, Value], Any]] = Registry("what becomes of a result")
returns = RETURNS.add


@op(*REFUSED)
def refused(m: Machine, frame: Frame, instr: Instr) -> None:
    raise Break(Reason.OPCODE, f"{instr.op} ({REFUSED[instr.op]})")
