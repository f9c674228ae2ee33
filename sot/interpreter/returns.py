"""What the calling frame does with the result of a frame: one function for each kind in ``frame.py``."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.interpreter import frame as kinds
from sot.interpreter.frame import Frame
from sot.interpreter.objects import class_statements
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.opcodes.control import jump_or_pop
from sot.interpreter.opcodes.operate import push_truth
from sot.interpreter.opcodes.table import returns
from sot.interpreter.unwinding import unwind_or_stop
from sot.values.base import ABSENT, NONE, NULL, Const, Value
from sot.values.objects import ExceptionValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@returns(kinds.DISCARD)
def drop(m: Machine, frame: Frame, value: Value) -> None:
    pass


@returns(kinds.PUSH, kinds.FOR_NEXT, kinds.PUSH_WHOLE)
def push(m: Machine, frame: Frame, value: Value) -> None:
    m.frames[-1].stack.append(value)


@returns(kinds.PUSH_ITERATOR)
def push_iterator(m: Machine, frame: Frame, value: Value) -> Any:
    if lookup(m, value.pytype, "__next__")[0] in (ABSENT, None):
        message = f"iter() returned non-iterator of type {value.pytype.__name__!r}"
        return unwind_or_stop(m, ExceptionValue(TypeError, [Const(message)]))
    push(m, frame, value)
    return None


@returns(kinds.PUSH_THEN_NULL)
def push_then_null(m: Machine, frame: Frame, value: Value) -> None:
    m.frames[-1].stack += [value, NULL]


@returns(kinds.PUSH_BOOL, kinds.PUSH_NOT)
def push_bool(m: Machine, frame: Frame, value: Value) -> None:
    push_truth(m, value, frame.on_return)


@returns(kinds.OR_POP)
def or_pop(m: Machine, frame: Frame, value: Value) -> None:
    jump_or_pop(m.frames[-1], bool(value.constant()))


@returns(kinds.CLASS)
def push_class(m: Machine, frame: Frame, value: Value) -> None:
    m.push_result(class_statements.finish(m, frame))


@returns(kinds.FOR)
def end_loop(m: Machine, frame: Frame, value: Value) -> None:
    caller = m.frames[-1]
    caller.stack.pop()
    caller.pc = caller.instrs[caller.last].target


@returns(kinds.SEND)
def end_delegation(m: Machine, frame: Frame, value: Value) -> None:
    caller = m.frames[-1]
    caller.stack.append(value)
    caller.pc = caller.instrs[caller.last].target


@returns(kinds.NEXT_DEFAULT)
def push_default(m: Machine, frame: Frame, value: Value) -> None:
    m.frames[-1].stack.append(frame.default)


@returns(kinds.NEXT)
def stop_iteration(m: Machine, frame: Frame, value: Value) -> Any:
    args = [] if value is NONE or value.real is None else [value]
    return unwind_or_stop(m, ExceptionValue(StopIteration, args))


@returns(kinds.CLOSING)
def closed(m: Machine, frame: Frame, value: Value) -> Any:
    return unwind_or_stop(m, frame.default, again=True)
