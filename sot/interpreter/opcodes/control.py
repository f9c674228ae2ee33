"""Jumps, iteration, generators, exceptions and ``with``."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot import _hook
from sot.bytecode import Instr
from sot.bytecode.instr import METHODS_OF_WITH
from sot.interpreter import coroutines, loop, suspension, unroll_limit
from sot.interpreter.builtins import iteration
from sot.interpreter.builtins.exceptions import groups
from sot.interpreter.control_flow import branches, predicates
from sot.interpreter.frame import FOR, FOR_NEXT, OR_POP
from sot.interpreter.frame import SEND as RETURN_TO_SEND
from sot.interpreter.objects import attributes
from sot.interpreter.opcodes.operate import decide
from sot.interpreter.opcodes.table import op
from sot.interpreter.suspension import resume_generator
from sot.polyfills import language
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import handles
from sot.values.base import (
    ABSENT,
    ENTERED,
    NONE,
    NULL,
    Const,
    Opaque,
    SavedException,
    Value,
    boolean,
)
from sot.values.callables import BoundMethod, FunctionValue
from sot.values.iterators import GeneratorValue, IteratorValue
from sot.values.numbers import VaryingRange
from sot.values.objects import ExceptionValue, ObjectValue, TupleValue
from sot.values.objects.exceptions import traceback_value
from sot.values.objects.hosted import HostedValue
from sot.values.tensor import TensorBool

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine

LEAVES = {leave for _, leave in METHODS_OF_WITH.values()}


# ---- jumps
@op("JUMP")
def jump(m: Machine, frame: Frame, instr: Instr) -> None:
    take_jump(m, frame, instr)


def take_jump(m: Machine, frame: Frame, instr: Instr) -> None:
    """Jump to the target. If a loop iterates too often, Python continues it, and its body gets an entry."""
    if instr.target <= frame.last:
        unroll_limit.go_around(m, frame, instr.target)
    frame.pc = instr.target


def is_module(element: Value) -> bool:
    """Whether it is a module, alone or in a tuple from enumerate or zip."""
    if isinstance(element, TupleValue):
        return any(isinstance(v, Value) and is_module(v) for v in element.items)
    return isinstance(element, ObjectValue) and issubclass(element.pytype, torch.nn.Module)


@op("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def pop_jump_if(m: Machine, frame: Frame, instr: Instr) -> Any:
    known = decide(m, frame)
    if isinstance(known, TensorBool):
        return branches.jump(m, frame, known)
    if known is (instr.op == "POP_JUMP_IF_TRUE"):
        take_jump(m, frame, instr)
    return None


@op("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_none(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    if (value.pytype is type(None)) is (instr.op == "POP_JUMP_IF_NONE"):
        frame.pc = instr.target


@op("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_if_or_pop(m: Machine, frame: Frame, instr: Instr) -> Any:
    known = predicates.decide(m, frame.stack[-1])
    if isinstance(known, TensorBool):
        return branches.jump(m, frame, known)
    if known is ENTERED:
        m.frames[-1].on_return = OR_POP
    else:
        jump_or_pop(frame, known)
    return None


def jump_or_pop(frame: Frame, truth: bool) -> None:
    """JUMP_IF_TRUE_OR_POP and JUMP_IF_FALSE_OR_POP, when the truth of the value is known."""
    instr = frame.instrs[frame.last]
    if truth is (instr.op == "JUMP_IF_TRUE_OR_POP"):
        frame.pc = instr.target
    else:
        frame.stack.pop()


@op("RETURN_VALUE")
def return_value(m: Machine, frame: Frame, instr: Instr) -> Any:
    return loop.return_value(m, frame.stack.pop())


# ---- iteration
@op("GET_ITER")
def get_iter(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack[-1]
    if m.varies.loops and isinstance(value, VaryingRange) and value.varies and (
            frame.instrs[frame.pc].op == "FOR_ITER" and frame.resumable):
        raise Break(Reason.LOOP, "a different number of times from call to call")
    frame.stack.pop()
    m.push_result(iteration.get_iter(m, value))


@op("GET_YIELD_FROM_ITER")
def get_yield_from_iter(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    m.push_result(value if isinstance(value, GeneratorValue) else iteration.get_iter(m, value))


@op("FOR_ITER")
def for_iter(m: Machine, frame: Frame, instr: Instr) -> None:
    unroll_limit.enter_loop(m, frame, frame.last)
    iterator = frame.stack[-1]
    if isinstance(iterator, GeneratorValue) and iterator.frame is not None:
        resume_generator(m, iterator, NONE, FOR)
        return
    if isinstance(iterator, GeneratorValue):
        value = ABSENT
    elif isinstance(iterator, (IteratorValue, HostedValue)):
        unroll_limit.refuse_started(m, frame, iterator)
        value = iterator.step(m)
        if value is not ABSENT and is_module(value):
            frame.rounds.clear()    # over the layers of a model each iteration has another body, so all are unrolled
    else:
        m.enter(next_method(m, iterator), [iterator], {}, FOR_NEXT)
        return
    if value is ABSENT:
        frame.stack.pop()
        frame.pc = instr.target
    else:
        frame.stack.append(value)


def next_method(m: Machine, iterator: Value) -> FunctionValue:
    """The user's ``__next__``. Python steps a C iterator."""
    method = attributes.special(m, iterator, "__next__")
    if isinstance(method, BoundMethod) and isinstance(method.function, FunctionValue):
        return method.function
    raise Break(Reason.OPAQUE_ITERATOR, iterator.pytype.__qualname__)


