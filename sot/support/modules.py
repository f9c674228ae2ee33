"""Modules that do not exist. Python looks for them at each import, and so does the guard."""
from __future__ import annotations

import sys
from importlib.util import find_spec


def is_missing(name: str) -> bool:
    """Whether an import of a module fails because no finder finds it in its parent, which is loaded."""
    parent, _, _ = name.rpartition(".")
    if name in sys.modules or parent and not hasattr(sys.modules.get(parent), "__path__"):
        return False
    try:
        return find_spec(name) is None
    except Exception:  # noqa: BLE001 - the import raises it, too
        return False
