"""Continues frames after capture has stopped: their functions, and the arguments that restore their state."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Protocol

from sot import _hook
from sot.bytecode.frame_layout import CALL, LASTI, NULL, SAVED, SLOT, VALUE, Layout, argument_order
from sot.bytecode.liveness import bound_names, live_names, read_cells
from sot.bytecode.plain_loops import loop_code
from sot.bytecode.resume import can_resume, generator_code
from sot.bytecode.resume_origin import place_of_call, source
from sot.bytecode.step import call_code, step_code
from sot.codegen.lifetimes import end_shows
from sot.interpreter.frame import DISCARD
from sot.interpreter.trace import Broken, Suspended
from sot.support.errors import NotRebuildable, Reason
from sot.values.base import ABSENT, NONE, Const, LastInstruction, Lazy, Null, SavedException, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.iterators import GeneratorValue
from sot.values.numbers import is_dynamic

HandedOn = tuple[CodeType, frozenset[str]]      # a function, and its variables whose numbers may differ

SLOT_KINDS = {SavedException: SAVED, Null: NULL, LastInstruction: LASTI}


class Writer(Protocol):
    """The writer of values."""

    def value(self, value: Value | Lazy) -> str: ...
    def const(self, value: object, hint: str = "k") -> str: ...
    def fresh(self, prefix: str) -> str: ...
    def line(self, text: str) -> None: ...
    def variable(self, value: Value, expression: str) -> str: ...


# ---- one frame --------------------------------------------------------------------------------------------
def restored(e: Writer, frame: Suspended, code: CodeType, pc: int, exception: Value | None,
             all_names: bool) -> tuple[Layout, str, str]:
    """What is needed to continue at an instruction: the layout, the arguments that restore it, and the cells of the
    closure.

    ``exception`` is the exception that the frame is handling. ``all_names``: also pass on variables that are not read
    again.
    """
    stack = frame.stack
    live, bound = live_names(code, pc), bound_names(code, pc)
    layout = Layout(tuple(SLOT_KINDS.get(type(v), VALUE) for v in stack),
                    tuple(n for n, v in frame.locals.items() if is_programs(n) and (
                        n in live or all_names or end_shows(v) or n in bound and costs_nothing(v))))
    handled = handled_by_slot(stack, exception)
    args = []
    for kind, which in argument_order(code, layout):
        if kind == "name":
            args.append(e.value(frame.locals[which]))
        else:
            args.append(e.value(handled[which] if layout.slots[which] == SAVED else stack[which]))
    for name in read_cells(code, pc).intersection(code.co_cellvars):
        if frame.cells[name].contents is ABSENT:
            raise NotRebuildable(f"{name}, which has no value and may be read, and which inner functions share")
    cells = [e.value(frame.cells[n]) for n in (*code.co_cellvars, *code.co_freevars)]
    return layout, joined(args), joined(cells)


def is_programs(name: str) -> bool:
    """Whether it is a variable of the program, and not a parameter of resume code for a slot of the stack."""
    return not name.startswith((SLOT, CALL))


def costs_nothing(value: Value | Lazy) -> bool:
    """Whether the value exists without the graph. Then it stays a variable of the frame, as in Python, because code
    that is called may read it.
    """
    return isinstance(value, Const) or value.origin is not None


def joined(expressions: Iterable[str]) -> str:
    return "".join(text + ", " for text in expressions)


def function_of(e: Writer, frame: Suspended, code: CodeType, cells: str) -> str:
    """An expression for a function of that code in the frame's namespace."""
    if cells:
        return f"FunctionType({e.const(code)}, {e.const(frame.namespace)}, None, None, ({cells}))"
    return e.const(FunctionType(code, frame.namespace))


def handled_by_slot(stack: Sequence[Value], current: Value | None) -> dict[int, Value]:
    """The exception handled above each saved one. ``current`` is the one handled now."""
    found = {}
    for i in range(len(stack) - 1, -1, -1):
        slot = stack[i]
        if isinstance(slot, SavedException):
            found[i] = current or NONE
            current = slot.saved
    return found


