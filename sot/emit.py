"""From a finished trace to the function that replaces the frame.

The emitted function is Python source: it takes what the hook hands over, walks the origins and checks the guards
on the way, calls the graph, makes the new objects, writes the mutations, and returns, or goes on where capture
stopped. ``walk`` and ``tail`` are its two halves. The tail is written first, the walk when it is known what the tail
needs: whatever exists already is loaded in the walk, under its guards and before anything has been changed.
"""
from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from keyword import iskeyword
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Protocol

from sot import _hook
from sot.errors import NotRebuildable
from sot.execute.frame import DISCARD, Frame
from sot.execute.machine import Machine
from sot.execute.overrides import write_modes
from sot.graph import TensorRef
from sot.guards import Guard
from sot.origin import Origin
from sot.plain_loops import loop_code
from sot.resume import (
    NULL,
    SAVED,
    VALUE,
    Layout,
    argument_order,
    call_code,
    can_resume,
    generator_code,
    live_names,
    place_of_call,
    read_cells,
    source,
    step_code,
)
from sot.tensor_guards import TensorGuard
from sot.torch_compat import TensorChecks
from sot.values.base import ABSENT, NONE, Const, Lazy, Null, SavedException, Value
from sot.values.iterators import GeneratorValue
from sot.values.later import LaterNumber
from sot.values.lifetimes import end_shows
from sot.values.numbers import is_dynamic
from sot.values.objects import DELETED, ObjectValue
from sot.values.tensor import TensorValue

BUILT_IN = {"MISS": _hook.MISS, "PLAIN": _hook.PLAIN, "CellType": CellType, "FunctionType": FunctionType,
            "MethodType": MethodType, "deque": deque, "partial": functools.partial, "Tail": _hook.Tail}
LITERALS = (int, str, bytes, bool, type(None))


class Places(Protocol):
    """What loads values before the emitted function is called."""

    def has(self, origin: Origin) -> bool: ...


