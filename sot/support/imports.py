"""Imports of large packages without Python's cyclic garbage collector.

torch's compilers are two thousand modules. The collector looks at all objects of the process again and again while
they are imported, and finds next to nothing to free: a fifth of the time of such an import.
"""
from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType


def import_large(name: str) -> ModuleType:
    """Import a module. The collector is off meanwhile, if it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if was_on:
            gc.enable()
