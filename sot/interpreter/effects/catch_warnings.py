"""``warnings.catch_warnings`` and filters of warnings: emitted code enters, leaves and sets them, in order.

The list of a ``catch_warnings`` that records has what the program's would have, if a filter that was set inside says
that each warning is recorded. Emitted code makes that list anew, so a break inside of such a ``catch_warnings`` is one
before it.
"""
from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from sot.bytecode.resume_origin import source
from sot.guards.assumptions import RestartCapture
from sot.interpreter.effects.output import defer, replay
from sot.polyfills import output as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.global_state import raise_warnings, stop_raising
from sot.values.base import NONE, Const, NotConstant, Value
from sot.values.objects import ExceptionValue, ListValue, ObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.guards.assumptions import Point
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

Rule = tuple[str, type[Warning]] | None     # an action and a category; None: which warnings it is for is not known
FILTER = "action", "category", "lineno", "append"


class CatchWarnings(ObjectValue):
    """``warnings.catch_warnings(...)``: made, entered and left when the effects are replayed."""

    def __init__(self, kwargs: dict[str, Any], point: Point) -> None:
        super().__init__(warnings.catch_warnings)
        self.kwargs, self.point = kwargs, point
        self.log: Log | None = None
        self.rules: tuple[Rule, ...] = ()   # the filters that were set inside, the last first

    def rebuild(self, e: Emitter) -> str:
        if self.log is not None and self.log.is_growing:
            raise RestartCapture("a break where warnings are recorded", read_at_once=frozenset((self.point,)))
        return e.variable(self, f"{e.const(warnings.catch_warnings)}(**{e.const(self.kwargs)})")


class Log(ListValue):
    """The list of recorded warnings. It is an ordinary list once the program has left the ``catch_warnings``."""

    is_growing = True


@handles(warnings.catch_warnings)
def catch_warnings(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given, point = {k: v.host(m) for k, v in kwargs.items()}, source(m.frames[-1].native, m.frames[-1].last)
    if args or given.get("module") or given.get("record") and (
            m.builder.region is not None or point in m.assumptions.read_at_once):
        raise Break(Reason.SIDE_EFFECT, "catch_warnings that records")
    return CatchWarnings(given, point)


def made_here(value: Value) -> CatchWarnings:
    if not isinstance(value, CatchWarnings):
        raise Break(Reason.SIDE_EFFECT, "a catch_warnings that existed before")
    return value


@handles(warnings.catch_warnings.__enter__)
def enter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    catching = made_here(args[0])
    if catching in m.entered.catching or catching.log is not None:
        raise Break(Reason.SIDE_EFFECT, "a catch_warnings that is entered twice")
    replay(m, lambda e: f"{e.value(catching)}.__enter__()")
    m.entered.catching.append(catching)
    m.undoable(m.entered.catching.pop)
    if catching.kwargs.get("action") is not None:
        add_rule(m, [Const(catching.kwargs[name]) for name in FILTER if name in catching.kwargs])
    if not catching.kwargs.get("record"):
        return NONE
    catching.log = Log([])
    in_graph(m, raise_warnings, stop_raising)
    m.undoable(lambda: setattr(catching, "log", None))
    return catching.log


@handles(warnings.catch_warnings.__exit__)
def leave(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    catching = made_here(args[0])
    if not m.entered.catching or m.entered.catching[-1] is not catching:
        raise Break(Reason.SIDE_EFFECT, "a catch_warnings that is not the last one entered")
    m.entered.catching.pop()
    m.undoable(lambda: m.entered.catching.append(catching))
    if (log := catching.log) is not None:
        log.is_growing = False
        m.undoable(lambda: setattr(log, "is_growing", True))
        in_graph(m, stop_raising, raise_warnings)
    return replay(m, lambda e: f"{e.value(catching)}.__exit__(None, None, None)")


def in_graph(m: Machine, function: Callable[[], None], undo: Callable[[], None]) -> None:
    """In the graph a warning is an exception where it would be recorded: the graph runs before emitted code enters the
    ``catch_warnings``. Python runs the frame then.
    """
    if not m.assumptions.interprets:
        return
    m.state_log.append((function, (), (undo, ())))
    m.undoable(m.state_log.pop)
    m.builder.record_state(function, (), m.stack_trace())


# ---- filters ------------------------------------------------------------------------------------------------------
def add_rule(m: Machine, args: list[Value], kwargs: dict[str, Value] | None = None, is_simple: bool = True) -> None:
    """Note a filter that is set inside of a ``catch_warnings``."""
    if not m.entered.catching:
        return
    innermost, kwargs = m.entered.catching[-1], kwargs or {}
    before = innermost.rules
    try:
        given = {k: v.constant() for k, v in (dict(zip(FILTER, args, strict=False)) | kwargs).items()}
        known = is_simple and not given.get("lineno") and not given.get("append")
        rule = (given["action"], given.get("category", Warning)) if known else None
    except (NotConstant, KeyError):
        rule = None
    innermost.rules = (rule, *before)
    m.undoable(lambda: setattr(innermost, "rules", before))


def log_of(m: Machine, category: type[Warning]) -> Log | None:
    """The list to which a warning is added, or None if no list of the call gets it."""
    logs = [catching.log for catching in m.entered.catching if catching.log is not None]
    for rule in (rule for catching in reversed(m.entered.catching) for rule in catching.rules) if logs else ():
        if rule is None:
            break
        if issubclass(category, rule[1]):
            if rule[0] == "ignore":
                return None
            if rule[0] == "always":
                return logs[-1]
            break
    if logs:
        raise Break(Reason.SIDE_EFFECT, "a warning that may or may not be recorded")
    return None


def record(m: Machine, log: Log, frame: Frame, message: Value, category: type[Warning]) -> Value:
    """Add a warning to the list, as ``warnings.showwarning`` does."""
    if message.pytype is str:
        message = ExceptionValue(category, [message])
    place = [Const(frame.native.co_filename), Const(frame.line)]
    return m.enter(polyfill.recorded, [log, message, Const(category), *place])


def _filter(function: Callable[..., Any]) -> None:
    @handles(function)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args and args[0].constant() == "error":
            raise Break(Reason.SIDE_EFFECT, "making warnings errors")
        add_rule(m, args, kwargs, function is warnings.simplefilter)
        return defer(m, function, args, kwargs, function.__name__)


for _function in (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings):
    _filter(_function)
