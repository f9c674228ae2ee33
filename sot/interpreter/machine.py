"""The symbolic machine: a stack of frames, and the logs from which a trace is made.

``run`` executes canonical instructions until the root frame returns (``Return``) or something cannot be captured
(``Stopped``). All changes go through logs that can be cut back: graph nodes, the undo journal of mutated values,
deferred effects, torch's global state. ``Mark`` is the length of each log. A frame takes one at the start of every
instruction, so an instruction that fails half-way leaves nothing behind. Guards are never cut back, because an extra
guard is harmless.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch

from sot.bytecode import Code
from sot.bytecode.resume_origin import argument_count
from sot.graph import GraphBuilder, NumberRef
from sot.guards.assumptions import Assumptions, Point
from sot.guards.draws import Draws
from sot.guards.guards import Guard, IsGuard, RelationGuard
from sot.guards.origin import Arg, Origin, known
from sot.guards.symbols import Symbols
from sot.interpreter import entering
from sot.interpreter.control_flow.failures import Refusals
from sot.interpreter.frame import PUSH, Frame
from sot.interpreter.numpy_ops.memory import ArrayMemory
from sot.interpreter.outcomes import Mark, Touch
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.interpreter.torch_ops.wrappers.code_of_classes import ClassCode
from sot.support.errors import PyRaise, Reason, Skip
from sot.support.own_code import is_own
from sot.support.settings import unrolling
from sot.torch_compat.fake_tensors import forget_tensors
from sot.torch_compat.global_state import GlobalState, StateLog
from sot.values.base import ABSENT, ENTERED, Const, Lazy, Value
from sot.values.callables import CellValue, FunctionValue, known_function
from sot.values.classes import ClassValue, is_of_made_class
from sot.values.deferred_scalars import refuse_drawn
from sot.values.iterators import GeneratorValue
from sot.values.numbers import DynamicNumber
from sot.values.objects import DictValue, ExceptionValue, ObjectValue
from sot.values.objects.class_attributes import ClassAttributes
from sot.values.objects.contexts import Entered
from sot.values.tensor import TensorValue
from sot.values.text import ShownTensor
from sot.values.wrapping import wrap, wrap_new

DEPTH_LIMIT = 200
SHOWN = 8       # frames in the stack of a node


class Machine:
    """Executes one root frame symbolically."""

    def __init__(self, function: FunctionType, code: Code, inputs: tuple, state: GlobalState,
                 assumptions: Assumptions) -> None:
        self.assumptions, self.varies = assumptions, assumptions.variation
        self.builder = GraphBuilder()
        self.guards: dict[Guard, tuple[str, int]] = {}
        self._symbols: Symbols | None = None
        self.varying_numbers: dict[Origin, Any] = {}    # those met so far, with their current values
        self.number_inputs: dict[Origin, NumberRef] = {}
        self.examples: dict[Guard, torch.Tensor] = {}
        self.input_origins: dict[int, Origin] = {}      # of the graph's inputs, by the id of their reference
        self.state_log: StateLog = []
        self.journal: list[Callable[[], Any]] = []
        self.effects: list[Callable] = []
        self.draws = Draws()
        self.warns_always = self.has_warned = False     # does torch show each warning again? was there one?
        self.shows_warning: Any = None      # the program's warnings.showwarning
        self.warned: list[tuple[Any, Any]] = []     # the warnings of an operation, see torch_warnings.py
        self.shown: list[ShownTensor] = []      # tensors in output and text made after the graph
        self.array_memory = ArrayMemory()
        self.mutated: dict[int, Value] = {}
        self.compared: set[type] = set()        # types of objects whose identity was compared
        self.by_id: dict[int, tuple[Any, Value]] = {}
        self.changed_uncaptured: dict[int, str] = {}     # by the id of the object, see uncaptured_code.py
        self.namespaces: dict[int, DictValue] = {}
        self.entered = Entered()
        self.dict_owners: dict[int, ObjectValue] = {}   # by the id of their __dict__
        self.made_classes: dict[int, ClassValue] = {}   # by the id of their stand-in
        self.written_classes: dict[int, ClassAttributes] = {}   # by the id of the class
        self.looked_up: dict[tuple[int, str], tuple[Any, type, type]] = {}      # see lookup.py
        self.handled: Value | None = None
        self.readings: dict[Point, tuple[int, int]] = {}    # how often, and the operations before the first
        self.watch: list[Touch] | None = None       # values that were changed in the branch that is being executed
        self.refusals = Refusals()
        self.asserted: dict[str, tuple[type, tuple]] = {}   # exceptions for assertions of the graph, by their text
        self.guesses: dict[str, graph_numbers.Guess] = {}   # about sizes that depend on data, by the assertion's text
        self.shows_frames = False       # the program reads frames at the place where capture stops
        self.leaves: dict[int, TensorValue] = {}    # by the id of the fake, see gradients/
        self.made_leaves: set[int] = set()  # these leaves, by the id of the fake
        self.wrapped: dict[int, TensorValue] = {}   # for levels of torch.func, by the id of the fake
        self.wrapper_codes: dict[type, ClassCode] = {}       # see wrappers/
        self.parts: dict[int, tuple[Any, Value]] = {}   # inner tensors of wrappers, by the id of the fake
        self.modes: tuple[Value, ...] = ()          # see overrides.py
        self.asks_classes = state.asks_subclasses   # whether torch looks for __torch_function__ in arguments' classes
        self.places_unknown = False     # whether there are views whose offset is in a tensor, see elements.py
        self.of_compilers = False       # whether a part of the graph has the form for a backend that compiles
        self.hooked = False             # whether the trace has put a hook on a tensor
        self.added_hooks: list[Any] = []     # those that are not removed yet
        self.storages_read: set[int] = set()        # by the id of the fake of the tensor
        self.grad_fns: dict[Any, Value] = {}        # by the node of the fake
        self.passed_through: list[Any] = []     # the results of each BackwardHookFunction, which has hooks of modules
        self.running_pass: Any = None       # the number of the backward pass whose hooks are executed, or None
        self.started: list[Any] = []    # collectives for whose end the program has not waited
        self.retained: list[TensorValue] = []       # tensors that keep their gradient though they are no leaves
        self.code, self.inputs, self.unrolling = code.code, inputs, unrolling()
        self.called_in_handler = sys.exception() is not None
        self.names_guarded: set[int] = set()    # the functions whose names are guarded, see names_used.py
        self.steps, self.quiet_since = 0, (0, 0)    # operations, and steps when a call first saw their number
        self.generators: list[GeneratorValue] = []      # all but those that contextlib manages
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
        """Drop all references, among them those to the user's objects, because values refer to each other in
        cycles.
        """
        forget_tensors(self.builder.fake_mode)
        for frame in self.frames:
            frame.stack.clear()
            frame.locals.clear()
            frame.cells.clear()
        for _, value in self.by_id.values():
            value.__dict__.clear()
        self.__dict__.clear()

    # ---- the loop
    def mark(self, frame: Frame) -> Mark:
        return Mark(frame.pc, tuple(frame.stack), self.builder.mark(), len(self.journal), len(self.effects),
                    self.handled)

    def rollback(self, depth: int) -> None:
        """Cut all logs back to the start of the current instruction of frame ``depth``."""
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
        if self.draws.calls and isinstance(guard, RelationGuard):
            refuse_drawn(guard.left, guard.right)
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
        """Whether sizes or numbers may differ at the next call."""
        return self._symbols is not None and bool(self._symbols.numbers)

    @property
    def has_data_sizes(self) -> bool:
        """Whether sizes or numbers of the graph may depend on data."""
        return self._symbols is not None and self._symbols.admits_data

    def note_assumptions(self, of_operator: bool = False) -> list[RelationGuard]:
        """Guard what torch has assumed about symbols since the last call (for an operator?), and return the guards."""
        news = [*self._symbols.news()] if self._symbols is not None else []
        for guard in news:
            self.guard(replace(guard, of_operator=True) if of_operator else guard)
        return news

    def varying_number(self, example: Any, origin: Origin, symbol: Any = None) -> DynamicNumber:
        """The Value of a number that may differ at the next call."""
        self.varying_numbers[origin] = example
        return DynamicNumber(self, example, origin, symbol)

    def symbolic(self, number: Any) -> Value:
        """The Value of a SymInt that torch has computed, such as the size of a result."""
        if self.has_data_sizes and self.symbols.data.depends_on_data(number):
            return graph_numbers.of_symbol(self, number)
        term = self.symbols.term(number)
        self.note_assumptions()
        if not isinstance(term, (tuple, Origin)):
            return Const(term)
        return DynamicNumber(self, self.symbols.example(number), term, number)

    def touch(self, value: Any, undo: Callable[[], None] | None = None) -> None:
        """Announce a mutation. Its undo goes to the journal, and mutations of existing objects will be replayed."""
        self.journal.append(undo or value.snapshot())
        if self.watch is not None:
            self.watch.append(Touch(value, self.position()))
        if value.real is not ABSENT:
            self.mutated.setdefault(id(value), value)

    def undoable(self, undo: Callable[[], Any]) -> None:
        self.journal.append(undo)

    def restore_state(self) -> None:
        """Restore torch's global state to that before the trace."""
        for _, _, (function, args) in reversed(self.state_log):
            function(*args)

    def undo_state(self) -> None:
        """Undo the last change of torch's global state."""
        function, args = self.state_log.pop()[2]
        function(*args)

    def effect(self, emit: Callable) -> None:
        """Defer an effect: ``emit(emitter)`` writes its call into emitted code, in program order."""
        self.effects.append(emit)
        if self.watch is not None:
            self.watch.append(Touch(None, self.position()))

    # ---- frames
    def enter(self, function: FunctionValue | Callable[..., Any], args: list[Value],
              kwargs: dict[str, Value] | None = None, on_return: str = PUSH) -> Value:
        """Push a frame of a Python function; its result will be the answer."""
        if not isinstance(function, FunctionValue):
            function = known_function(self, function)
        if len(self.frames) >= DEPTH_LIMIT:
            raise Skip(Reason.DEPTH, function.name)    # not a break, because 200 frames would have to be resumed
        return entering.enter(self, function, args, kwargs or {}, on_return)

    def push_result(self, value: Value) -> None:
        if value is not ENTERED:
            self.frames[-1].stack.append(value)

    # ---- exceptions of the user's program
    def throw(self, kind: type, *args: Any) -> Any:
        """Raise a builtin exception in the captured program."""
        raise PyRaise(ExceptionValue(kind, [wrap_new(self, a) for a in args]))

    # ---- values
    def settle_at(self, items: list, index: int) -> Value:
        """The Value at an index of a list that may contain Lazy items."""
        value = items[index]
        if type(value) is Lazy:
            value = items[index] = wrap(self, value.real, value.origin)
        return value

    def settle(self, items: list) -> list[Value]:
        return [self.settle_at(items, i) for i in range(len(items))]

    def namespace(self, namespace: dict) -> DictValue:
        """The Value of a function's globals. The program may have read the same dict before."""
        key = id(namespace)
        if key not in self.namespaces and key in self.by_id:
            found: Any = self.by_id[key][1]
            self.guard(IsGuard(found.origin, namespace))
            self.namespaces[key] = found
        elif key not in self.namespaces:
            origin = known(namespace, namespace.get("__name__", "globals") + " globals")
            self.namespaces[key] = DictValue(dict, namespace, origin)
            self.namespaces[key].namespace = True
        return self.namespaces[key]

    def user_frames(self) -> list[Frame]:
        """The user's frames, the innermost first."""
        return [*self._user_frames()]

    def _user_frames(self) -> Iterator[Frame]:
        return (f for f in reversed(self.frames) if not is_own(f.native.co_filename))

    def user_position(self) -> tuple[str, int, str]:
        """(file, line, function) of the innermost user frame."""
        frame = next(self._user_frames(), self.frames[0])
        return frame.native.co_filename, frame.line, frame.native.co_name

    def position(self) -> str:
        """A description of the current position."""
        _, line, function = self.user_position()
        return f"line {line} in {function}"

    def stack_trace(self) -> str:
        """The user's stack in the form that fx keeps on nodes."""
        frames = [f for f in self.frames if not is_own(f.native.co_filename)]
        return "".join(f'  File "{f.native.co_filename}", line {f.line}, in {f.native.co_name}\n'
                       for f in (frames if len(frames) <= SHOWN else frames[:1] + frames[1 - SHOWN:]))
