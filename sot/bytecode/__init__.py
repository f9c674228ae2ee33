"""Bytecode: CPython's <-> one canonical instruction set, and surgery on it that knows nothing of capture.

``instr``           the canonical instruction set, by families of opcodes
``stack_effects``   what each instruction does to the depth of the stack
``versions/``       what is particular to each CPython: the only place where versions differ
``decode``          a code object -> canonical instructions
``encode``          canonical instructions -> a code object; ``null_transform`` does both, as a test
``flow``            where branches meet, and what the loops are
``resume_origin``   of which code, and of which place in it, a resume function is the rest
``liveness``        which variables may still be read
``frame_layout``    what of a frame is restored: kinds of stack slots, and variables
``resume``          resume and composed code: the rest of a function as a function of its own
``step``            step code: one instruction in the middle of a function, then on to resume code
``plain_loops``     step code of a whole loop
"""

from sot.bytecode.decode import VERSION, decode
from sot.bytecode.encode import encode, with_targets
from sot.bytecode.instr import CANONICAL, NO_FALL_THROUGH, NO_POSITION, REFUSED, Code, Handler, Instr

__all__ = [
    "CANONICAL", "CLOSE_ANSWERS", "NO_FALL_THROUGH", "NO_POSITION", "NULL_FIRST", "REFUSED",
    "Code", "Handler", "Instr", "decode", "encode", "with_targets",
]

NULL_FIRST: bool = VERSION.NULL_FIRST
CLOSE_ANSWERS: bool = VERSION.CLOSE_ANSWERS     # does generator.close() give what the generator returns?
