"""Backends: the registry, the eager backend, and adapters. Imported as `sot.backends`.

This package knows nothing of Python frames: it imports only torch and itself.
"""

from __future__ import annotations

from sot.backends.errors import BackendError, BackendUnavailableError, BackendWarning, UnknownBackendError
from sot.backends.modes import ModeError, OptionsError, with_mode, with_options
from sot.backends.registry import (
    Backend,
    backend_name,
    call_backend,
    list_backends,
    lookup_backend,
    register_backend,
    unregister_backend,
)
from sot.backends.rescue import rescued

__all__ = [
    "Backend",
    "BackendError",
    "BackendUnavailableError",
    "BackendWarning",
    "ModeError",
    "OptionsError",
    "UnknownBackendError",
    "backend_name",
    "call_backend",
    "list_backends",
    "lookup_backend",
    "register_backend",
    "rescued",
    "unregister_backend",
    "with_mode",
    "with_options",
]
