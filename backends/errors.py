"""What can go wrong with a backend, as the user is told."""

from __future__ import annotations


class BackendError(RuntimeError):
    """A backend failed, or did not give back something that can be called."""


class BackendUnavailableError(BackendError):
    """The name is known, but this machine or this version cannot run it."""


class UnknownBackendError(ValueError):
    """No backend has this name."""
