"""Rescues compiled graphs that raise when they run.

Eager PyTorch runs the graph again. If it raises as well, the program is wrong and gets eager's exception. If it
returns a result, that is the result, and eager PyTorch runs the graph from now on. One warning and the reports say so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from sot._hook import PLAIN, Rescued
from sot.backends.eager import eager
from sot.backends.errors import BackendError, BackendWarning, one_line
from sot.interpreter.torch_ops.hooks.tensor_hooks import remove_places
from sot.torch_compat.tensors import set_versions

Run = Callable[..., Any]


def runs_as_is(compiled: Run) -> bool:
    """Whether PyTorch runs the graph itself, one operation at a time."""
    return isinstance(getattr(compiled, "__self__", None), GraphModule)


def rescued(compiled: Run, gm: GraphModule, backend: str, where: str, *, strict: bool = False, changes: bool = False,
            changed: Sequence[int] = (), early: Sequence[int] | None = None, draws: bool = False,
            unversioned: bool = False, leaves: bool = False) -> Run:
    """``compiled``, or eager PyTorch once ``compiled`` has failed although eager PyTorch does not.

    Arguments:
        gm: the graph that was compiled.
        backend, where: the names of the backend and the graph in messages.
        strict: raise a BackendError instead of continuing eagerly.
        changes: whether the graph writes to its inputs. Writes must not happen twice.
        changed: the inputs that it writes to. They are copied for the first run, which is the run that usually fails.
        early: those that it may have written to when an operation raises as in eager PyTorch. They are copied for each
            run. None if they are not known.
        draws: whether it draws random numbers. They are drawn again then.
        unversioned: whether versions do not show all its changes.
        leaves: whether an exception leaves the function, with what eager PyTorch has changed before it.
    """
    if runs_as_is(compiled):
        return compiled
    rescue = Rescue(compiled, gm, backend, where, strict, State(changes, draws, changed, early, unversioned, leaves))
    return rescue.call if rescue.state.matters else rescue.caught


class Rescue:
    """The action when a compiled graph raises; see ``rescued``. ``caught`` calls it without a Python frame."""

    def __init__(self, compiled: Run, gm: GraphModule, backend: str, where: str, strict: bool, state: State) -> None:
        self.compiled, self.gm, self.backend, self.where, self.strict = compiled, gm, backend, where, strict
        self.state = state
        self.caught = Rescued(compiled, partial(self.after, None))

    def call(self, *args: Any) -> Any:
        """Call the graph after saving the state that is needed for another run."""
        before = self.state.of(args)
        try:
            results = self.caught.run(*args)
            self.state.is_first = False
            return results
        except Exception as error:
            raised = error
        try:
            results = self.after(before, raised, args)      # outside of the handler: eager's exception has no context
            if results is PLAIN:
                raise raised
            return results
        finally:
            del raised      # its traceback holds this frame

    def after(self, before: tuple | None, error: Exception, args: Sequence[Any]) -> Any:
        """Eager PyTorch's results, or PLAIN if the exception propagates."""
        over = self.caught.run is not self.compiled
        if over or isinstance(error, BackendError) or not self.state.restore(before, args, self.raises):
            return PLAIN
        plain = eager(self.gm, args)
        remove_places()     # the run that failed may have put hooks on inputs
        try:
            results = plain(*args)
        except Exception:
            if not self.state.leaves:
                self.state.restore(before, args, self.raises)
            raise
        reason = f"backend {self.backend!r} failed when it ran {self.where}: {one_line(error)}"
        if self.strict:
            raise BackendError(reason) from error
        self.caught.run = plain
        tell(self.gm, reason, 3 if before is None else 4)
        return results

    def raises(self, args: Sequence[Any]) -> bool:
        """Whether eager PyTorch raises as well. It gets copies of the inputs."""
        try:
            eager(self.gm, args)(*[copied(value) if isinstance(value, torch.Tensor) else value for value in args])
        except Exception:
            return True
        return False


def copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def tell(gm: GraphModule, reason: str, level: int = 3) -> None:
    """Record for reports why a graph is not run by its backend, and warn at the frame ``level`` levels up."""
    gm.meta.setdefault("fallbacks", []).append(reason)
    warnings.warn(f"{reason}; eager PyTorch runs this graph from now on", BackendWarning, stacklevel=level)


class State:
    """The state that a graph may have changed before it raised."""

    def __init__(self, changes: bool = False, draws: bool = False, changed: Sequence[int] = (),
                 early: Sequence[int] | None = None, unversioned: bool = False, leaves: bool = False) -> None:
        self.changes, self.draws, self.changed, self.early = changes, draws, changed, early
        self.unversioned, self.leaves = unversioned, leaves
        self.matters, self.is_first = changes or draws, True

    def of(self, args: Sequence[Any]) -> tuple:
        which = self.changed if self.is_first else self.early or ()
        copies = [(args[i], args[i].detach().clone()) for i in which]
        return self._versions(args) if self.changes else (), _random() if self.draws else None, copies

    def restore(self, before: tuple | None, args: Sequence[Any],
                raises: Callable[[Sequence[Any]], bool] = lambda args: False) -> bool:
        """Restore the state before the call. Returns False if that is impossible. ``raises``: whether eager PyTorch
        raises with these inputs.
        """
        if before is None:
            return True
        versions, random, copies = before
        if self.unversioned or versions != (self._versions(args) if self.changes else ()):
            all_known = self.is_first and self.changed
            if not all_known and self.early is None:
                return False
            with torch.no_grad():
                for given, copy in copies:
                    given.copy_(copy)
            if not all_known and not raises(args):
                return False
            set_versions([v for v in args if isinstance(v, torch.Tensor) and not v.is_inference()],
                         [n for n in versions if type(n) is int])
        if random is not None:
            torch.set_rng_state(random[0])
            if random[1] is not None:
                torch.cuda.set_rng_state(random[1])
        return True

    @staticmethod
    def _versions(args: Sequence[Any]) -> tuple:
        """The versions of tensors. A tensor without a version never compares equal."""
        return tuple(v._version if not v.is_inference() else float("nan") for v in args if isinstance(v, torch.Tensor))


def _random() -> tuple:
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
