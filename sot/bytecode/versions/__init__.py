"""One file for each CPython version: the bytecode that the families of ``sot/bytecode/instr.py`` do not cover.

Each file builds on the one before it: ``v311``, ``v312``, ``v313``, ``v314``. ``CURRENT`` is the file of the running
interpreter.
"""
from __future__ import annotations

import sys

if sys.version_info[:2] == (3, 11):
    from sot.bytecode.versions import v311 as CURRENT
elif sys.version_info[:2] == (3, 12):
    from sot.bytecode.versions import v312 as CURRENT
elif sys.version_info[:2] == (3, 13):
    from sot.bytecode.versions import v313 as CURRENT
elif sys.version_info[:2] == (3, 14):
    from sot.bytecode.versions import v314 as CURRENT
else:
    raise ImportError("sot supports CPython 3.11 to 3.14")

__all__ = ["CURRENT"]
