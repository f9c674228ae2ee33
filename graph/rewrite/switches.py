"""Rules by name that an environment variable switches off and on: ``-name,+name``."""
from __future__ import annotations


def parsed(variable: str, switches: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names switched off, and on.

    Raises:
        ValueError: for a word that does not begin with a sign.
    """
    words = [word.strip() for word in switches.split(",") if word.strip()]
    for word in words:
        if word[0] not in "+-":
            raise ValueError(f"{variable}: {word!r} must begin with + (use the rule) or - (do not)")
    return (frozenset(w[1:] for w in words if w[0] == "-"), frozenset(w[1:] for w in words if w[0] == "+"))
