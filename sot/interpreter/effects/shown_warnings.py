"""What Python remembers of the warnings that it has shown, while a call is captured and compiled.

Python shows a warning once for each place, until the list of filters changes: it numbers the lists, and a module's
record of another number is dropped. torch's compiler enters ``warnings.catch_warnings``, which counts as two changes.
"""
from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

RECORD = "__warningregistry__"


class Probe(Warning):
    """A warning that is not shown."""


@contextmanager
def remembered() -> Iterator[None]:
    """Keep the records through changes of the list of filters."""
    before = number_of_list()
    try:
        yield
    finally:
        if (now := number_of_list()) != before:
            for record in records():
                if record.get("version") == before:
                    record["version"] = now


def number_of_list() -> Any:
    """Python tells it only in a record, when something warns."""
    record: dict[Any, Any] = {}
    shows = warnings.showwarning
    warnings.showwarning = lambda *shown: None
    try:
        warnings.warn_explicit("", Probe, "", 0, registry=record)
    except Probe:       # by a filter
        pass
    finally:
        warnings.showwarning = shows
    return record.get("version")


def records() -> Iterator[dict[Any, Any]]:
    """The records of modules, and of what runs at present outside of one."""
    spaces = [vars(module) for module in [*sys.modules.values()] if isinstance(module, ModuleType)]
    frame = sys._getframe(1)
    while frame is not None:
        spaces.append(frame.f_globals)
        frame = frame.f_back    # type: ignore[assignment]
    for space in spaces:
        if isinstance(record := space.get(RECORD), dict):
            yield record