@op("SEND")
def send(m: Machine, frame: Frame, instr: Instr) -> None:
    value, receiver = frame.stack.pop(), frame.stack[-1]
    if isinstance(receiver, GeneratorValue) and receiver.frame is not None:
        resume_generator(m, receiver, value, RETURN_TO_SEND)
        return
    if not isinstance(receiver, (GeneratorValue, IteratorValue)) or value.pytype is not type(None):
        raise Break(Reason.OPAQUE_ITERATOR, receiver.pytype.__qualname__)
    got = receiver.step(m) if isinstance(receiver, IteratorValue) else ABSENT
    if got is ABSENT:
        frame.stack.append(NONE)
        frame.pc = instr.target
    else:
        frame.stack.append(got)


@op("GET_AWAITABLE")
def get_awaitable(m: Machine, frame: Frame, instr: Instr) -> None:
    m.push_result(coroutines.awaitable(m, frame.stack.pop()))


@op("END_SEND")
def end_send(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    frame.stack[-1] = value


@op("YIELD_VALUE")
def yield_value(m: Machine, frame: Frame, instr: Instr) -> None:
    suspension.yield_value(m, frame.stack.pop())


@op("RETURN_GENERATOR", "CLEANUP_THROW")
def left_to_python(m: Machine, frame: Frame, instr: Instr) -> None:
    raise Break(Reason.OPCODE, instr.op)


# ---- exceptions
@op("RAISE_VARARGS")
def raise_varargs(m: Machine, frame: Frame, instr: Instr) -> None:
    if instr.arg == 0:
        if m.handled is None:
            raise Break(Reason.UNCAUGHT, "a bare raise")
        raise PyRaise(m.handled, again=True)
    cause = frame.stack.pop() if instr.arg == 2 else None
    value = frame.stack.pop()
    if is_exception_class(value):
        m.enter(language.raise_class if cause is None else language.raise_class_from,
                [value] if cause is None else [value, cause])
        return
    if cause is not None and is_exception_class(cause):
        m.enter(language.raise_from_class, [value, cause])
        return
    if not isinstance(value, ExceptionValue):
        raise Break(Reason.UNCAUGHT, str(value))
    if value.real is not ABSENT:
        raise Break(Reason.UNSUPPORTED, f"raising {value}, which existed before,")
    if cause is not None and cause is not NONE and not isinstance(cause, ExceptionValue):
        raise Break(Reason.BAD_CALL, f"raise from {cause}")
    if cause is not None:
        m.touch(value)
        value.cause, value.suppress = (None if cause is NONE else cause), True
    raise PyRaise(value)


def is_exception_class(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.real, type) and issubclass(value.real, BaseException)


@op("RERAISE")
def reraise(m: Machine, frame: Frame, instr: Instr) -> None:
    raise PyRaise(frame.stack.pop(), again=True)


@op("PUSH_EXC_INFO")
def push_exc_info(m: Machine, frame: Frame, instr: Instr) -> None:
    exception = frame.stack.pop()
    frame.stack += [SavedException(m.handled), exception]
    m.handled = exception


@op("POP_EXCEPT")
def pop_except(m: Machine, frame: Frame, instr: Instr) -> None:
    saved = frame.stack.pop()
    assert isinstance(saved, SavedException)
    m.handled = saved.saved


@op("CHECK_EXC_MATCH")
def check_exc_match(m: Machine, frame: Frame, instr: Instr) -> None:
    wanted = frame.stack.pop()
    classes = wanted.items_list(m) if isinstance(wanted, TupleValue) else [wanted]
    if not all(is_exception_class(c) for c in classes or ()):
        raise Break(Reason.UNSUPPORTED, "an except clause with something other than classes")
    bases = frame.stack[-1].pytype.__mro__      # not what a metaclass claims
    frame.stack.append(boolean(any(c.real in bases for c in classes or ())))


@op("CHECK_EG_MATCH")
def check_eg_match(m: Machine, frame: Frame, instr: Instr) -> None:
    wanted, error = frame.stack.pop(), frame.stack.pop()
    rest, handled = groups.star_match(m, error, wanted)
    frame.stack += [rest, handled]
    if handled is not NONE:
        m.handled = handled


# ---- with
@op("BEFORE_WITH", "BEFORE_ASYNC_WITH")
def before_with(m: Machine, frame: Frame, instr: Instr) -> None:
    manager = frame.stack.pop()
    enter, leave = (method_of_with(m, manager, name) for name in METHODS_OF_WITH[instr.op])
    if enter is ENTERED:
        raise Break(Reason.OPAQUE_CALL, f"the context manager {manager}")
    frame.stack.append(leave)
    if instr.arg:       # since 3.14 there is a slot for self
        frame.stack.append(NULL)
    m.push_result(enter.call(m, [], {}))


@handles(_hook.special_method)
def looked_up(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The lookup where a ``with`` begins whose block suspends: its instruction, in the form of `lowered`."""
    manager, name = args
    return method_of_with(m, manager, name.real)


def method_of_with(m: Machine, manager: Value, name: str) -> Value:
    method = attributes.special(m, manager, name)
    if method is None:
        raise Break(Reason.OPERATION_FAILED, f"{manager} is not a context manager")
    if isinstance(manager, Opaque) or not isinstance(method, BoundMethod) and name in LEAVES:
        raise Break(Reason.OPAQUE_CALL, f"the context manager {manager}")
    return method


@op("WITH_EXCEPT_START")
def with_except_start(m: Machine, frame: Frame, instr: Instr) -> None:
    exception, leave = frame.stack[-1], frame.stack[-5 if instr.arg else -4]
    args = [Const(exception.pytype), exception, traceback_value(exception)]
    m.push_result(leave.call(m, args, {}))
