"""What guards look for: modules that do not exist, and the ``__dict__`` of an object."""
from __future__ import annotations

import sys
from importlib.util import find_spec
from types import WrapperDescriptorType
from typing import Any


def is_missing(name: str) -> bool:
    """Whether an import of a module fails because no finder finds it in its parent, which is loaded.
    Python looks for it at each import.
    """
    parent, _, _ = name.rpartition(".")
    if name in sys.modules or parent and not hasattr(sys.modules.get(parent), "__path__"):
        return False
    try:
        return find_spec(name) is None
    except Exception:  # noqa: BLE001 - the import raises it, too
        return False


def own_dict(value: object) -> dict[str, Any] | None:
    """The ``__dict__`` of an object as the code in C finds it, or None. A ``__getattribute__`` or ``__getattr__`` of
    the program is not called.
    """
    for owner in type(value).__mro__:
        finds = vars(owner).get("__getattribute__")
        if type(finds) is WrapperDescriptorType:
            try:
                return finds(value, "__dict__")
            except AttributeError:
                break
    return None
