"""The `mode=` and `options=` of `to_static`: requests to a backend to spend more on a graph so that it runs faster.

A backend with modes has an attribute `modes`: a mapping from their names to the backends to use instead. A backend
with options has a method `with_options`. Any other backend gets them as keyword arguments, as from torch.compile.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from sot.backends.errors import BackendError, OptionsError
from sot.backends.registry import Backend, backend_name

DEFAULT = "default"


class ModeError(BackendError, ValueError):
    """A mode that the backend does not know."""


@dataclass(frozen=True)
class WithArguments:
    """A backend with the keyword arguments of its calls."""

    backend: Backend
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        return backend_name(self.backend)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return self.backend(gm, example_inputs, **self.arguments)


def takes(backend: Backend, argument: str) -> bool:
    """Whether a backend accepts this keyword argument."""
    try:
        parameters = inspect.signature(backend).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind is p.VAR_KEYWORD or p.name == argument and p.kind is not p.VAR_POSITIONAL for p in parameters)


def with_options(backend: Backend, options: Mapping[str, Any] | None) -> Backend:
    """The backend to use with these options. Raises OptionsError if it takes none."""
    if not options:
        return backend
    if callable(chosen := getattr(backend, "with_options", None)):
        return chosen(options)
    if takes(backend, "options"):
        return WithArguments(backend, {"options": dict(options)})
    raise OptionsError(f"backend {backend_name(backend)!r} takes no options")


def with_mode(backend: Backend, mode: str | None) -> Backend:
    """The backend to use for a mode. `None` and `"default"` are the backend itself. Raises ModeError."""
    if mode is None or mode == DEFAULT:
        return backend
    known: Mapping[str, Backend] = getattr(backend, "modes", {})
    if mode in known:
        return known[mode]
    if not known and takes(backend, "mode"):
        return WithArguments(backend, {"mode": mode})
    close = difflib.get_close_matches(str(mode), [DEFAULT, *known], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    has = f"It has {', '.join(map(repr, sorted({DEFAULT, *known})))}." if known else "It has no modes but 'default'."
    raise ModeError(f"backend {backend_name(backend)!r} has no mode {mode!r}.{hint} {has}")
