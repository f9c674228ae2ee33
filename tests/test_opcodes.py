"""Every instruction of every supported CPython is executed symbolically, or refused with its reason."""
from __future__ import annotations

from sot.bytecode import CANONICAL, REFUSED
from sot.execute.opcodes import HANDLERS
from sot.execute.opcodes.table import refused


def test_every_canonical_instruction_has_a_handler_or_a_reason():
    assert set(HANDLERS) == CANONICAL


def test_what_is_refused_is_what_the_table_says():
    assert {name for name, handler in HANDLERS.items() if handler is refused} == set(REFUSED)
    assert all(REFUSED.values())
