"""``logging``: log records are made and handled when the effects are replayed, and name the user's line."""
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sot.interpreter.effects.output import UNKNOWN, deferred, replay
from sot.interpreter.effects.uncaptured_code import refuse_handlers
from sot.interpreter.loop import evaluate
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import NONE, TRUE, Const, Value
from sot.values.callables import known_function
from sot.values.objects import ExceptionValue
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}
SOURCE = logging.getLogger.__code__.co_filename     # log records never name frames of this file
OPTIONS = frozenset({"exc_info", "extra", "stacklevel"})


@handles(logging.getLogger)
def get_logger(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A logger exists once per name, so a call during capture changes nothing that the program can see."""
    return wrap_known(m, logging.getLogger(*(a.constant() for a in args), **{
        k: v.constant() for k, v in kwargs.items()}))


@handles(logging.Logger.isEnabledFor)
def is_enabled_for(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The real logger is asked first. Its cache then has the answer, which capture finds and guards."""
    if len(args) == 2 and isinstance(args[0].real, logging.Logger) and isinstance(args[1], Const):
        args[0].real.isEnabledFor(args[1].real)
    return m.enter(known_function(m, logging.Logger.isEnabledFor), args, kwargs)


def log_at(logger: logging.Logger, level: int, place: tuple[str, int, str], exc_info: Any,
           extra: dict | None, message: Any, *args: Any) -> None:
    """Log a message with the place of the program's call. The call that runs now is in emitted code."""
    if logger.isEnabledFor(level):
        file, line, function = place
        if exc_info:
            exc_info = type(exc_info), exc_info, exc_info.__traceback__
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, args, exc_info, function, extra))


def log_at_root(level: int, *args: Any) -> None:
    """The action of the module's functions."""
    if not logging.root.handlers:
        logging.basicConfig()
    log_at(logging.root, level, *args)


def record(m: Machine, logger: Value, write_logger: Callable[[Emitter], str], level: int, args: list[Value],
           kwargs: dict[str, Value]) -> Value:
    """Defer a log record with its message and arguments."""
    if not args or set(kwargs) - OPTIONS:
        raise Break(Reason.SIDE_EFFECT, f"logging with {', '.join(kwargs) or 'no message'}")
    refuse_handlers(m, logger.real, logger.origin)
    refuse_misfits(args[0], args[1:])
    error, what = shown_error(m, kwargs.get("exc_info", NONE)), UNKNOWN.format("logging")
    place = Const(position(m, kwargs.get("stacklevel", Const(1)).constant()))
    made = len(m.shown)
    first, rest = ([deferred(m, v, what) for v in values] for values in (
        [Const(level), place], [kwargs.get("extra", NONE), *args]))
    for shown in m.shown[made:]:
        shown.is_kept = True

    def call(e: Emitter) -> str:
        parts = [*(write(e) for write in first), e.value(error), *(write(e) for write in rest)]
        return f"{write_logger(e)}{', '.join(parts)})"
    return replay(m, call)


def refuse_misfits(message: Value, args: list[Value]) -> None:
    """Break if the message does not take its arguments: logging shows the call stack then, in which the effects of a
    capture would be seen.
    """
    is_mapping = len(args) == 1 and issubclass(args[0].pytype, Mapping)
    if not args or is_mapping or not isinstance(message, Const) or message.pytype is not str:
        return
    try:
        message.unguarded % tuple(map(like, args))   # noqa: B018 - whether it raises is the question
    except (TypeError, ValueError) as error:
        raise Break(Reason.SIDE_EFFECT, f"logging of a message that does not take its arguments: {error}") from None


def like(value: Value) -> Any:
    """Something that a format takes if it takes the value, which is not guarded to be what it is."""
    if isinstance(value, Const):
        return value.unguarded
    if issubclass(value.pytype, str):
        return "a"
    return 1 if hasattr(value.pytype, "__int__") or hasattr(value.pytype, "__index__") else object()


def position(m: Machine, level: int) -> tuple[str, int, str]:
    """The place that the record names: the user's line, or one ``level - 1`` calls further out."""
    frames = [f for f in m.user_frames() if f.native.co_filename != SOURCE]
    if level > len(frames):
        raise Break(Reason.SIDE_EFFECT, "a log record for a line outside the captured code")
    frame = frames[max(level, 1) - 1]
    return frame.native.co_filename, frame.line, frame.native.co_name


def shown_error(m: Machine, exc_info: Value) -> Value:
    """The exception that a record shows for ``exc_info``, or the value that stands for none."""
    if isinstance(exc_info, Const) and not exc_info.real:
        return exc_info
    found = m.handled if isinstance(exc_info, Const) else exc_info
    if not isinstance(found, ExceptionValue):
        raise Break(Reason.SIDE_EFFECT, "logging of an exception that is not known during capture")
    return found


def is_real_logger(value: Value) -> bool:
    return isinstance(value.real, logging.Logger)


def _register(name: str, level: int) -> None:
    @handles(getattr(logging.Logger, name))
    def method(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return of_logger(m, level, args, kwargs)

    @handles(getattr(logging, name))
    def function(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return at_root(m, level, args, kwargs)


def at_root(m: Machine, level: int, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function of the module, which logs by the root logger."""
    root = wrap_known(m, logging.root)
    return record(m, root, lambda e: f"{e.const(log_at_root)}(", level, args, kwargs)


for _name, _level in LEVELS.items():
    _register(_name, _level)


def of_logger(m: Machine, level: int, args: list[Value], kwargs: dict[str, Value]) -> Value:
    logger = args[0]
    if not is_real_logger(logger):
        raise Break(Reason.SIDE_EFFECT, f"logging with {logger}")
    try:
        return record(m, logger, lambda e: f"{e.const(log_at)}({e.value(logger)}, ", level, args[1:], kwargs)
    except Break:
        if is_disabled(m, logger, level):
            return NONE
        raise


def is_disabled(m: Machine, logger: Value, level: int) -> bool:
    """Whether the logger drops messages of a level, under a guard. Then nothing needs to know the arguments."""
    return evaluate(m, logger.load_attr(m, "isEnabledFor"), [Const(level)]).truth(m) is False


@handles(logging.Logger.exception)
def exception(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return of_logger(m, logging.ERROR, args, {"exc_info": TRUE} | kwargs)


@handles(logging.exception)
def exception_at_root(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return at_root(m, logging.ERROR, args, {"exc_info": TRUE} | kwargs)


@handles(logging.Logger.log)
def log(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) < 2 or args[1].pytype is not int:
        raise Break(Reason.SIDE_EFFECT, "logging at a level that is not a number")
    return of_logger(m, args[1].constant(), [args[0], *args[2:]], kwargs)


@handles(logging.log)
def log_at_root_level(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args or args[0].pytype is not int:
        raise Break(Reason.SIDE_EFFECT, "logging at a level that is not a number")
    return at_root(m, args[0].constant(), args[1:], kwargs)
