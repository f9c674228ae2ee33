"""Work with Python's cyclic garbage collector off, or rarely run: it looks at all objects of the process each time.

A capture makes many objects and little garbage. torch's compilers are two thousand modules. The collector would take a
fifth of the time of either. A compiler makes garbage too, and the collector takes up to a seventh of its time.
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


RARE = 500_000      # new objects between two collections: about 100 MB of garbage at most


@contextmanager
def rare_collections() -> Iterator[None]:
    """Meanwhile the collector runs once in RARE new objects, unless the program has it run more rarely or never."""
    thresholds = gc.get_threshold()
    if 0 < thresholds[0] < RARE:
        gc.set_threshold(RARE, *thresholds[1:])
    try:
        yield
    finally:
        restore_collections(thresholds)


def restore_collections(thresholds: tuple[int, ...]) -> None:
    """End ``rare_collections``, with the thresholds before it. Thresholds that a backend has set stay."""
    if gc.get_threshold()[0] == RARE:
        gc.set_threshold(*thresholds)


def import_large(name: str) -> ModuleType:
    """Import a large package while the collector is off."""
    with paused_collector():
        return import_module(name)
