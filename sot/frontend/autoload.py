"""The entry point of the group ``torch.backends``, which torch runs at the end of its import.

    SOT_ENABLE=1 python train.py            # translate the whole program
    SOT_REPORT=out.html python train.py     # the same, and write a report at exit, also of a program that fails
    SOT_REPLACE_TORCH_COMPILE=1 python train.py     # torch.compile is sot.compile

It imports nothing of this package unless one of these is set. With SOT_ENABLE alone it imports the observer, and the
translator at the first capture.
"""
from __future__ import annotations

import os
import warnings
from importlib import import_module


def start() -> None:
    """Enable translation in this process if the environment requests it."""
    if any(map(os.environ.get, ("SOT_ENABLE", "SOT_REPORT", "SOT_REPLACE_TORCH_COMPILE"))):
        settings = import_module("sot.support.settings")
        try:
            enables, replaces = (settings.is_on(f"SOT_{word}", False) for word in ("ENABLE", "REPLACE_TORCH_COMPILE"))
        except settings.SettingError as e:
            warnings.warn(f"SOT is not enabled: {e}", stacklevel=2)
            return
        if enables or os.environ.get("SOT_REPORT", "") not in ("", "0"):
            import_module("sot.frontend.environment").enable_from_environment()
        if replaces:
            import_module("sot.frontend.drop_in.replacement").replace_torch_compile()
