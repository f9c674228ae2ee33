"""What `to_static(mode=...)` asks of a backend: to spend more on a graph so that it runs faster.

A backend that knows modes has an attribute `modes`: a mapping from their names to the backends to use instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from sot.backends.errors import BackendError
from sot.backends.registry import Backend, backend_name

DEFAULT = "default"


class ModeError(BackendError, ValueError):
    """A mode that the backend does not know."""


def with_mode(backend: Backend, mode: str | None) -> Backend:
    """The backend to use for a mode; `None` and `"default"` are the backend as it is.  Raises ModeError."""
    if mode is None or mode == DEFAULT:
        return backend
    known: Mapping[str, Backend] = getattr(backend, "modes", {})
    if mode in known:
        return known[mode]
    close = difflib.get_close_matches(str(mode), [DEFAULT, *known], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    has = f"It has {', '.join(map(repr, sorted({DEFAULT, *known})))}." if known else "It has no modes but 'default'."
    raise ModeError(f"backend {backend_name(backend)!r} has no mode {mode!r}.{hint} {has}")