class Emitter:
    """Writes the body of one entry; see the protocol of ``Value.rebuild`` for who calls what."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.walk: list[str] = []
        self.tail: list[str] = []
        self.names: dict[str, Any] = dict(BUILT_IN)
        self.outputs: dict[int, tuple[TensorRef, str]] = {}
        self._refs: dict[Origin, str] = {}
        self._loaded: set[Origin] = set()
        self._program: Places | None = None     # while the first half is written
        self.given: dict[str, Origin] = {}
        self.leaves = False
        self.varying: list[tuple[CodeType, set[str]]] = []  # variables with numbers that differ, where it stops
        self.leaves_alone = False       # is what the instruction at the break calls to be left alone?
        self._consts: dict[int, str] = {}
        self._memo: dict[int, str] = {}
        self._kept: list[Any] = []
        self._later: deque[Callable[[], None]] = deque()
        self._positions: list[str] = []
        self._completing: set[int] = set()
        self._replayed: set[int] = set()
        self._count = 0

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # ---- the walk
    def ref(self, origin: Origin) -> str:
        """The variable that holds what an origin names. It is loaded where the walk meets the origin."""
        if origin.cheap:
            return origin.expr(self)
        name = self._refs.get(origin)
        if name is None:
            name = self._refs[origin] = self.fresh("t")
        if self._program is not None and origin not in self._loaded:
            if self._program.has(origin):
                self.given[name] = origin
            else:
                expression = origin.expr(self)
                self.walk.append(f"{name} = {expression}")
            self._loaded.add(origin)
        return name

    def loaded(self) -> list[tuple[Origin, str]]:
        """What exists outside of the entry and is used in it, and its name there."""
        return [*self._refs.items()]

    def wanted(self) -> list[Origin]:
        """What the second half reads."""
        return [*self._refs]

    def write_walk(self, guards: Iterable[Guard], examples: dict[Guard, Any], program: Places) -> dict[str, Origin]:
        """The guards that are left to Python in the order in which capture met them, the tensors together, then what
        else is needed. What the program can load is not loaded here: its names, and what they stand for."""
        self._program = program
        tensors = [g for g in guards if isinstance(g, TensorGuard)]
        last = [g for g in guards if g.after_tensors]
        for guard in guards:
            if not isinstance(guard, TensorGuard) and not guard.after_tensors:
                test = guard.test(self)
                self.walk.append(f"if not ({test}): return MISS")
        if tensors:
            checks = TensorChecks([examples[g] for g in tensors], [g.layout for g in tensors])
            refs = ", ".join(self.ref(g.origin) for g in tensors)
            self.walk.append(f"if not {self.const(checks.check)}({refs}): return MISS")
        self.walk += [f"if not ({guard.test(self)}): return MISS" for guard in last]
        for origin in list(self._refs):
            self.ref(origin)
        return self.given

    def const(self, value: object, hint: str = "k") -> str:
        """The name of an object that the entry holds; a class that the program makes is made anew."""
        if (made := self.machine.made_classes.get(id(value))) is not None:
            return self.value(made)
        name = self._consts.get(id(value))
        if name is None:
            name = self._consts[id(value)] = self.fresh(hint)
            self.names[name] = value
        return name

    def literal(self, value: Any) -> str:
        if type(value) is str and sys.intern(value) is not value:
            return self.const(value)        # the compiler would make it the one that is interned
        if type(value) in LITERALS or (type(value) is float and math.isfinite(value)):
            return repr(value) if not (type(value) in (int, float) and value < 0) else f"({value!r})"
        if type(value) is tuple and self.machine.made_classes:
            return self.tuple_display("".join(self.literal(v) + ", " for v in value))
        return self.const(value)

    def key(self, key: Any) -> str:
        return self.value(key) if isinstance(key, Value) else self.literal(key)

    # ---- values
    def value(self, value: Value | Lazy) -> str:
        """The expression of a value; an object is made once, whoever refers to it."""
        if isinstance(value, Lazy):
            return self.ref(value.origin)
        name = self._memo.get(id(value))
        if name is None:
            if value.origin is not None and not isinstance(value, Const):
                name = self.ref(value.origin)
            else:
                name = value.rebuild(self)
            self._memo[id(value)] = name
            self._kept.append(value)
        return name

    def line(self, text: str) -> None:
        self.tail.append(text)

    def variable(self, value: Value, expression: str) -> str:
        name = self.fresh("v")
        self.line(f"{name} = {expression}")
        self._memo[id(value)] = name
        self._kept.append(value)
        return name

    def later(self, fill: Callable[[], None]) -> None:
        """Fill an object once it exists: its contents may lead back to it."""
        self._later.append(fill)

    def flush(self) -> None:
        while self._later:
            self._later.popleft()()

    def tuple_display(self, parts: Iterable[str]) -> str:
        """A new tuple. A display of constants is one object for the compiler, however often it runs; the program made
        several."""
        parts = [*parts]
        inner = "".join(f"{part}, " for part in parts)
        is_made = not parts or any(part.isidentifier() and not iskeyword(part) for part in parts)
        return f"({inner})" if is_made else f"tuple([{inner}])"

    def set_position(self, iterator: str, index: int) -> None:
        """Advance an iterator over a list when all lists are as the program left them: it refuses to pass the end."""
        self._positions.append(f"{iterator}.__setstate__({index})")

    def complete(self, value: Value) -> None:
        """Fill an object, and write what the trace has changed in it, before what follows."""
        self.value(value)
        if id(value) in self._completing:
            raise NotRebuildable("an iterator in the dict that it is over")
        self._completing.add(id(value))
        self.flush()
        self._replay_one(value)
        self._completing.discard(id(value))

    def output(self, ref: TensorRef) -> str:
        found = self.outputs.get(id(ref))
        if found is None:
            found = self.outputs[id(ref)] = (ref, f"o{len(self.outputs)}")
        return found[1]

    def tensor_with_attrs(self, value: TensorValue) -> str:
        name = self.output(value.ref)
        self.later(lambda: self.write_attrs(name, value))
        return name

    def write_attrs(self, name: str, value: TensorValue) -> None:
        """What the trace has written to a tensor, or deleted from it."""
        for key, held in value.attrs.items():
            if held is not DELETED:
                self.line(f"{name}.{key} = {self.value(held)}")
            elif value.real is not ABSENT:
                self.line(f"del {name}.{key}")

    def new_object(self, obj: ObjectValue) -> str:
        """An instance, made by the ``__new__`` of the first base that is not Python code."""
        base = next(c for c in obj.pytype.__mro__
                    if "__new__" in vars(c) and not isinstance(vars(c)["__new__"], (staticmethod, FunctionType)))
        args = "".join(f", {self.value(a)}" for a in obj.new_args)
        name = self.variable(obj, f"{self.const(base)}.__new__({self.const(obj.pytype)}{args})")
        self.fill_attrs(name, obj)
        obj.fill(self, name)
        return name

    def fill_attrs(self, name: str, obj: ObjectValue) -> None:
        def fill() -> None:
            if obj._attrs is not None:
                own = isinstance(obj.pytype.__getattribute__, FunctionType)     # and may not give the __dict__
                attrs = f"object.__getattribute__({name}, '__dict__')" if own else f"{name}.__dict__"
                for key, held in obj._attrs.overlay.items():
                    if type(key) is not str:
                        raise NotRebuildable(f"{obj}, whose __dict__ has a key that is no string,")
                    if held is not DELETED:
                        self.line(f"{attrs}[{self.literal(key)}] = {self.value(held)}")
            for slot, held in obj.slots.items():
                self.line(f"object.__setattr__({name}, {slot!r}, {self.value(held)})")
        self.later(fill)

    def generator(self, value: GeneratorValue) -> str:
        frame = value.frame
        if frame is None:
            return self.variable(value, "iter(())")
        if not value.started:
            assert frame.function is not None
            return self.variable(value, f"{self.value(frame.function)}({self.arguments(frame)})")
        layout, args, cells = self.point(frame.native, frame.last, frame, value.handled)
        if why := can_resume(frame.native, frame.pc, layout, generator=True):
            raise NotRebuildable(why)
        code = generator_code(frame.native, frame.pc, layout)
        name = self.variable(value, f"{self.function(frame, code, cells)}({args})")
        self.line(f"next({name})")
        return name

    def arguments(self, frame: Frame) -> str:
        """What a frame that has not started was called with."""
        code, names = frame.native, iter(frame.native.co_varnames)

        def next_one() -> str:
            name = next(names)
            return self.value(frame.locals[name] if name in frame.locals else frame.cells[name].contents)
        parts = [next_one() for _ in range(code.co_argcount)]
        keyword_only = [f"{name}=" for name in code.co_varnames[code.co_argcount:][:code.co_kwonlyargcount]]
        parts += [name + next_one() for name in keyword_only]
        parts += ["*" * stars + next_one() for stars, flag in ((1, CO_VARARGS), (2, CO_VARKEYWORDS))
                  if code.co_flags & flag]
        return ", ".join(parts)

    # ---- where capture stopped
    def point(self, native: CodeType, pc: int, frame: Frame, exception: Value | None) -> tuple[Layout, str, str]:
        """What goes on in a frame needs: its layout, the arguments that restore it, the cells of its closure.
        ``exception`` is what the frame is handling."""
        stack = frame.stack
        live = live_names(native, pc)
        layout = Layout(tuple(SAVED if isinstance(v, SavedException) else NULL if isinstance(v, Null) else VALUE
                              for v in stack),
                        tuple(n for n, v in frame.locals.items()
                              if n in live or self.machine.shows_frames or end_shows(v)))
        handled = handled_by_slot(stack, exception)
        args = []
        for kind, which in argument_order(native, layout):
            if kind == "name":
                args.append(self.value(frame.locals[which]))
            else:
                args.append(self.value(handled[which] if layout.slots[which] == SAVED else stack[which]))
        for name in read_cells(native, pc).intersection(native.co_cellvars):
            if frame.cells[name].contents is ABSENT:
                raise NotRebuildable(f"{name}, which has no value and may be read, and which inner functions share")
        cells = [self.value(frame.cells[n]) for n in (*native.co_cellvars, *native.co_freevars)]
        return layout, "".join(a + ", " for a in args), "".join(c + ", " for c in cells)

    def function(self, frame: Frame, code: CodeType, cells: str) -> str:
        """An expression for a function of that code in the frame's namespace."""
        if cells:
            return f"FunctionType({self.const(code)}, {self.const(frame.namespace)}, None, None, ({cells}))"
        return self.const(FunctionType(code, frame.namespace))

    def leave(self, depth: int, loop: int | None) -> tuple[str, str]:
        """Function and arguments that go on after a break: the instruction or the loop in that frame, then outwards."""
        frames = self.machine.frames
        inner = frames[depth]
        handled = self.machine.handled
        layout, args, cells = self.point(inner.native, inner.pc, inner, handled)
        if why := can_resume(inner.native, inner.pc, layout):
            raise NotRebuildable(why)
        code = loop_code(inner.native, inner.pc, layout, loop) if loop is not None else None
        code = code or step_code(inner.native, inner.pc, layout)
        self.note_varying(inner)
        (_hook.leave_alone if self.leaves_alone else _hook.skip)(code)
        function = self.function(inner, code, cells)
        for i in range(depth - 1, -1, -1):
            thunk = self.fresh("v")
            self.line(f"{thunk} = partial({function}, {args})")
            frame, handled = frames[i], handled_outside(frames[i + 1].stack, handled)
            native, at, next_pc, keep = place_of_call(frame.native, frame.last, frame.pc,
                                                      frames[i + 1].on_return != DISCARD)
            layout, args, cells = self.point(native, at, frame, handled)
            if why := can_resume(native, next_pc, layout):
                raise NotRebuildable(why)
            code = call_code(native, at, next_pc, layout, keep)
            _hook.skip(code)
            function, args = self.function(frame, code, cells), f"{args}{thunk}, "
        return function, args

    def note_varying(self, frame: Frame) -> None:
        """Variables whose number may differ at the next call are handed on as such."""
        names = {name for name, value in frame.locals.items() if is_dynamic(value) or isinstance(value, LaterNumber)}
        self.varying.append((source(frame.native, frame.pc)[0], names))

    def _replay_one(self, value: Any) -> None:
        if value.real is not ABSENT and id(value) in self.machine.mutated and id(value) not in self._replayed:
            self._replayed.add(id(value))
            value.replay(self)
            self.flush()

    def replay(self) -> None:
        """Write what the trace changed in objects that exist outside of it."""
        for value in list(self.machine.mutated.values()):
            self._replay_one(value)
        for effect in self.machine.effects:
            effect(self)
            self.flush()
        self.tail += self._positions


def handled_by_slot(stack: list[Value], current: Value | None) -> dict[int, Value]:
    """The exception handled above each saved one; ``current`` is the one handled now."""
    found = {}
    for i in range(len(stack) - 1, -1, -1):
        slot = stack[i]
        if isinstance(slot, SavedException):
            found[i] = current or NONE
            current = slot.saved
    return found


def handled_outside(stack: list[Value], current: Value | None) -> Value | None:
    """What the caller of a frame is handling."""
    first = next((v for v in stack if isinstance(v, SavedException)), None)
    return first.saved if first is not None else current


# ---- the entry --------------------------------------------------------------------------------------------
def write_exit(e: Emitter, value: Value | None, depth: int, loop: int | None = None) -> None:
    """The end of the entry: its return value, or (without one) what goes on after a break in frame ``depth``, or after
    the ``loop`` of it that begins at this instruction."""
    if value is not None:
        result = e.value(value)
    else:
        function, args = e.leave(depth, loop)
        result = f"Tail({function}, ({args}))"
        e.leaves = True
    e.flush()
    e.replay()
    write_modes(e)
    e.line(f"return {result}")