def handled_outside(stack: Sequence[Value], current: Value | None) -> Value | None:
    """The exception that the caller of a frame is handling."""
    first = next((v for v in stack if isinstance(v, SavedException)), None)
    return first.saved if first is not None else current


# ---- after a break ----------------------------------------------------------------------------------------
def leave(e: Writer, exit: Broken, all_names: bool) -> tuple[str, str, list[HandedOn]]:
    """Function and arguments that continue after a break: the instruction or loop of the last frame, then the outer
    frames.
    """
    frame, handled = exit.frames[-1], exit.handled
    layout, args, cells = restored(e, frame, frame.code, frame.pc, handled, all_names)
    if why := can_resume(frame.code, frame.pc, layout):
        raise NotRebuildable(why)
    code = loop_code(frame.code, frame.pc, layout, exit.loop) if exit.loop is not None else None
    code = code or step_code(frame.code, frame.pc, layout)
    (_hook.leave_alone if exit.cause.reason is Reason.WATCHES else _hook.skip)(code)
    function, handed_on = function_of(e, frame, code, cells), [numbers_handed_on(frame)]
    for caller, called in zip(reversed(exit.frames[:-1]), reversed(exit.frames), strict=False):
        thunk = e.fresh("v")
        e.line(f"{thunk} = partial({function}, {args})")
        handled = handled_outside(called.stack, handled)
        original, at, next_pc, keep = place_of_call(caller.code, caller.last, caller.pc, called.on_return != DISCARD)
        layout, args, cells = restored(e, caller, original, at, handled, all_names)
        if why := can_resume(original, next_pc, layout):
            raise NotRebuildable(why)
        code = call_code(original, at, next_pc, layout, keep)
        _hook.skip(code)
        function, args = function_of(e, caller, code, cells), f"{args}{thunk}, "
    return function, args, handed_on


def numbers_handed_on(frame: Suspended) -> HandedOn:
    """The variables whose number may differ at the next call."""
    names = (name for name, value in frame.locals.items()
             if isinstance(value, Value) and (is_dynamic(value) or isinstance(value, DeferredScalar)))
    return source(frame.code, frame.pc)[0], frozenset(names)


# ---- generators -------------------------------------------------------------------------------------------
def generator(e: Writer, value: GeneratorValue, all_names: bool) -> str:
    """A generator that the trace has made, advanced as far as it has run."""
    if value.frame is None:
        return e.variable(value, "iter(())")
    frame, function = Suspended.of(value.frame), value.frame.function
    if not value.started:
        assert function is not None
        return e.variable(value, f"{e.value(function)}({arguments(e, frame)})")
    layout, args, cells = restored(e, frame, frame.code, frame.last, value.handled, all_names)
    if why := can_resume(frame.code, frame.pc, layout, generator=True):
        raise NotRebuildable(why)
    code = generator_code(frame.code, frame.pc, layout)
    name = e.variable(value, f"{function_of(e, frame, code, cells)}({args})")
    e.line(f"next({name})")
    return name


def arguments(e: Writer, frame: Suspended) -> str:
    """The arguments of a frame that has not started."""
    code, names = frame.code, iter(frame.code.co_varnames)

    def next_one() -> str:
        name = next(names)
        return e.value(frame.locals[name] if name in frame.locals else frame.cells[name].contents)
    parts = [next_one() for _ in range(code.co_argcount)]
    keyword_only = [f"{name}=" for name in code.co_varnames[code.co_argcount:][:code.co_kwonlyargcount]]
    parts += [name + next_one() for name in keyword_only]
    parts += ["*" * stars + next_one() for stars, flag in ((1, CO_VARARGS), (2, CO_VARKEYWORDS))
              if code.co_flags & flag]
    return ", ".join(parts)
