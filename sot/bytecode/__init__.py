"""Bytecode of CPython 3.11, 3.12 and 3.13 <-> one canonical instruction set (see instr.py)."""

from .decode import VERSION, decode
from .encode import encode, with_targets
from .instr import CANONICAL, NO_FALL_THROUGH, NO_POSITION, REFUSED, Code, Handler, Instr

__all__ = [
    "CANONICAL", "NO_FALL_THROUGH", "NO_POSITION", "NULL_FIRST", "REFUSED",
    "Code", "Handler", "Instr", "decode", "encode", "with_targets",
]

NULL_FIRST: bool = VERSION.NULL_FIRST
