"""Translates CPython's bytecode to one canonical instruction set and back, and rewrites it. Knows nothing of capture.

``instr``           the canonical instruction set, by families of opcodes
``stack_effects``   what each instruction does to the depth of the stack
``versions/``       what is particular to each CPython: the only place where versions differ
``decode``          a code object -> canonical instructions
``encode``          canonical instructions -> a code object; ``null_transform`` runs both, for tests
``flow``            where branches meet, and the loops
``resume_origin``   the user's code and instruction that a resume function continues
``liveness``        which variables may still be read, and whether the dict of ``locals()`` is used twice
``frame_layout``    what is restored of a frame: kinds of stack slots, and variables
``resume``          resume and composed code: the rest of a function as a separate function
``step``            step code: runs one instruction in the middle of a function, then leaves for resume code
``plain_loops``     step code of a whole loop
``suspensions``     a generator or coroutine as a function that returns where the original suspends
"""

from sot.bytecode.decode import VERSION, decode
from sot.bytecode.encode import encode, with_targets
from sot.bytecode.instr import CANONICAL, NO_FALL_THROUGH, NO_POSITION, REFUSED, Code, Handler, Instr

__all__ = [
    "CANONICAL", "CLOSE_ANSWERS", "NO_FALL_THROUGH", "NO_POSITION", "NULL_FIRST", "ONE_LOCALS_DICT", "REFUSED",
    "TUPLE_ASKS_LENGTH", "Code", "Handler", "Instr", "decode", "encode", "with_targets",
]

NULL_FIRST: bool = VERSION.NULL_FIRST
ONE_LOCALS_DICT: bool = VERSION.ONE_LOCALS_DICT
CLOSE_ANSWERS: bool = VERSION.CLOSE_ANSWERS     # whether generator.close() returns what the generator returns
TUPLE_ASKS_LENGTH: bool = VERSION.TUPLE_ASKS_LENGTH     # whether tuple(iterable) asks the iterable for its length
