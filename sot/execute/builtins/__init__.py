"""Builtins, by handlers and polyfills. Importing the package fills the tables of registry.py."""
from __future__ import annotations

from sot.execute.builtins import (  # noqa: F401
    classes,
    functional,
    iteration,
    itertools_,
    length,
    mappings,
    numpy_,
    objects,
    operators,
    outside,
    pure,
    sequences,
    sets,
    subscript,
    text,
)
from sot.polyfills import bisection, heap  # noqa: F401
