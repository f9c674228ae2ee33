"""The files of this package's own code, whose frames are not the user's, and the builtins that it uses."""
from __future__ import annotations

import builtins
import os
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
# `graph` and `backends` are links in a checkout: their files go by either path.
FOLDERS = tuple({str(folder) + os.sep for path in (PACKAGE, PACKAGE / "graph", PACKAGE / "backends")
                 for folder in (path, path.resolve())})


def is_own(file: str) -> bool:
    """Whether this file, in the form of ``co_filename``, belongs to the package."""
    return file.startswith(FOLDERS)


# What emitted code and polyfills use, whatever the program puts in place of a builtin.
BUILTINS = dict(vars(builtins))
# A program may replace these: neither capture nor torch works by them.
REPLACEABLE = frozenset({"print", "input", "open", "breakpoint", "help", "exit", "quit", "copyright", "credits",
                         "license", "__import__", "__doc__", "__name__", "__spec__", "__loader__", "__package__", "_"})
_NOW = vars(builtins)
_USED = tuple((name, value) for name, value in BUILTINS.items() if name not in REPLACEABLE)


def builtins_are_replaced() -> bool:
    """Whether the program has replaced a builtin that capture uses. The package's code would call the replacement."""
    for name, value in _USED:
        if name not in _NOW or _NOW[name] is not value:
            return True
    return False
