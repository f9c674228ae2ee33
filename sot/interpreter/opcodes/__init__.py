"""One handler an instruction: ``handler(m, frame, instr)``; the files go by family.

A handler pops its operands before it calls anything that may push a frame, so that what is left on the stack is
what the instruction leaves below its result. It returns None, or what ends the capture.
"""
from sot.interpreter.opcodes import build, class_body, control, names, operate
from sot.interpreter.opcodes.table import HANDLERS

__all__ = ["HANDLERS", "build", "class_body", "control", "names", "operate"]
