"""Exceptions of the captured program: the search for a handler, chains, tracebacks."""
from __future__ import annotations

from typing import TYPE_CHECKING

from sot.guards.guards import IsGuard
from sot.guards.origin import HandledOutside
from sot.interpreter.frame import BRANCH, CLOSING, FOR_NEXT, NEXT_DEFAULT, TRIAL, Frame
from sot.interpreter.outcomes import Stopped
from sot.support.errors import Break, Reason
from sot.support.own_code import is_own
from sot.values.base import ABSENT, NONE, Const, LastInstruction, TracebackValue, Value
from sot.values.iterators import GeneratorValue, PolyfilledGenerator
from sot.values.objects import ExceptionValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.support.tracebacks import Places


def unwind_or_stop(m: Machine, exception: Value, again: bool = False, chained: bool = True) -> Stopped | None:
    if leaves_call(m, exception) or not any(
            f.instrs[f.last].handler >= 0 or f.on_return in (FOR_NEXT, NEXT_DEFAULT) for f in m.frames):
        text = exception.describe() if isinstance(exception, ExceptionValue) else str(exception)
        return Stopped(Break(Reason.UNCAUGHT, text), exception)
    if isinstance(exception, ExceptionValue) and chained and not again:
        chain(m, exception)
    raised_here = not again
    while True:
        frame = m.frames[-1]
        if raised_here and isinstance(exception, ExceptionValue):
            went_through(m, exception, frame)
        raised_here = True
        index = frame.instrs[frame.last].handler
        if index >= 0:
            handler = frame.code.handlers[index]
            del frame.stack[handler.depth:]
            if handler.lasti:
                frame.stack.append(LastInstruction(frame.last))
            frame.stack.append(exception)
            frame.pc = handler.target
            return None
        if len(m.frames) == 1 or frame.on_return in (TRIAL, BRANCH):
            return Stopped(Break(Reason.UNCAUGHT, str(exception)), exception)
        exception = not_stop_iteration(m, frame, exception)
        leave_by_exception(m, frame)
        caller, ended = m.frames[-1], issubclass(exception.pytype, StopIteration)
        if frame.on_return == CLOSING and (ended or issubclass(exception.pytype, GeneratorExit)):
            exception = frame.default
        if ended and frame.on_return == FOR_NEXT:
            caller.stack.pop()
            caller.pc = caller.instrs[caller.last].target
            return None
        if ended and frame.on_return == NEXT_DEFAULT:
            caller.stack.append(frame.default)
            return None


def leaves_call(m: Machine, exception: Value) -> bool:
    """Whether an exception that existed before leaves an inlined call. Its traceback then gets the caller's frame."""
    frame = m.frames[-1]
    return (isinstance(exception, ExceptionValue) and exception.real is not ABSENT and len(m.frames) > 1
            and frame.instrs[frame.last].handler < 0 and not is_own(frame.native.co_filename))


def handled_outside(m: Machine) -> Value:
    """The exception that is handled where the program handles none itself: that of the caller, or none."""
    if m.called_in_handler:
        raise Break(Reason.UNSUPPORTED, "reading the exception that the caller handles")
    m.guard(IsGuard(HandledOutside(), None))
    return NONE


def chain(m: Machine, exception: ExceptionValue) -> None:
    """The handled exception becomes the context of the raised one. A cycle is cut, as in CPython."""
    inner = m.handled
    if inner is None and exception.real is ABSENT and not exception.raised_unchained:
        m.undoable(lambda: setattr(exception, "raised_unchained", False))
        exception.raised_unchained = True
    if inner is None or inner is exception:
        return
    seen: set[int] = set()      # a program may have made a cycle itself
    while isinstance(inner, ExceptionValue) and inner.context is not None and id(inner) not in seen:
        seen.add(id(inner))
        if inner.context is exception:
            set_context(m, inner, None)
            break
        inner = inner.context
    set_context(m, exception, m.handled)


def set_context(m: Machine, exception: ExceptionValue, context: Value | None) -> None:
    before = exception.context
    m.undoable(lambda: setattr(exception, "context", before))
    exception.context = context


def went_through(m: Machine, exception: ExceptionValue, frame: Frame) -> None:
    """Add a frame to the traceback of an exception. The package's own frames stand for C code, which has none."""
    if exception.real is ABSENT and not is_own(frame.native.co_filename):
        set_trace(m, exception, (*exception.trace, (frame.native, frame.place)))


def set_trace(m: Machine, exception: ExceptionValue, trace: Places) -> None:
    before = exception.trace
    m.undoable(lambda: setattr(exception, "trace", before))
    exception.trace = trace


def set_traceback(m: Machine, exception: ExceptionValue, value: Value) -> None:
    """``exception.__traceback__ = value``. Of one that existed before it stays unchanged when it is set again."""
    is_new = exception.real is ABSENT
    if value is NONE and is_new:
        set_trace(m, exception, ())
    elif not isinstance(value, TracebackValue) or (value.places is None) == is_new:
        raise Break(Reason.UNSUPPORTED, f"setting .__traceback__ of {exception}")
    elif value.places is not None:
        set_trace(m, exception, value.places)


def not_stop_iteration(m: Machine, frame: Frame, exception: Value) -> Value:
    """The exception that leaves a generator's frame (PEP 479)."""
    if type(frame.generator) is not GeneratorValue or not issubclass(exception.pytype, StopIteration):
        return exception
    kind = frame.generator.pytype.__name__
    made = ExceptionValue(RuntimeError, [Const(f"{kind} raised StopIteration")])
    made.cause = made.context = exception
    made.suppress = True
    return made


def leave_by_exception(m: Machine, frame: Frame) -> None:
    m.frames.pop()
    if isinstance(frame.generator, PolyfilledGenerator):
        frame.generator.running, frame.generator.failed = False, True
    elif frame.generator is not None:
        frame.generator.frame, frame.generator.running = None, False
