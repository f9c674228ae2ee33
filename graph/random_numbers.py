"""SOT_RANDOM: whether random numbers of compiled graphs are eager's, or drawn as is fastest."""
from __future__ import annotations

import os

WAYS = ("eager", "philox")


def way() -> str:
    """How random numbers are made in this process: ``eager`` or ``philox``.

    Raises:
        ValueError: SOT_RANDOM is neither.
    """
    chosen = os.environ.get("SOT_RANDOM") or "eager"
    if chosen not in WAYS:
        raise ValueError(f"SOT_RANDOM is {chosen!r}; it may be {' or '.join(WAYS)}")
    return chosen
