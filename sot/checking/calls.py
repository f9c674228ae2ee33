"""Checked calls: captured code against plain Python, graph by graph and as a whole."""
from __future__ import annotations

import contextlib
import io
import os
import random
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.fx import GraphModule

from sot._hook import plain
from sot.backends import Backend
from sot.checking.compare import copied, difference, first, gradients, tensors
from sot.checking.graphs import graph_difference, smallest
from sot.checking.script import write_script
from sot.support.errors import SotError
from sot.support.settings import is_on
from sot.torch_compat.global_state import random_state, set_random_state


class CheckWarning(UserWarning):
    """Captured code and plain Python differ."""


class CheckError(SotError, AssertionError):
    """The same, as an error under SOT_STRICT."""


class CheckRateError(SotError, ValueError):
    """A rate of checks that is not a number from 0 to 1."""


def rate_of(check: float | bool | None) -> float:
    """The share of calls to check. None means SOT_CHECK. Raises CheckRateError."""
    wanted: Any = os.environ.get("SOT_CHECK", "0") if check is None else check
    try:
        rate = float(wanted or 0)
    except (TypeError, ValueError):
        rate = -1.0
    if not 0 <= rate <= 1:
        who = "SOT_CHECK" if check is None else "check"
        raise CheckRateError(f"{who} is the share of calls to check, from 0 to 1, not {wanted!r}")
    return rate


def is_strict() -> bool:
    return is_on("SOT_STRICT", False)


def tell(message: str) -> None:
    warnings.warn(message, CheckWarning, stacklevel=2)


# ---- graphs -----------------------------------------------------------------------------------------------
class CheckedGraph:
    """A compiled graph. At some of its calls it is compared with its operations run one by one."""

    def __init__(self, compiled: Callable[..., Any], module: GraphModule, backend: Backend, name: str,
                 rate: float) -> None:
        self.compiled, self.module, self.backend, self.name, self.rate = compiled, module, backend, name, rate
        self.told = False

    def __call__(self, *inputs: Any) -> Any:
        if not self.told and is_due(self.rate):
            self.compare(inputs)
        return self.compiled(*inputs)

    def compare(self, inputs: Sequence[Any]) -> None:
        try:
            found = graph_difference(self.compiled, self.module, inputs)
        except Exception:       # it raises, as it will in the actual call
            return
        if found:
            self.told = True
            tell(f"a graph of {self.name} computes something else than its operations run one by one: {found}. "
                 f"{self.shown(inputs, found)}")

    def shown(self, inputs: Sequence[Any], found: str) -> str:
        """A description of the smallest part that shows the difference, which is saved as a script."""
        module, given = smallest(self.module, inputs, self.backend) or (self.module, list(inputs))
        operations = [n for n in module.graph.nodes if n.op.startswith("call_")]
        folder = os.environ.get("SOT_CHECK_DIR")
        path = write_script(f"{self.name}: {found}", module, given, self.backend, Path(folder) if folder else None)
        names = ", ".join(getattr(n.target, "__name__", str(n.target)) for n in operations[:8])
        return f"The smallest graph that shows it has {len(operations)} operation(s), {names}: run {path}"


# ---- whole calls ------------------------------------------------------------------------------------------
@dataclass
class Outcome:
    """The outcome of one call."""

    result: Any
    raised: BaseException | None
    arguments: Any
    printed: str | None


def checked_call(name: str, python: Callable[..., Any], captured: Callable[..., Any], args: tuple,
                 kwargs: dict[str, Any]) -> Any:
    """Call plain Python on copies, then the captured code on the arguments, and compare.

    Arguments:
        name: the name of the function, for messages.
        python: the function itself. It gets the copies of ``args``; for a module's method the module comes first.
        captured: gets ``args`` and ``kwargs``.
    """
    try:
        theirs = copied((args, kwargs))
    except Exception as e:
        warnings.warn(f"{name} is not checked: its arguments cannot be copied ({type(e).__name__}: {e})", CheckWarning,
                      stacklevel=2)
        return captured(*args, **kwargs)
    torch_state, python_state, numpy_state = random_state(), random.getstate(), np.random.get_state()
    want = plain(outcome)(plain(python), theirs)
    set_random_state(torch_state)
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    got = Outcome(None, None, (args, kwargs), None)
    try:
        got.result = captured(*args, **kwargs)
        return got.result
    except Exception as e:
        got.raised = e
        raise
    finally:
        if found := plain(differs)(got, want):
            message = f"{name} captured differs from {name} in plain Python: {found}"
            if is_strict():
                raise CheckError(message)
            tell(message)


def outcome(fn: Callable[..., Any], arguments: Any) -> Outcome:
    args, kwargs = arguments
    done = Outcome(None, None, arguments, "")
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        try:
            done.result = fn(*args, **kwargs)
        except Exception as e:
            done.raised = e
    done.printed = stream.getvalue()
    return done


def differs(got: Outcome, want: Outcome) -> str | None:
    """The differences between two outcomes. Gradients are those of the tensors among the arguments."""
    if got.raised is not None or want.raised is not None:
        return difference(got.raised, want.raised, "what it raises")
    return first((
        difference(got.result, want.result, "the result"),
        difference(got.arguments, want.arguments, "the arguments afterwards"),
        difference(gradients(got.result, leaves(got.arguments)), gradients(want.result, leaves(want.arguments)),
                   "the gradients"),
    ))


def leaves(value: Any) -> list[Any]:
    return [t for t in tensors(value) if t.requires_grad]


_turns = random.Random(0)       # a separate generator, so that the program's random numbers do not change


def is_due(rate: float) -> bool:
    return rate >= 1 or rate > 0 and _turns.random() < rate


def beside_python(captured: Callable[..., Any], name: str, python: Callable[..., Any], rate: float,
                  owner: weakref.ref | None = None) -> Callable[..., Any]:
    """A call that sometimes also runs in plain Python. ``owner`` is the module that precedes the arguments."""
    if not rate:
        return captured

    def of_module(module: Any, *args: Any, **kwargs: Any) -> Any:
        return captured(*args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_due(rate):
            return captured(*args, **kwargs)
        if owner is None:
            return checked_call(name, python, captured, args, kwargs)
        return checked_call(name, python, of_module, (owner(), *args), kwargs)
    return call


def call_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)
