"""Switches in an environment variable that turn rules off and on by name: ``-name,+name``."""
from __future__ import annotations


def parsed(variable: str, switches: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that are switched off, and those that are switched on.

    Raises:
        ValueError: a word does not begin with a sign.
    """
    words = [word.strip() for word in switches.split(",") if word.strip()]
    for word in words:
        if word[0] not in "+-":
            raise ValueError(f"{variable}: {word!r} must begin with + (use the rule) or - (do not)")
    return (frozenset(w[1:] for w in words if w[0] == "-"), frozenset(w[1:] for w in words if w[0] == "+"))
