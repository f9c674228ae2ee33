"""What is limited, and by which environment variables: SOT_UNROLL and SOT_ENTRIES.

SOT_UNROLL: how much of a loop is unrolled into one graph, rounds and instructions. A loop that takes more than either
is run as a loop from there on: its body is captured once. One without operations on tensors costs the graph nothing,
and is followed for longer; then Python runs it.

SOT_ENTRIES: how often a function is captured before Python runs it where none of the captures fits.
"""
from __future__ import annotations

import functools
import os
from typing import NamedTuple, TypeVar

from sot.support.errors import SotError

WITHOUT_OPERATIONS = 50_000     # instructions


class Unrolling(NamedTuple):
    """``rounds`` of one loop; ``instructions`` of a capture, all that is inlined counted."""

    rounds: int = 128
    instructions: int = 300_000


class Entries(NamedTuple):
    """Captures of one function (a decorator's wrapper is another one for each function that it wraps), and of all
    functions that share one code object."""

    of_function: int = 8
    of_code: int = 128


class SettingError(SotError, ValueError):
    """An environment variable has a value that means nothing."""


def unrolling() -> Unrolling:
    """What SOT_UNROLL says now. Raises SettingError."""
    return _parsed("SOT_UNROLL", os.environ.get("SOT_UNROLL", ""), Unrolling)


def entries() -> Entries:
    """What SOT_ENTRIES says now. Raises SettingError."""
    return _parsed("SOT_ENTRIES", os.environ.get("SOT_ENTRIES", ""), Entries)


Setting = TypeVar("Setting", Unrolling, Entries)
MEANINGS = {Unrolling: ("rounds", "instructions", "SOT_UNROLL=256 or SOT_UNROLL=256,500000"),
            Entries: ("captures of a function", "captures of all that share its code", "SOT_ENTRIES=16 or "
                                                                                        "SOT_ENTRIES=16,256")}


@functools.cache
def _parsed(name: str, text: str, kind: type[Setting]) -> Setting:
    try:
        found = kind(*(int(part) for part in text.split(",") if text))
    except (TypeError, ValueError):
        found = kind(0)
    if min(found) < 1:
        first, second, examples = MEANINGS[kind]
        raise SettingError(f"{name}={text!r}: it takes a number of {first} above 0, and after a comma, if that is "
                           f"to change too, one of {second}, such as {examples}")
    return found
