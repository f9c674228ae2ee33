"""The symbolic machine: a stack of frames, and the logs that a trace is made of.

``run`` executes canonical instructions until the root frame returns (``Return``) or something cannot be
captured (``Stopped``). All changes go through logs that can be cut back: graph nodes, the undo journal of
mutated values, deferred effects, torch's global state. ``Mark`` is the length of each; a frame takes one at
the start of every instruction, so that an instruction which fails half-way leaves nothing behind.
Guards are never cut: guarding too much is harmless.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import torch

from sot.bytecode import Code
from sot.graph import GraphBuilder, NumberRef
from sot.guards.assumptions import Assumptions, Point
from sot.guards.guards import Guard, IsGuard
from sot.guards.origin import Arg, HandledOutside, Origin, known
from sot.guards.symbols import Symbols
from sot.interpreter import wrapping
from sot.interpreter.builtins import operators
from sot.interpreter.control_flow import higher_order
from sot.interpreter.control_flow.speculate import Touch, position
from sot.interpreter.effects import logging, output, warnings
from sot.interpreter.frame import BRANCH, CLOSING, FOR_NEXT, NEXT_DEFAULT, PUSH, SEND, TRIAL, Frame, argument_count
from sot.interpreter.objects import attributes, calls, class_statements, introspection
from sot.interpreter.opcodes import HANDLERS
from sot.interpreter.returns import RETURNS
from sot.interpreter.torch_ops import (
    autograd,
    checkpoints,
    function_transforms,
    gradients,
    module_hooks,
    numpy_arrays,
    overrides,
    random_state,
    tensor_hooks,
    torch_handlers,
)
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.trace import is_of_made_class
from sot.polyfills import torch_code
from sot.support.errors import Break, PyRaise, Reason, Skip
from sot.support.limits import unrolling
from sot.support.own_code import is_own
from sot.torch_compat.global_state import GlobalState, StateLog
from sot.values.base import ABSENT, ENTERED, NONE, Const, LastInstruction, Lazy, SavedException, Value
from sot.values.callables import CellValue, FunctionValue, known_function
from sot.values.classes import ClassValue
from sot.values.iterators import GeneratorValue, IteratorValue, PolyfilledGenerator
from sot.values.numbers import DynamicNumber
from sot.values.objects import DictValue, ExceptionValue, ObjectValue
from sot.values.tensor import TensorValue
from sot.values.text import ShownTensor

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
    raised: Value | None = None     # the exception that would leave the frame

    def __post_init__(self) -> None:
        # Frames of ours refer to it: with its traceback they would make a circle, and the user's frames that called us
        # would keep their variables until the collector comes.
        self.cause.__traceback__ = self.cause.__context__ = None


class Machine:
    """Executes one root frame symbolically."""

    attributes = attributes
    classes = class_statements
    calls = calls
    handlers = (torch_handlers, autograd, checkpoints, function_transforms, gradients, output, higher_order,
                module_hooks, introspection, logging, overrides, random_state, tensor_hooks, torch_code, warnings)
    torch_call = torch_call
    array_call = numpy_arrays.array_call
    set_data = torch_handlers.set_data
    through_overrides = staticmethod(overrides.through_overrides)
    is_followed_tensor = staticmethod(wrapping.is_followed_tensor)
    wrap = wrapping.wrap
    wrap_new = wrapping.wrap_new
    wrap_known = wrapping.wrap_known
    wrap_attr = wrapping.wrap_attr
    is_constant = staticmethod(wrapping.is_constant)
    compares_by_python = staticmethod(wrapping.compares_by_python)
    unary = operators.unary

    def __init__(self, function: FunctionType, code: Code, inputs: tuple, state: GlobalState,
                 assumptions: Assumptions) -> None:
        self.assumptions, self.varies = assumptions, assumptions.variation
        self.builder = GraphBuilder()
        self.guards: dict[Guard, tuple[str, int]] = {}
        self._symbols: Symbols | None = None
        self.varying_numbers: dict[Origin, Any] = {}    # those met so far, with the values that they have
        self.number_inputs: dict[Origin, NumberRef] = {}
        self.examples: dict[Guard, torch.Tensor] = {}
        self.input_origins: dict[int, Origin] = {}      # of the graph's inputs, by the id of their reference
        self.state_log: StateLog = []
        self.journal: list[Callable[[], Any]] = []
        self.effects: list[Callable] = []
        self.shown: list[ShownTensor] = []      # by output and text that are made after the graph
        self.array_memory = numpy_arrays.ArrayMemory()
        self.mutated: dict[int, Value] = {}
        self.compared: set[type] = set()        # types of objects whose identity has been asked
        self.by_id: dict[int, tuple[Any, Value]] = {}
        self.namespaces: dict[int, DictValue] = {}
        self.dict_owners: dict[int, ObjectValue] = {}   # by the id of their __dict__
        self.made_classes: dict[int, ClassValue] = {}   # by the id of their stand-in
        self.handled: Value | None = None
        self.readings: dict[Point, tuple[int, int]] = {}    # how often each is read, operations before the first
        self.watch: list[Touch] | None = None       # what has been touched in the branch that is followed
        self.refusal_seen = False       # see failures.py
        self.asserted: dict[str, tuple[type, tuple]] = {}   # what an assertion of the graph stands for, by its text
        self.shows_frames = False       # the program asks for frames, where capture stops
        self.leaves: dict[int, TensorValue] = {}    # by the id of the fake, see gradients.py
        self.made_leaves: set[int] = set()  # which, by the id of the fake
        self.modes: tuple[Value, ...] = ()          # see overrides.py
        self.asks_classes = state.asks_subclasses   # does torch ask arguments' classes for __torch_function__?
        self.places_unknown = False     # are there views whose place is in a tensor? see elements.py
        self.hooked = False             # has the trace put a hook on a tensor?
        self.code, self.inputs = code.code, inputs
        self.called_in_handler = sys.exception() is not None
        self.steps = 0
        self.unrolling = unrolling()
        self.generators: list[GeneratorValue] = []      # all but those that contextlib takes care of
        self.frames: list[Frame] = [self._root(function, code, inputs)]

    def _root(self, function: FunctionType, decoded: Code, inputs: tuple) -> Frame:
        code = decoded.code
        value = FunctionValue(code, function.__globals__, name=function.__qualname__, real=function)
        frame = Frame(decoded, function.__globals__, value)
        names = code.co_varnames[: argument_count(code)]
        for i, name in enumerate(names):
            frame.locals[name] = Lazy(inputs[i], Arg(i, name))
        for i, name in enumerate(code.co_freevars, len(names)):
            frame.cells[name] = CellValue.existing(self, name, inputs[i], Arg(i, name))
        value.closure = tuple(frame.cells[n] for n in code.co_freevars)
        return frame

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Let go of everything, the user's objects among it: values refer to each other in circles."""
        for frame in self.frames:
            frame.stack.clear()
            frame.locals.clear()
            frame.cells.clear()
        for _, value in self.by_id.values():
            value.__dict__.clear()
        self.__dict__.clear()

    # ---- the loop
    def run(self) -> Return | Stopped | None:
        """Execute until the root frame, or one that is followed by itself, returns or something stops it. None: the
        frame has come to where one way of a branch ends."""
        while True:
            frame = self.frames[-1]
            if frame.pc in frame.stops:
                return None
            instr = frame.instrs[frame.pc]
            frame.mark = self.mark(frame)
            frame.last = frame.pc
            frame.pc += 1
            self.steps += 1
            if self.steps > INSTRUCTION_LIMIT:
                raise Skip(Reason.TOO_LONG, str(INSTRUCTION_LIMIT))
            try:
                try:
                    done = HANDLERS[instr.op](self, frame, instr)
                except PyRaise as e:
                    done = self.unwind_or_stop(e.value, e.again, e.chained)
            except Break as e:
                done = Stopped(e)
            except (MemoryError, RecursionError) as e:      # of ours, from values that are too large or too deep
                done = Stopped(Break(Reason.OPERATION_FAILED, type(e).__name__))
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
        if guard not in self.guards and not (
                self.made_classes and is_of_made_class(guard, self.made_classes)):
            self.guards[guard] = self.user_position()[:2]

    @property
    def symbols(self) -> Symbols:
        if self._symbols is None:
            self._symbols = Symbols(self.builder.fake_mode)
        return self._symbols

    @property
    def has_symbols(self) -> bool:
        return self._symbols is not None

    def note_assumptions(self) -> None:
        """Guard what torch has assumed about symbols since the last time."""
        if self._symbols is not None:
            for guard in self._symbols.news():
                self.guard(guard)

    def varying_number(self, example: Any, origin: Origin, symbol: Any = None) -> DynamicNumber:
        """The Value of a number that may differ at the next call."""
        self.varying_numbers[origin] = example
        return DynamicNumber(self, example, origin, symbol)

    def symbolic(self, number: Any) -> Value:
        """The Value of a SymInt that torch has computed, such as the size of a result."""
        term = self.symbols.term(number)
        self.note_assumptions()
        if not isinstance(term, (tuple, Origin)):
            return Const(term)
        return DynamicNumber(self, self.symbols.example(number), term, number)

    def touch(self, value: Any, undo: Callable[[], None] | None = None) -> None:
        """Announce a mutation: its undo goes to the journal; an existing object will be replayed."""
        self.journal.append(undo or value.snapshot())
        if self.watch is not None:
            self.watch.append(Touch(value, position(self)))
        if value.real is not ABSENT:
            self.mutated.setdefault(id(value), value)

    def undoable(self, undo: Callable[[], Any]) -> None:
        self.journal.append(undo)

    def restore_state(self) -> None:
        """Set torch's global state to what it was before the trace."""
        for _, _, (function, args) in reversed(self.state_log):
            function(*args)

    def undo_state(self) -> None:
        """Take back the last change of torch's global state."""
        function, args = self.state_log.pop()[2]
        function(*args)

    def effect(self, emit: Callable) -> None:
        """Defer an effect: ``emit(emitter)`` writes its call into emitted code, in program order."""
        self.effects.append(emit)
        if self.watch is not None:
            self.watch.append(Touch(None, position(self)))

    # ---- frames
    def enter(self, function: FunctionValue | Callable[..., Any], args: list[Value],
              kwargs: dict[str, Value] | None = None, on_return: str = PUSH) -> Value:
        """Push a frame of a Python function; its result will be the answer."""
        if not isinstance(function, FunctionValue):
            function = known_function(self, function)
        if len(self.frames) >= DEPTH_LIMIT:
            raise Skip(Reason.DEPTH, function.name)    # not a break: 200 frames would be resumed
        return calls.enter(self, function, args, kwargs or {}, on_return)

    def trial(self, function: Value, args: list[Value]) -> Value:
        """The result of a call that is followed and taken back; a break if it has effects or cannot be followed."""
        depth, changed = len(self.frames), len(self.mutated)
        outer = self.frames[-1]
        result = function.call(self, args, {})
        if result is not ENTERED:
            return result
        self.frames[-1].on_return = TRIAL
        mark, effects = outer.mark, len(self.effects)
        done = self.run()
        clean = isinstance(done, Return) and len(self.mutated) == changed and len(self.effects) == effects
        outer.mark = mark
        del self.frames[depth:]
        while len(self.journal) > mark.journal:
            self.journal.pop()()
        self.builder.cut(mark.graph)
        if isinstance(done, Stopped):
            raise done.cause
        if not clean or done is None:
            raise Break(Reason.SIDE_EFFECT, str(function))
        return done.value

    def evaluate(self, function: Value, args: list[Value]) -> Value:
        """The result of a call that is followed at once, within the current instruction; what cannot be is a break."""
        depth = len(self.frames)
        result = function.call(self, args, {})
        if result is not ENTERED:
            return result
        self.frames[-1].on_return = TRIAL
        done = self.run()
        del self.frames[depth:]
        if isinstance(done, Stopped):
            raise done.cause
        assert done is not None
        return done.value

    def resume_generator(self, generator: GeneratorValue, sent: Value, on_return: str,
                         default: Value | None = None) -> None:
        """Run a suspended generator until its next yield."""
        if generator.running or generator.failed:
            self.refuse_running(generator)
        self.touch(generator)
        frame = generator.frame
        assert frame is not None
        generator.started = True
        frame.on_return, frame.default = on_return, default
        frame.stack.append(sent)
        self.push_generator(generator)

    def refuse_running(self, generator: GeneratorValue) -> None:
        if isinstance(generator, PolyfilledGenerator):
            when = "after an exception has left it" if generator.failed else "while it is stepped"
            raise Skip(Reason.UNSUPPORTED, f"a {generator.pytype.__name__} that is stepped {when}")
        self.throw(ValueError, "generator already executing")

    def push_generator(self, generator: GeneratorValue) -> None:
        """Let a suspended generator run. What it was handling when it yielded is handled again; under that is what
        its caller handles now."""
        frame = generator.frame
        assert frame is not None
        generator.running, frame.outer_handled = True, self.handled
        own = next((i for i, v in enumerate(frame.stack) if isinstance(v, SavedException)), None)
        if own is not None:
            frame.stack[own] = SavedException(self.handled)
            self.handled = generator.handled
        self.frames.append(frame)

    def throw_into(self, generator: GeneratorValue, exception: Value, on_return: str) -> None:
        """Raise where a generator is suspended; the innermost of those that it delegates to comes first. What one of
        them handles becomes the context of the exception; what their caller handles does not."""
        callers = self.handled
        self.enter_for_throw(generator, exception, on_return)
        raise PyRaise(exception, chained=self.handled is not callers)

    def enter_for_throw(self, generator: GeneratorValue, exception: Value, on_return: str) -> None:
        if generator.running or generator.failed:
            self.refuse_running(generator)
        frame = generator.frame
        self.touch(generator)
        if frame is None or not generator.started:
            generator.frame = None
            raise PyRaise(exception, chained=False)
        frame.on_return, frame.default = on_return, exception
        self.push_generator(generator)
        if frame.last > 0 and frame.instrs[frame.last - 1].op == "SEND":
            frame.last, frame.pc = frame.last - 1, frame.last
            inner = frame.stack[-1]
            if type(inner) is GeneratorValue:
                ending = CLOSING if issubclass(exception.pytype, GeneratorExit) else SEND
                self.enter_for_throw(inner, exception, ending)
            elif not isinstance(inner, (PolyfilledGenerator, IteratorValue)):
                raise Break(Reason.UNSUPPORTED, "generator.throw into a `yield from` of something else")

    def push_result(self, value: Value) -> None:
        if value is not ENTERED:
            self.frames[-1].stack.append(value)

    def return_value(self, value: Value) -> Return | Stopped | None:
        """Leave the current frame with a result."""
        if len(self.frames) == 1 or self.frames[-1].on_return in (TRIAL, BRANCH):
            return Return(value)
        frame = self.frames.pop()
        if frame.generator is not None:
            frame.generator.frame, frame.generator.running = None, False
        return RETURNS[frame.on_return](self, frame, value)

    def yield_value(self, value: Value) -> None:
        """Suspend the current generator frame."""
        if self.frames[-1].on_return == BRANCH:
            raise Break(Reason.BRANCH, f"{position(self)}: a generator yields in it")
        frame = self.frames.pop()
        frame.generator.running = False
        frame.generator.handled = self.handled if any(isinstance(v, SavedException) for v in frame.stack) else None
        self.handled = frame.outer_handled
        if frame.on_return == CLOSING:
            self.throw(RuntimeError, "generator ignored GeneratorExit")
        self.frames[-1].stack.append(value)

    def refuse_unclean(self, going_on: bool) -> None:
        """A generator that is given up runs its ``finally`` at once. Emitted code keeps values for longer than that:
        until it returns, so that there must be none if code of the program goes on before."""
        if any(g.cleans_up(going_on) for g in self.generators):
            raise Skip(Reason.UNSUPPORTED, "a generator that may be given up before it has cleaned up")

    # ---- exceptions of the user's program
    def throw(self, kind: type, *args: Any) -> Any:
        """Raise a builtin exception in the captured program."""
        raise PyRaise(ExceptionValue(kind, [self.wrap_new(a) for a in args]))

    def unwind_or_stop(self, exception: Value, again: bool = False, chained: bool = True) -> Stopped | None:
        if self._leaves_call(exception) or not any(
                f.instrs[f.last].handler >= 0 or f.on_return in (FOR_NEXT, NEXT_DEFAULT) for f in self.frames):
            text = exception.describe() if isinstance(exception, ExceptionValue) else str(exception)
            return Stopped(Break(Reason.UNCAUGHT, text), exception)
        if isinstance(exception, ExceptionValue) and chained and not again:
            self._chain(exception)
        raised_here = not again
        while True:
            frame = self.frames[-1]
            if raised_here and isinstance(exception, ExceptionValue):
                self._went_through(exception, frame)
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
            if len(self.frames) == 1 or frame.on_return in (TRIAL, BRANCH):
                return Stopped(Break(Reason.UNCAUGHT, str(exception)), exception)
            exception = self.not_stop_iteration(frame, exception)
            self._leave_by_exception(frame)
            caller, ended = self.frames[-1], issubclass(exception.pytype, StopIteration)
            if frame.on_return == CLOSING and (ended or issubclass(exception.pytype, GeneratorExit)):
                exception = frame.default
            if ended and frame.on_return == FOR_NEXT:
                caller.stack.pop()
                caller.pc = caller.instrs[caller.last].target
                return None
            if ended and frame.on_return == NEXT_DEFAULT:
                caller.stack.append(frame.default)
                return None

    def _leaves_call(self, exception: Value) -> bool:
        """Does an exception that existed before leave an inlined call? Its traceback then gets the caller's frame."""
        frame = self.frames[-1]
        return (isinstance(exception, ExceptionValue) and exception.real is not ABSENT and len(self.frames) > 1
                and frame.instrs[frame.last].handler < 0 and not is_own(frame.native.co_filename))

    def handled_outside(self) -> Value:
        """What the program finds handled where it handles nothing: nothing, unless its caller does."""
        if self.called_in_handler:
            raise Break(Reason.UNSUPPORTED, "asking for the exception that the caller handles")
        self.guard(IsGuard(HandledOutside(), None))
        return NONE

    def _chain(self, exception: ExceptionValue) -> None:
        """What is handled becomes the context of what is raised; a cycle is cut, as CPython does."""
        inner = self.handled
        if inner is None and exception.real is ABSENT and not exception.raised_unchained:
            self.undoable(lambda: setattr(exception, "raised_unchained", False))
            exception.raised_unchained = True
        if inner is None or inner is exception:
            return
        seen: set[int] = set()      # for a program may have made a cycle itself
        while isinstance(inner, ExceptionValue) and inner.context is not None and id(inner) not in seen:
            seen.add(id(inner))
            if inner.context is exception:
                self._set_context(inner, None)
                break
            inner = inner.context
        self._set_context(exception, self.handled)

    def _set_context(self, exception: ExceptionValue, context: Value | None) -> None:
        before = exception.context
        self.undoable(lambda: setattr(exception, "context", before))
        exception.context = context

    def _went_through(self, exception: ExceptionValue, frame: Frame) -> None:
        """Add to the traceback of an exception. Frames of ours stand for C code, which has none."""
        if exception.real is ABSENT and not is_own(frame.native.co_filename):
            before = exception.trace
            self.undoable(lambda: setattr(exception, "trace", before))
            exception.trace = (*before, (frame.native, frame.line))

    def not_stop_iteration(self, frame: Frame, exception: Value) -> Value:
        """What leaves a generator's frame (PEP 479)."""
        if type(frame.generator) is not GeneratorValue or not issubclass(exception.pytype, StopIteration):
            return exception
        made = ExceptionValue(RuntimeError, [Const("generator raised StopIteration")])
        made.cause = made.context = exception
        made.suppress = True
        return made

    def _leave_by_exception(self, frame: Frame) -> None:
        self.frames.pop()
        if isinstance(frame.generator, PolyfilledGenerator):
            frame.generator.running, frame.generator.failed = False, True
        elif frame.generator is not None:
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

    def user_frames(self) -> list[Frame]:
        """The frames that are not ours, the innermost first."""
        return [*self._user_frames()]

    def _user_frames(self) -> Iterator[Frame]:
        return (f for f in reversed(self.frames) if not is_own(f.native.co_filename))

    def user_position(self) -> tuple[str, int, str]:
        """(file, line, function) of the innermost frame that is not ours."""
        frame = next(self._user_frames(), self.frames[0])
        return frame.native.co_filename, frame.line, frame.native.co_name

    def stack_trace(self) -> str:
        """The user's stack in the form that fx keeps on nodes."""
        return "".join(f'  File "{f.native.co_filename}", line {f.line}, in {f.native.co_name}\n'
                       for f in self.frames[-6:] if not is_own(f.native.co_filename))
