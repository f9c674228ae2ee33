"""The loop of the symbolic machine: it executes instructions until the root frame returns or a break occurs."""
from __future__ import annotations

from typing import TYPE_CHECKING

from sot._hook import handle_signals
from sot.interpreter.frame import BRANCH, TRIAL
from sot.interpreter.opcodes.table import HANDLERS, RETURNS
from sot.interpreter.outcomes import Return, Stopped
from sot.interpreter.unwinding import unwind_or_stop
from sot.support.errors import Break, PyRaise, Reason, Skip
from sot.values.base import ENTERED, Value

INSTRUCTION_LIMIT = 400_000

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def run(m: Machine) -> Return | Stopped | None:
    """Execute until the root frame, or a frame that is executed on its own, returns or is stopped. None: the frame has
    reached the end of one side of a branch.
    """
    while True:
        handle_signals()
        frame = m.frames[-1]
        if frame.pc in frame.stops:
            return None
        instr = frame.instrs[frame.pc]
        frame.mark = m.mark(frame)
        frame.last = frame.pc
        frame.pc += 1
        m.steps += 1
        if m.steps > INSTRUCTION_LIMIT:
            raise Skip(Reason.TOO_LONG, str(INSTRUCTION_LIMIT))
        try:
            try:
                done = HANDLERS[instr.op](m, frame, instr)
            except PyRaise as e:
                done = unwind_or_stop(m, e.value, e.again, e.chained)
        except Break as e:
            done = Stopped(e)
        except (MemoryError, RecursionError) as e:      # of the interpreter, from values that are too large or too deep
            done = Stopped(Break(Reason.OPERATION_FAILED, type(e).__name__))
        if done is not None:
            return done


def trial(m: Machine, function: Value, args: list[Value]) -> Value:
    """The result of a call that is executed and undone. Break if it has effects or cannot be captured."""
    depth, changed = len(m.frames), len(m.mutated)
    outer = m.frames[-1]
    result = function.call(m, args, {})
    if result is not ENTERED:
        return result
    m.frames[-1].on_return = TRIAL
    mark, effects = outer.mark, len(m.effects)
    done = run(m)
    clean = isinstance(done, Return) and len(m.mutated) == changed and len(m.effects) == effects
    outer.mark = mark
    del m.frames[depth:]
    while len(m.journal) > mark.journal:
        m.journal.pop()()
    m.builder.cut(mark.graph)
    if isinstance(done, Stopped):
        raise done.cause
    if not clean or done is None:
        raise Break(Reason.SIDE_EFFECT, str(function))
    return done.value


def evaluate(m: Machine, function: Value, args: list[Value], raises: bool = False) -> Value:
    """The result of a call that is executed within the current instruction. Break if it cannot be captured, or raises
    an exception that the instruction does not pass on (``raises``).
    """
    depth = len(m.frames)
    result = function.call(m, args, {})
    if result is not ENTERED:
        return result
    m.frames[-1].on_return = TRIAL
    done = run(m)
    del m.frames[depth:]
    if isinstance(done, Stopped):
        if raises and done.raised is not None:
            raise PyRaise(done.raised, chained=False)
        raise done.cause
    assert done is not None
    return done.value


def return_value(m: Machine, value: Value) -> Return | Stopped | None:
    """Leave the current frame with a result."""
    if len(m.frames) == 1 or m.frames[-1].on_return in (TRIAL, BRANCH):
        return Return(value)
    frame = m.frames.pop()
    if frame.generator is not None:
        frame.generator.frame, frame.generator.running = None, False
    return RETURNS[frame.on_return](m, frame, value)
