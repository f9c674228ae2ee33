"""The registry of backend names, and the function that compiles a graph with a backend.

A backend is `backend(graph_module, example_inputs) -> callable`, as for torch.compile. A name is looked up in this
order: registered here, built in, an installed package's entry point of the group `sot.backends`, torch.compile's
backends. The last two are read only if the first two do not know the name.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from torch.fx import GraphModule

from sot import _hook
from sot.backends import dynamo, selection
from sot.backends.eager import eager
from sot.backends.errors import BackendError, UnknownBackendError, innermost, one_line
from sot.backends.gradients import with_plain_gradients
from sot.backends.hooks_in_order import with_hooks_in_order
from sot.backends.rescue import runs_as_is
from sot.backends.results.detached import detached_results_apart, without_axis
from sot.backends.results.distinct import with_distinct_results
from sot.backends.results.strides import with_plain_strides
from sot.support.random_states import kept_random_states
from sot.torch_compat import compilers
from sot.torch_compat.dynamo.inputs import tell_static_inputs

Backend = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]

ENTRY_POINT_GROUP = "sot.backends"

BUILT_IN: dict[str, Backend] = {
    "auto": selection.auto,
    "eager": eager,
    "triton": selection.triton,
}

_registered: dict[str, Backend] = {}


# ---- registering ----


def register_backend(name: str, fn: Backend | None = None, *, replace: bool = False) -> Any:
    """Give a backend a name.  Without `fn`, a decorator."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"a backend's name must be a non-empty string, not {name!r}")
    if fn is None:
        return functools.partial(register_backend, name, replace=replace)
    if not callable(fn):
        raise TypeError(f"backend {name!r} must be callable, not {_describe(fn)}")
    known = _registered.get(name) or BUILT_IN.get(name)
    if known is not None and known is not fn and not replace:
        raise ValueError(f"a backend {name!r} exists already; replace=True replaces it")
    _registered[name] = fn
    return fn


def unregister_backend(name: str) -> None:
    """Remove a registered name. A built-in backend of that name is visible again."""
    _registered.pop(name, None)


def list_backends() -> list[str]:
    """Every name that `lookup_backend` accepts, including torch.compile's backends."""
    return sorted({*_registered, *BUILT_IN, *_entry_points(), *dynamo.names()})


# ---- looking up ----


def lookup_backend(backend: str | Backend) -> Backend:
    """The backend of that name. A callable is returned as it is."""
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"a backend must be a name or a callable, not {_describe(backend)}")
    if found := _registered.get(backend) or BUILT_IN.get(backend):
        if found is selection.triton:
            selection.check_triton()
        return found
    if entry_point := _entry_points().get(backend):
        return _load(entry_point)
    if backend == dynamo.INDUCTOR or backend in dynamo.names():     # the names take an import
        dynamo.check_requirements(backend)
        return dynamo.DynamoBackend(backend)
    raise UnknownBackendError(_unknown(backend))


@functools.cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _load(entry_point: EntryPoint) -> Backend:
    where = f"backend {entry_point.name!r} (entry point {entry_point.value})"
    try:
        found = entry_point.load()
    except Exception as error:
        raise BackendError(f"{where} cannot be loaded: {one_line(error)}") from error
    if not callable(found):
        raise BackendError(f"{where} is not callable but {_describe(found)}")
    return found


def _unknown(name: str) -> str:
    known = list_backends()
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"unknown backend {name!r}.{hint} Known: {', '.join(known)}"


# ---- calling ----


def backend_name(backend: Backend) -> str:
    """The name to show a user."""
    for name, known in (_registered | BUILT_IN).items():
        if known is backend:
            return name
    given = getattr(backend, "name", None)
    if isinstance(given, str):
        return given
    return getattr(backend, "__qualname__", None) or type(backend).__qualname__


def call_backend(backend: Backend, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph. Any failure of the backend becomes a `BackendError` that names it."""
    name = backend_name(backend)
    if not selection.is_known_to_interpret(backend):
        compilers.tell_source_lines(gm)
        tell_static_inputs(gm)
    apart = detached_results_apart(gm) if selection.is_known_to_compile(backend) else nullcontext(())
    try:
        with apart as detached, kept_random_states(), compilers.compiling_graph(gm, example_inputs):
            compiled = _hook.with_signals(backend, gm, list(example_inputs))
    except BackendError:
        raise
    except Exception as error:
        told = BackendError(f"backend {name!r} raised {one_line(error)}")
        told.add_note(f"in the backend: {innermost(error)}")
        raise told from error
    if not callable(compiled):
        raise BackendError(
            f"backend {name!r} returned {_describe(compiled)}; it must return a callable that takes "
            "the graph's inputs"
        )
    if runs_as_is(compiled) or compiled is gm:
        return compiled
    run = with_hooks_in_order(with_plain_gradients(compiled, gm, getattr(backend, "draws_as_eager", False)), gm)
    return with_plain_strides(with_distinct_results(without_axis(run, detached), gm), gm)


def _describe(value: object) -> str:
    text = repr(value)
    short = text if len(text) <= 60 else text[:57] + "..."
    return short if value is None else f"{short} ({type(value).__name__})"
