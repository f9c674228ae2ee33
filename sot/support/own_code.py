"""Which files of code are this package's own: their frames are no frames of the user's program."""
from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
# `graph` and `backends` are links in a checkout: their files go by either path.
FOLDERS = tuple({str(folder) + os.sep for path in (PACKAGE, PACKAGE / "graph", PACKAGE / "backends")
                 for folder in (path, path.resolve())})


def is_own(file: str) -> bool:
    """Is this file, as ``co_filename`` has it, one of the package's?"""
    return file.startswith(FOLDERS)
