"""Builtins, by handlers and polyfills. Importing the package fills the tables of sot/support/registry.py."""
from __future__ import annotations

from sot.interpreter.builtins import (  # noqa: F401
    classes,
    functional,
    iteration,
    itertools_,
    length,
    mappings,
    objects,
    operators,
    pure,
    sequences,
    sets,
    subscript,
    text,
)
from sot.interpreter.torch_ops import numpy_functions  # noqa: F401
from sot.polyfills import bisection, heap  # noqa: F401
