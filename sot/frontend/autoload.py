"""The entry point of the group ``torch.backends``, which torch runs at the end of its import.

    SOT_ENABLE=1 python train.py            # translate the whole program
    SOT_REPORT=out.html python train.py     # the same, and write a report at exit, also of a program that fails
    SOT_REPLACE_TORCH_COMPILE=1 python train.py     # torch.compile is sot.compile

It imports nothing of this package unless one of these is set. With SOT_ENABLE alone it imports the observer, and the
translator at the first capture.
"""
from __future__ import annotations

import os
from importlib import import_module


def is_set(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def start() -> None:
    """Enable translation in this process if the environment requests it."""
    if is_set("SOT_ENABLE") or is_set("SOT_REPORT"):
        import_module("sot.frontend.environment").enable_from_environment()
    if is_set("SOT_REPLACE_TORCH_COMPILE"):
        import_module("sot.frontend.drop_in.replacement").replace_torch_compile()
