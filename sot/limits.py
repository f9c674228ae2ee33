"""How much of a loop is unrolled into one graph: SOT_UNROLL, rounds and instructions.

A loop that takes more than either is run as a loop from there on: its body is captured once. One without operations on
tensors costs the graph nothing, and is followed for longer; then Python runs it.
"""
from __future__ import annotations

import functools
import os
from typing import NamedTuple

from sot.errors import SotError

WITHOUT_OPERATIONS = 50_000     # instructions


class Unrolling(NamedTuple):
    """``rounds`` of one loop; ``instructions`` of a capture, all that is inlined counted."""

    rounds: int = 128
    instructions: int = 300_000


class SettingError(SotError, ValueError):
    """An environment variable has a value that means nothing."""


def unrolling() -> Unrolling:
    """What SOT_UNROLL says now. Raises SettingError."""
    return _parsed(os.environ.get("SOT_UNROLL", ""))


@functools.cache
def _parsed(text: str) -> Unrolling:
    try:
        found = Unrolling(*(int(part) for part in text.split(",") if text))
    except (TypeError, ValueError):
        found = Unrolling(0)
    if min(found) < 1:
        raise SettingError(f"SOT_UNROLL={text!r}: it takes a number of rounds above 0, and after a comma, if that is "
                           f"to change too, one of instructions, such as SOT_UNROLL=256 or SOT_UNROLL=256,500000")
    return found
