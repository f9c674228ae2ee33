"""One handler per instruction: ``handler(m, frame, instr)``. The files follow the families of instructions.

A handler pops its operands before it calls anything that may push a frame. So the stack then holds only the values
below the instruction's result. A handler returns None, or the value that ends the capture.
"""
from sot.interpreter.opcodes import build, class_body, control, names, operate
from sot.interpreter.opcodes.table import HANDLERS

__all__ = ["HANDLERS", "build", "class_body", "control", "names", "operate"]
