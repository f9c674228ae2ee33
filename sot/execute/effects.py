"""Effects outside the program's values that are replayed in order, not broken at: output of constants.

The call is deferred: emitted code makes it after the graph has run, in the order of the program.
"""
from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sot.errors import Break, NotRebuildable, Reason
from sot.execute.builtins.registry import handles
from sot.graph.refs import version_of
from sot.values.base import NONE, Const, NotConstant, Value
from sot.values.numbers import is_dynamic
from sot.values.objects import ObjectValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.text import NumberText

if TYPE_CHECKING:
    from sot.emit import Emitter
    from sot.execute.machine import Machine

LOG_METHODS = ("debug", "info", "warning", "error", "critical")


def defer(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value], what: str) -> Value:
    """Have emitted code call ``function`` with these arguments: constants, and tensors that do not change later."""
    positional = [deferred(m, a, what) for a in args]
    named = {k: deferred(m, v, what) for k, v in kwargs.items()}

    def call(e: Emitter) -> str:
        parts = [make(e) for make in positional] + [f"{k}={make(e)}" for k, make in named.items()]
        return f"{e.const(function)}({', '.join(parts)})"
    return replay(m, call)


def deferred(m: Machine, value: Value, what: str) -> Callable[[Emitter], str]:
    """What writes an argument of a deferred call."""
    if isinstance(value, TensorValue):
        tensor, version = value, version_of(value.fake)

        def unchanged(e: Emitter) -> str:
            if version_of(tensor.fake) != version:
                raise NotRebuildable(f"{tensor}, which is shown and then changed in place,")
            return e.value(tensor)
        return unchanged
    if holds_varying(m, value):
        return lambda e: e.value(value)
    try:
        host = m.calls.host(m, value)
    except NotConstant:
        raise Break(Reason.SIDE_EFFECT, what) from None
    return lambda e: e.literal(host)


def holds_varying(m: Machine, value: Value) -> bool:
    """Is it a number that varies, text that shows one, or a tuple of such and of constants?"""
    if isinstance(value, TupleValue) and value.pytype in (tuple, torch.Size):
        items = m.settle(value.items)
        return any(holds_varying(m, v) for v in items) and all(isinstance(v, Const) or holds_varying(m, v)
                                                               for v in items)
    return is_dynamic(value) or (isinstance(value, NumberText) and value.varies)


def replay(m: Machine, call: Callable[[Emitter], str]) -> Value:
    m.effect(lambda e: e.line(call(e)))
    return NONE


@handles(print)
def print_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if kwargs.get("file", NONE) is not NONE:
        raise Break(Reason.SIDE_EFFECT, "print to a file")
    return defer(m, print, args, kwargs, "print of a value that is not known during capture")


@handles(logging.getLogger)
def get_logger(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Loggers are made once a name, so asking for one during capture changes nothing the program can see."""
    return m.wrap_known(logging.getLogger(*(a.constant() for a in args), **{
        k: v.constant() for k, v in kwargs.items()}))


def log_at(logger: logging.Logger, level: int, place: tuple[str, int, str], message: Any, *args: Any) -> None:
    """Log as if from the user's line, which is not the one that is running."""
    if logger.isEnabledFor(level):
        file, line, function = place
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, args, None, function))


def _log(name: str) -> None:
    @handles(getattr(logging.Logger, name))
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        logger, level = args[0].real, getattr(logging, name.upper())
        if not isinstance(logger, logging.Logger) or kwargs or len(args) < 2:
            raise Break(Reason.SIDE_EFFECT, f"logging with {args[0]}")
        where = TupleValue([Const(part) for part in m.user_position()])
        given = [Const(level), where, *args[1:]]
        write = [deferred(m, v, "logging of a value that is not known during capture") for v in given]
        return replay(m, lambda e: f"{e.const(log_at)}({e.value(args[0])}, {', '.join(w(e) for w in write)})")


for _name in LOG_METHODS:
    _log(_name)


# ---- warnings ----------------------------------------------------------------------------------------------
@handles(warnings.warn)
def warn(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Shown as coming from the user's line, and remembered there, as ``warnings.warn`` would."""
    names = ("message", "category", "stacklevel")
    given = dict(zip(names, args, strict=False)) | kwargs
    if set(given) - set(names):
        raise Break(Reason.SIDE_EFFECT, "warnings.warn with more than a message, a category and a stacklevel")
    level = given["stacklevel"].constant() if "stacklevel" in given else 1
    if not 1 <= level <= len(m.frames):
        raise Break(Reason.SIDE_EFFECT, "a warning for a line outside of what is captured")
    frame, message = m.frames[-level], given["message"]
    category = given["category"].constant() if "category" in given else UserWarning
    if message.pytype is not str or category is None:
        raise Break(Reason.SIDE_EFFECT, "a warning that is not a string and a category")
    registry = m.wrap_known(frame.namespace.setdefault("__warningregistry__", {}))
    where = [Const(frame.native.co_filename), Const(frame.line), Const(frame.namespace.get("__name__"))]
    line = [message, Const(category), *where]

    def call(e: Emitter) -> str:
        return f"{e.const(warnings.warn_explicit)}({', '.join(map(e.value, line))}, {e.value(registry)})"
    return replay(m, call)


class CatchWarnings(ObjectValue):
    """``warnings.catch_warnings(...)``: made, entered and left when the effects are replayed."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        super().__init__(warnings.catch_warnings)
        self.kwargs = kwargs

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(warnings.catch_warnings)}(**{e.const(self.kwargs)})")


@handles(warnings.catch_warnings)
def catch_warnings(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = {k: m.calls.host(m, v) for k, v in kwargs.items()}
    if args or given.get("record") or given.get("module"):
        raise Break(Reason.SIDE_EFFECT, "catch_warnings that records")
    return CatchWarnings(given)


@handles(warnings.catch_warnings.__enter__)
def enter_catch_warnings(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], CatchWarnings):
        raise Break(Reason.SIDE_EFFECT, "entering a catch_warnings made before")
    return replay(m, lambda e: f"{e.value(args[0])}.__enter__()")


@handles(warnings.catch_warnings.__exit__)
def leave_catch_warnings(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], CatchWarnings):
        raise Break(Reason.SIDE_EFFECT, "leaving a catch_warnings made before")
    return replay(m, lambda e: f"{e.value(args[0])}.__exit__(None, None, None)")


def _filter(function: Any) -> None:
    @handles(function)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return defer(m, function, args, kwargs, function.__name__)


for _function in (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings):
    _filter(_function)
