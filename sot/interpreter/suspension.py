"""Generators: suspended frames that are resumed, receive exceptions, and yield."""
from __future__ import annotations

from typing import TYPE_CHECKING

from sot.interpreter.frame import BRANCH, CLOSING, SEND
from sot.support.errors import Break, PyRaise, Reason, Skip
from sot.values.base import SavedException, Value
from sot.values.iterators import GeneratorValue, IteratorValue, PolyfilledGenerator

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def resume_generator(m: Machine, generator: GeneratorValue, sent: Value, on_return: str,
                     default: Value | None = None) -> None:
    """Run a suspended generator until its next yield."""
    if generator.running or generator.failed:
        refuse_running(m, generator)
    m.touch(generator)
    frame = generator.frame
    assert frame is not None
    generator.started = True
    frame.on_return, frame.default = on_return, default
    frame.stack.append(sent)
    push_generator(m, generator)


def refuse_running(m: Machine, generator: GeneratorValue) -> None:
    if isinstance(generator, PolyfilledGenerator):
        when = "after an exception has left it" if generator.failed else "while it is stepped"
        raise Skip(Reason.UNSUPPORTED, f"a {generator.pytype.__name__} that is stepped {when}")
    m.throw(ValueError, "generator already executing")


def push_generator(m: Machine, generator: GeneratorValue) -> None:
    """Resume a suspended generator. The exception that it handled when it yielded is handled again, above the one that
    its caller handles now.
    """
    frame = generator.frame
    assert frame is not None
    generator.running, frame.outer_handled = True, m.handled
    own = next((i for i, v in enumerate(frame.stack) if isinstance(v, SavedException)), None)
    if own is not None:
        frame.stack[own] = SavedException(m.handled)
        m.handled = generator.handled
    m.frames.append(frame)


def throw_into(m: Machine, generator: GeneratorValue, exception: Value, on_return: str) -> None:
    """Raise where a generator is suspended, starting with the innermost generator that it delegates to. An exception
    that one of them handles becomes the context of the new one; one that the caller handles does not.
    """
    callers = m.handled
    enter_for_throw(m, generator, exception, on_return)
    raise PyRaise(exception, chained=m.handled is not callers)


def enter_for_throw(m: Machine, generator: GeneratorValue, exception: Value, on_return: str) -> None:
    if generator.running or generator.failed:
        refuse_running(m, generator)
    frame = generator.frame
    m.touch(generator)
    if frame is None or not generator.started:
        generator.frame = None
        raise PyRaise(exception, chained=False)
    frame.on_return, frame.default = on_return, exception
    push_generator(m, generator)
    if frame.last > 0 and frame.instrs[frame.last - 1].op == "SEND":
        frame.last, frame.pc = frame.last - 1, frame.last
        inner = frame.stack[-1]
        if type(inner) is GeneratorValue:
            ending = CLOSING if issubclass(exception.pytype, GeneratorExit) else SEND
            enter_for_throw(m, inner, exception, ending)
        elif not isinstance(inner, (PolyfilledGenerator, IteratorValue)):
            raise Break(Reason.UNSUPPORTED, "generator.throw into a `yield from` of an object that is no generator")


def yield_value(m: Machine, value: Value) -> None:
    """Suspend the current generator frame."""
    if m.frames[-1].on_return == BRANCH:
        raise Break(Reason.BRANCH, f"{m.position()}: a generator yields in it")
    frame = m.frames.pop()
    frame.generator.running = False
    frame.generator.handled = m.handled if any(isinstance(v, SavedException) for v in frame.stack) else None
    m.handled = frame.outer_handled
    if frame.on_return == CLOSING:
        m.throw(RuntimeError, "generator ignored GeneratorExit")
    m.frames[-1].stack.append(value)


def refuse_unclean(m: Machine, going_on: bool) -> None:
    """Skip if a generator with a ``finally`` may be dropped. Python would run the ``finally`` at once, but emitted
    code keeps values alive until it returns, so that code of the program could run before it.
    """
    if any(g.cleans_up(going_on) for g in m.generators):
        raise Skip(Reason.UNSUPPORTED, "a generator that may be given up before it has cleaned up")
