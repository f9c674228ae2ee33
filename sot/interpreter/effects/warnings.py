"""``warnings``: they are shown when the effects are replayed, and name the user's line."""
from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from sot.guards.guards import Guard
from sot.guards.origin import Attr, Emit, immutable, known
from sot.interpreter.effects import catch_warnings
from sot.interpreter.effects.output import UNKNOWN, Write, deferred, replay
from sot.interpreter.effects.uncaptured_code import refuse_shower
from sot.interpreter.frame import Frame
from sot.interpreter.wrapping import refuse_log
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.own_code import is_own
from sot.support.registry import handles
from sot.values.base import Const, Value
from sot.values.callables import MadeGlobals
from sot.values.objects import ExceptionValue
from sot.values.text import varies

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

NAMES = ("message", "category", "stacklevel")


@immutable
class NoErrorGuard(Guard):
    """No filter turns the warning into an error, which would be raised too late. ``text`` is None if it is not
    known.
    """

    category: type[Warning]
    text: str | None

    def test(self, emit: Emit) -> str:
        return f"not {emit.const(may_be_error)}({emit.ref(self.origin)}, {emit.const(self.category)}, {self.text!r})"

    def holds(self, value: object) -> bool:
        return not may_be_error(value, self.category, self.text)

    def __str__(self) -> str:
        return f"no filter turns into an error a warning of category {self.category.__name__}"


def may_be_error(filters: Any, category: type[Warning], text: str | None) -> bool:
    """Whether the first matching filter turns the warning into an error. A filter on module or line counts as
    matching.
    """
    for action, message, kind, module, line in filters:
        if not issubclass(category, kind):
            continue
        fits = message is None or text is not None and bool(message.match(text))
        if action == "error" and (fits or text is None):
            return True
        if fits and module is None and line == 0:
            return False
    return False


def refuse_errors(m: Machine, category: type[Warning], message: Value) -> None:
    text = message.real if isinstance(message, Const) and message.pytype is str and not varies(message) else None
    guard = NoErrorGuard(Attr(known(warnings, "warnings"), "filters"), category, text)
    if not guard.holds(warnings.filters):
        raise Break(Reason.SIDE_EFFECT, "a warning that may be an error")
    m.guard(guard)


def refuse_readers(m: Machine) -> None:
    """Break if the program could see that the warning comes late: it has the list that gets it, or has replaced
    ``warnings.showwarning``.
    """
    refuse_shower(m)
    m.has_warned = True
    for real, value in [*m.by_id.values()]:
        if type(real) is list and value.origin is not None:
            refuse_log(m, real, value.origin)


@handles(warnings.warn)
def warn(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The warning names the user's line and is recorded there, as by ``warnings.warn``."""
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    if set(given) - set(NAMES) or "message" not in given:
        raise Break(Reason.SIDE_EFFECT, "warnings.warn with more than a message, a category and a stacklevel")
    message, category = given["message"], given["category"].constant() if "category" in given else None
    if isinstance(message, ExceptionValue) and issubclass(message.pytype, Warning):
        category = message.pytype
    elif message.pytype is not str:
        raise Break(Reason.SIDE_EFFECT, "a warning that is not a string and a category")
    level = max(1, given["stacklevel"].constant() if "stacklevel" in given else 1)
    shown = deferred(m, message, UNKNOWN.format("a warning")) if message.pytype is str else lambda e: e.value(message)
    frames = frames_of(m, level)
    if any(frame.function is not None and frame.function.is_wrapped for frame in frames[1 - level:] if level > 1):
        raise Break(Reason.SIDE_EFFECT, "a warning that names a wrapper of the function")
    kind = category or UserWarning
    log = catch_warnings.log_of(m, kind)
    if log is None:
        refuse_errors(m, kind, message)
    refuse_readers(m)
    if log is not None:
        if level > len(frames):
            raise Break(Reason.SIDE_EFFECT, "a warning that is recorded and names a caller of the function")
        warn_at(m, frames[-level], shown, kind)
        return catch_warnings.record(m, log, frames[-level], message, kind)
    if level > len(frames):     # the entry runs at the place of the outermost frame
        outer = level - len(frames) + 1
        return replay(m, lambda e: f"{e.const(warnings.warn)}({shown(e)}, {e.const(kind)}, {outer})")
    return warn_at(m, frames[-level], shown, kind)


def frames_of(m: Machine, level: int) -> list[Frame]:
    """The frames of the program, of which the warning names the one at a level. Break if it names one of torch's frames
    between a backward pass and its hooks.
    """
    running = m.running_pass
    if running is None:
        return [frame for frame in m.frames if not stands_for_c(frame)]
    outer, inner = (
        [frame for frame in part if not stands_for_c(frame)] for part in (m.frames[:running.depth], [
            frame for frame in m.frames[running.depth:] if frame.native.co_filename != torch_code.__file__]))
    if level > len(inner) and (m.modes or level <= len(inner) + running.hidden):
        raise Break(Reason.SIDE_EFFECT, "a warning that names a frame of torch")
    return [*outer, *[outer[-1]] * running.hidden, *inner]


def stands_for_c(frame: Frame) -> bool:
    """Whether it is code of this package in place of code in C, which has no frame."""
    file = frame.native.co_filename
    return is_own(file) and file != torch_code.__file__


def warn_at(m: Machine, frame: Frame, shown: Write, kind: type[Warning]) -> Value:
    if isinstance(frame.namespace, MadeGlobals):
        raise Break(Reason.SIDE_EFFECT, "a warning of text that exec runs in a dict of the call")
    names = frame.namespace     # the program may replace the record of warnings in it
    where = [Const(frame.native.co_filename), Const(frame.line), Const(frame.namespace.get("__name__"))]

    def call(e: Emitter) -> str:
        registry = f"{e.const(names)}.setdefault('__warningregistry__', {{}})"
        parts = [shown(e), e.const(kind), *map(e.value, where), registry]
        return f"{e.const(warnings.warn_explicit)}({', '.join(parts)})"
    return replay(m, call)
