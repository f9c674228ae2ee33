"""SOT turns PyTorch programs into graphs while they run: ``sot.to_static(fn_or_module)``.

``explain(fn)(*args)`` tells what was captured, where capture broke and what is guarded. See README.md.
"""
from __future__ import annotations

from sot.api import ignore_module, not_to_static, to_static
from sot.backends import list_backends, register_backend
from sot.errors import CaptureError, SotError
from sot.explanation import explain
from sot.input_spec import InputSpec
from sot.marks import graph_break
from sot.translate import reset

__version__ = "0.1.0"
__all__ = [
    "CaptureError",
    "InputSpec",
    "SotError",
    "__version__",
    "explain",
    "graph_break",
    "ignore_module",
    "list_backends",
    "not_to_static",
    "register_backend",
    "reset",
    "to_static",
]
