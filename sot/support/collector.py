"""Work without Python's cyclic garbage collector, which looks at all objects of the process again and again.

A capture makes many objects and little garbage. torch's compilers are two thousand modules. The collector would take a
fifth of the time of either.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def paused_collector() -> Iterator[None]:
    """The collector is off meanwhile, if it was on."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def import_large(name: str) -> ModuleType:
    """Import a large package while the collector is off."""
    with paused_collector():
        return import_module(name)
