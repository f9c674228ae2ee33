"""The symbolic machine: a stack of frames, and the logs that a trace is made of.

``run`` executes canonical instructions until the root frame returns (``Return``) or something cannot be
captured (``Stopped``). All changes go through logs that can be cut back: graph nodes, the undo journal of
mutated values, deferred effects, torch's global state. ``Mark`` is the length of each; a frame takes one at
the start of every instruction, so that an instruction which fails half-way leaves nothing behind.
Guards are never cut: guarding too much is harmless.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch

from sot.errors import Break, PyRaise, Reason, Skip
from sot.execute import attributes, calls, wrapping
from sot.execute.frame import FOR, FOR_NEXT, NEXT, NEXT_DEFAULT, PUSH, SEND, Frame
from sot.execute.opcodes import HANDLERS
from sot.execute.torch_calls import torch_call
from sot.graph import GraphBuilder
from sot.guards import Guard, IsGuard
from sot.origin import Arg, Attr, Known, known
from sot.values.base import ABSENT, ENTERED, NONE, Const, Lazy, Value
from sot.values.callables import CellValue, FunctionValue, known_function
from sot.values.iterators import GeneratorValue
from sot.values.objects import DictValue, ExceptionValue, ObjectValue

INSTRUCTION_LIMIT = 400_000
DEPTH_LIMIT = 200


class Mark(NamedTuple):
    """The state of the machine at the start of an instruction of one frame."""

    pc: int
    stack: tuple[Value, ...]
    graph: tuple[int, int]
    journal: int
    effects: int
    handled: Value | None


@dataclass
class Return:
    """The root frame returned a value."""

    value: Value


@dataclass
class Stopped:
    """Capture ended at a break in the frame on top of the stack."""

    cause: Break


class Machine:
    """Executes one root frame symbolically."""

    attributes = attributes
    calls = calls
    torch_call = torch_call
    wrap = wrapping.wrap
    wrap_new = wrapping.wrap_new
    wrap_known = wrapping.wrap_known
    wrap_attr = wrapping.wrap_attr
    is_constant = staticmethod(wrapping.is_constant)

    def __init__(self, function: FunctionType, inputs: tuple) -> None:
        self.builder = GraphBuilder()
        self.guards: dict[Guard, tuple[str, int]] = {}
        self.guarded_classes: set = set()
        self.journal: list[Callable[[], None]] = []
        self.effects: list[Callable] = []
        self.mutated: dict[int, Value] = {}
        self.by_id: dict[int, tuple[Any, Value]] = {}
        self.namespaces: dict[int, DictValue] = {}
        self.handled: Value | None = None
        self.inputs = inputs
        self.steps = 0
        self.frames: list[Frame] = [self._root(function, inputs)]

    def _root(self, function: FunctionType, inputs: tuple) -> Frame:
        code = function.__code__
        value = FunctionValue(code, function.__globals__, name=function.__qualname__, real=function)
        frame = Frame(code, function.__globals__, value)
        names = code.co_varnames[: argument_count(code)]
        for i, name in enumerate(names):
            frame.locals[name] = Lazy(inputs[i], Arg(i, name))
        for i, name in enumerate(code.co_freevars, len(names)):
            frame.cells[name] = CellValue.existing(name, inputs[i], Arg(i, name))
        value.closure = tuple(frame.cells[n] for n in code.co_freevars)
        return frame

    # ---- the loop
    def run(self) -> Return | Stopped:
        while True:
            frame = self.frames[-1]
            instr = frame.instrs[frame.pc]
            frame.mark = self.mark(frame)
            frame.last = frame.pc
            frame.pc += 1
            self.steps += 1
            if self.steps > INSTRUCTION_LIMIT:
                raise Skip(Reason.TOO_LONG, str(INSTRUCTION_LIMIT))
            try:
                done = HANDLERS[instr.op](self, frame, instr)
            except PyRaise as e:
                done = self._unwind_or_stop(e.value)
            except Break as e:
                done = Stopped(e)
            if done is not None:
                return done

    def mark(self, frame: Frame) -> Mark:
        return Mark(frame.pc, tuple(frame.stack), self.builder.mark(), len(self.journal), len(self.effects),
                    self.handled)

    def rollback(self, depth: int) -> None:
        """Cut everything back to the start of the current instruction of frame ``depth``."""
        del self.frames[depth + 1:]
        frame = self.frames[depth]
        mark = frame.mark
        while len(self.journal) > mark.journal:
            self.journal.pop()()
        self.builder.cut(mark.graph)
        del self.effects[mark.effects:]
        frame.pc = frame.last = mark.pc
        frame.stack = list(mark.stack)
        self.handled = mark.handled

    # ---- logs
    def guard(self, guard: Guard) -> None:
        if guard not in self.guards:
            frame = self.frames[-1]
            self.guards[guard] = (frame.native.co_filename, frame.line)

    def touch(self, value: Any) -> None:
        """Announce a mutation: its undo goes to the journal; an existing object will be replayed."""
        self.journal.append(value.snapshot())
        if value.real is not ABSENT or isinstance(value, DictValue):
            self.mutated.setdefault(id(value), value)

    def undoable(self, undo: Callable[[], None]) -> None:
        self.journal.append(undo)

    def effect(self, emit: Callable) -> None:
        """Defer an effect: ``emit(emitter)`` writes its call into emitted code, in program order."""
        self.effects.append(emit)

    # ---- frames
    def enter(self, function: FunctionValue | FunctionType, args: list[Value], kwargs: dict[str, Value] | None = None,
              on_return: str = PUSH) -> Value:
        """Push a frame of a Python function; its result will be the answer."""
        if not isinstance(function, FunctionValue):
            function = known_function(function)
        if len(self.frames) >= DEPTH_LIMIT:
            raise Break(Reason.DEPTH, function.name)
        return calls.enter(self, function, args, kwargs or {}, on_return)

    def resume_generator(self, generator: GeneratorValue, sent: Value, on_return: str,
                         default: Value | None = None) -> None:
        """Run a suspended generator until its next yield."""
        if generator.running:
            self.throw(ValueError, "generator already executing")
        self.touch(generator)
        frame = generator.frame
        assert frame is not None
        generator.started = generator.running = True
        frame.on_return, frame.default = on_return, default
        frame.stack.append(sent)
        self.frames.append(frame)

    def push_result(self, value: Value) -> None:
        if value is not ENTERED:
            self.frames[-1].stack.append(value)

    def return_value(self, value: Value) -> Return | None:
        """Leave the current frame with a result."""
        if len(self.frames) == 1:
            return Return(value)
        frame = self.frames.pop()
        if frame.generator is not None:
            frame.generator.frame, frame.generator.running = None, False
        caller = self.frames[-1]
        if frame.on_return in (PUSH, FOR_NEXT):
            caller.stack.append(value)
        elif frame.on_return == FOR:
            caller.stack.pop()
            caller.pc = caller.instrs[caller.last].target  # type: ignore[assignment]
        elif frame.on_return == SEND:
            caller.stack.append(value)
            caller.pc = caller.instrs[caller.last].target  # type: ignore[assignment]
        elif frame.on_return == NEXT_DEFAULT:
            caller.stack.append(frame.default)
        elif frame.on_return == NEXT:
            args = [] if value is NONE or value.real is None else [value]
            return self._unwind_or_stop(ExceptionValue(StopIteration, args))
        return None

    def yield_value(self, value: Value) -> None:
        """Suspend the current generator frame."""
        frame = self.frames.pop()
        frame.generator.running = False
        self.frames[-1].stack.append(value)

    # ---- exceptions of the user's program
    def throw(self, kind: type, *args: Any) -> Any:
        """Raise a builtin exception in the captured program."""
        raise PyRaise(ExceptionValue(kind, [self.wrap_new(a) for a in args]))

    def _unwind_or_stop(self, exception: Value) -> Stopped | None:
        if not any(f.instrs[f.last].handler >= 0 or f.on_return in (FOR_NEXT, NEXT_DEFAULT) for f in self.frames):
            text = exception.describe() if isinstance(exception, ExceptionValue) else str(exception)
            return Stopped(Break(Reason.UNCAUGHT, text))
        if isinstance(exception, ExceptionValue) and exception.context is None and self.handled is not exception:
            exception.context = self.handled
        while True:
            frame = self.frames[-1]
            index = frame.instrs[frame.last].handler
            if index >= 0:
                handler = frame.code.handlers[index]
                del frame.stack[handler.depth:]
                if handler.lasti:
                    frame.stack.append(Const(frame.last))
                frame.stack.append(exception)
                frame.pc = handler.target  # type: ignore[assignment]
                return None
            if len(self.frames) == 1:
                return Stopped(Break(Reason.UNCAUGHT, str(exception)))
            self._leave_by_exception(frame)
            caller, ended = self.frames[-1], issubclass(exception.pytype, StopIteration)
            if ended and frame.on_return == FOR_NEXT:
                caller.stack.pop()
                caller.pc = caller.instrs[caller.last].target  # type: ignore[assignment]
                return None
            if ended and frame.on_return == NEXT_DEFAULT:
                caller.stack.append(frame.default)
                return None

    def _leave_by_exception(self, frame: Frame) -> None:
        self.frames.pop()
        if frame.generator is not None:
            frame.generator.frame, frame.generator.running = None, False

    # ---- values
    def settle_at(self, items: list, index: int) -> Value:
        """The Value at an index of a list that may hold Lazy places."""
        value = items[index]
        if type(value) is Lazy:
            value = items[index] = self.wrap(value.real, value.origin)
        return value

    def settle(self, items: list) -> list[Value]:
        return [self.settle_at(items, i) for i in range(len(items))]

    def namespace(self, namespace: dict) -> DictValue:
        """The Value of a module's globals."""
        found = self.namespaces.get(id(namespace))
        if found is None:
            origin = known(namespace, namespace.get("__name__", "globals") + " globals")
            found = self.namespaces[id(namespace)] = DictValue(dict, namespace, origin)
            found.namespace = True
        return found

    def user_position(self) -> tuple[str, int, str]:
        """(file, line, function) of the innermost frame that is not ours."""
        for frame in reversed(self.frames):
            if not frame.native.co_filename.startswith(OURS):
                return frame.native.co_filename, frame.line, frame.native.co_name
        frame = self.frames[0]
        return frame.native.co_filename, frame.line, frame.native.co_name

    def stack_trace(self) -> str:
        """The user's stack in the form that fx keeps on nodes."""
        return "".join(f'  File "{f.native.co_filename}", line {f.line}, in {f.native.co_name}\n'
                       for f in self.frames[-6:] if not f.native.co_filename.startswith(OURS))


OURS = __file__.rsplit("/execute/", 1)[0]


def argument_count(code: CodeType) -> int:
    """How many of ``co_varnames`` are parameters."""
    return (code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08))


__all__ = ["Machine", "Return", "Stopped", "argument_count", "IsGuard", "Attr", "Known", "ObjectValue", "torch"]
