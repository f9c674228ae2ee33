"""Builtins, by handlers and polyfills. Importing the package fills the tables of sot/support/registry.py."""
from __future__ import annotations

from sot.interpreter.builtins import (  # noqa: F401
    classes,
    draws,
    functional,
    iteration,
    itertools_,
    objects,
    operators,
    pure,
    reductions,
    special_methods,
    text,
)
from sot.interpreter.builtins.containers import (  # noqa: F401
    length,
    mappings,
    sequence_methods,
    sequences,
    sets,
    subscript,
)
from sot.interpreter.builtins.exceptions import groups, made  # noqa: F401
from sot.interpreter.numpy_ops import numpy_functions  # noqa: F401
from sot.polyfills.modules import bisection, heap  # noqa: F401
