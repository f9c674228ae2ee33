"""Step code: it leaves a function in the middle at a break.

At a break the stack and the locals of the user's frame are known. There are two kinds of step code:

- `step_code` restores them, runs the one instruction that could not be captured, and leaves;
- `call_code`, for an outer frame, does the same around the call in which the inner frame broke.

Step code does not call resume code (``sot/bytecode/resume.py``). It returns `Tail(resume function, args)`, and the
hook makes the call. So a loop that breaks in every iteration needs no deeper stack, and a traceback shows only the
user's frames. The restored values are the parameters (`argument_order`). The closure is the cells of the frame, in the
order `code.co_cellvars + code.co_freevars`.
"""
from __future__ import annotations

import dis
import functools
import sys
import weakref
from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import Any

from sot import _hook
from sot._hook import Tail
from sot.bytecode.code_table import CodeTable
from sot.bytecode.decode import decode
from sot.bytecode.frame_layout import (
    GENERATORS,
    LASTI,
    NULL_FIRST,
    SAVED,
    VALUE,
    Emit,
    Layout,
    Place,
    encode_as,
    handler_slots,
    kept_names,
    names_after,
    parameters,
    place_with,
    push_callable,
    restoring,
    slot_parameter,
    slots_after,
)
from sot.bytecode.instr import METHODS_OF_WITH, NO_FALL_THROUGH, Handler, Instr
from sot.bytecode.resume import composed_code, passing_tails, resume_code
from sot.bytecode.resume_origin import alive, cells_of, per_place, place_of_call
from sot.bytecode.stack_effects import net_effect


class Point:
    """The place that step code leaves for. It is a constant of step code, and makes the resume code when it is
    needed.
    """

    __slots__ = ("of", "pc", "layout", "resume")

    def __init__(self, code: CodeType, pc: int, layout: Layout) -> None:
        self.of, self.pc, self.layout = weakref.ref(code), pc, layout   # the code keeps its step code
        self.resume: CodeType | None = None

    @property
    def code(self) -> CodeType:
        return alive(self.of)

    def make(self) -> CodeType:
        return _make_resume(self.code, self.pc, self.layout)

    def tail(self, namespace: dict[str, Any], closure: tuple[Any, ...] | None, *values: Any) -> Tail:
        self.resume = self.resume or self.make()
        return Tail(FunctionType(self.resume, namespace, closure=closure), values)


class CallPoint(Point):
    """The place that step code of an outer frame leaves for. The result of the inner step code is the last value.

    If the inner frame continues in a function, both rests become one function (`composed_code`), so that they are
    captured together. Otherwise the result of the inner step code is the result of the call, and resume code continues
    after it.
    """

    __slots__ = ("next_pc", "keep", "rests")

    def __init__(self, code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> None:
        super().__init__(code, pc, layout)
        self.next_pc, self.keep = next_pc, keep
        self.rests: CodeTable[ComposedPoint] = CodeTable(lambda inner: ComposedPoint(self))

    def tail(self, namespace: dict[str, Any], closure: tuple[Any, ...] | None, *values: Any) -> Tail:
        *state, answer = values
        if type(answer) is Tail:
            inner = answer.function.__code__
            return self.rests.of(inner).tail(namespace, closure, *state, (answer.function, *answer.take()))
        following = Layout(self.layout.slots + (VALUE,) * self.keep, self.layout.names)
        return _point(self.code, self.next_pc, following).tail(namespace, closure, *(values if self.keep else state))


class ComposedPoint(Point):
    """Makes composed code: one for each rest of an inner function, with separate entries."""

    __slots__ = ("call",)

    def __init__(self, call: CallPoint) -> None:
        super().__init__(call.code, call.pc, call.layout)
        self.call = call

    def make(self) -> CodeType:
        code = _make_composed(self.code, self.pc, self.call.next_pc, self.layout, self.call.keep)
        return passing_tails(code.replace())


_point = per_place(Point)
_call_point = per_place(CallPoint)


@per_place
def step_code(code: CodeType, pc: int, layout: Layout) -> CodeType:
    """Step code that runs the instruction at `pc` and leaves for each place that follows it."""
    instrs = decode(code).instrs
    instr, names, kept = instrs[pc], names_after(instrs[pc], layout), kept_names(code, pc, layout)
    following = jump = None
    landing: list[Instr] = []
    if instr.op not in NO_FALL_THROUGH:
        following = place_with(code, pc + 1, slots_after(instr, layout, False), names, kept)
    if (target := instr.target) is not None:
        slots = slots_after(instr, layout, True)
        if instr.op in ("FOR_ITER", "SEND") and instrs[target].op in ("END_FOR", "END_SEND"):
            landing = [Instr(instrs[target].op, pos=instr.pos)]  # CPython requires one at the target
            slots, target = slots[:net_effect(landing[0]) or None], target + 1
        jump = place_with(code, target, slots, names, kept)
    return _leaving(code, pc, layout, lowered(instr), following, jump, landing)


def call_code(code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> CodeType:
    """Step code around the call that the instruction at `pc` has made. Its operands are already popped, and its
    handler is active. The last parameter is the callee, the inner frame's step code. The result is pushed, or dropped
    if not `keep`.
    """
    code, pc, next_pc, keep = place_of_call(code, pc, next_pc, keep)
    return _call_code(code, pc, next_pc, layout, keep)


@per_place
def _call_code(code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> CodeType:
    emit = functools.partial(Instr, pos=decode(code).instrs[pc].pos)
    thunk = [emit("LOAD_FAST", "__thunk"), emit("PUSH_NULL")]
    body = [*(thunk[::-1] if NULL_FIRST else thunk), emit("DELETE_FAST", "__thunk"), emit("CALL", (0, ()))]
    names = tuple(name for name in code.co_varnames if name in layout.names)
    point = _call_point(code, pc, next_pc, Layout(layout.slots, names), keep)
    answered = Layout((*layout.slots, VALUE), names)
    return _leaving(code, pc, layout, body, (next_pc, answered), extra=("__thunk",), point=point)


def _leaving(code: CodeType, pc: int, layout: Layout, body: list[Instr], following: Place | None,
             jump: Place | None = None, landing: Iterable[Instr] = (), extra: tuple[str, ...] = (),
             point: Point | None = None) -> CodeType:
    """Step code that restores the frame, does `body` under the handler of `pc`, and leaves by each exit."""
    decoded = decode(code)
    at = decoded.instrs[pc]
    emit = functools.partial(Instr, pos=at.pos)
    body = [emit("NOP"), *body]  # 3.13 and later look for the handler of a call one code unit too early
    handlers: list[Handler] = []
    instrs = [emit("RESUME", 0), *restoring(emit, layout, handlers), *body]
    if following is not None:
        instrs += leave_for(emit, code, following, point)
    if jump is not None:
        stub = [*landing, *leave_for(emit, code, jump)]
        body[-1].target = stub[0]
        instrs += stub
    if at.handler >= 0 and (handler := decoded.handlers[at.handler]).depth <= len(layout.slots):
        kept = kept_names(code, pc, layout)
        slots = handler_slots(layout.slots, handler)
        stub = leave_for(emit, code, place_with(code, handler.target, slots, {*layout.names}, kept))
        for instr in body:
            instr.handler = len(handlers)
        handlers.append(Handler(stub[0], handler.depth, handler.lasti))
        instrs += stub
    return encode_as(code, layout, instrs, handlers, GENERATORS, extra)


def lowered(instr: Instr) -> list[Instr]:
    """The instruction in a form whose result slots have known kinds and which takes any operand that the interpreter
    may have left. On 3.13, for example, a TO_BOOL has already made the condition a bool.
    """
    emit = functools.partial(Instr, pos=instr.pos)
    null = [emit("PUSH_NULL"), emit("SWAP", 2)] if NULL_FIRST else [emit("PUSH_NULL")]
    if instr.op == "LOAD_METHOD":
        return [emit("LOAD_ATTR", instr.arg), *null]
    if instr.op == "LOAD_SUPER_ATTR" and instr.arg[1]:
        return [emit("LOAD_SUPER_ATTR", (instr.arg[0], False, instr.arg[2])), *null]
    if instr.op in METHODS_OF_WITH and instr.arg:
        return _begin_with(emit, *METHODS_OF_WITH[instr.op])
    same = emit(instr.op, instr.arg)
    wants_bool = instr.op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT") and "TO_BOOL" in dis.opmap
    return [emit("TO_BOOL"), same] if wants_bool else [same]


def _begin_with(emit: Emit, enter: str, leave: str) -> list[Instr]:
    """The manager -> its exit method, bound; NULL; the result of its enter method."""
    def method(name: str) -> list[Instr]:
        find = push_callable(emit, _hook.special_method)
        return [*find, emit("COPY", 3), emit("LOAD_CONST", name), emit("CALL", (2, ()))]

    return [*method(leave), emit("SWAP", 2), *method(enter), emit("SWAP", 2), emit("POP_TOP"),
            emit("PUSH_NULL"), emit("SWAP", 2), emit("PUSH_NULL"), emit("CALL", (0, ()))]


def emptying(emit: Emit, layout: Layout) -> list[Instr]:
    """Move the stack into variables (STORE_FAST can store a NULL), and undo PUSH_EXC_INFO."""
    instrs: list[Instr] = []
    for index, kind in reversed([*enumerate(layout.slots)]):
        if kind == LASTI != VALUE:
            instrs.append(emit("POP_TOP"))
            continue
        saved = kind == SAVED
        instrs += [*push_callable(emit, sys.exception), emit("CALL", (0, ()))] * saved
        instrs += [emit("STORE_FAST", slot_parameter(index)), *[emit("POP_EXCEPT")] * saved]
    return instrs


def pushing_cells(emit: Emit, code: CodeType) -> list[Instr]:
    """Push the tuple of the cells, or None if there are none."""
    cells = cells_of(code)
    if not cells:
        return [emit("LOAD_CONST", None)]
    return [*(emit("LOAD_CLOSURE", name) for name in cells), emit("BUILD_TUPLE", len(cells))]


def leave_for(emit: Emit, code: CodeType, place: Place, point: Point | None = None) -> list[Instr]:
    """Return the Tail. It passes the variables on after the globals, the cells and the locals.

    An exception among them has a traceback that refers to this frame. The frame therefore deletes the variables, or
    both would keep each other alive.
    """
    pc, layout = place
    instrs = emptying(emit, layout)
    tail = (point or _point(code, pc, layout)).tail
    instrs += [*push_callable(emit, tail), *push_callable(emit, globals), emit("CALL", (0, ()))]
    instrs += pushing_cells(emit, code)
    names = parameters(code, layout)
    for name in names:
        instrs += [emit("LOAD_FAST", name), emit("DELETE_FAST", name)]
    return [*instrs, emit("CALL", (2 + len(names), ())), emit("RETURN_VALUE")]


# These functions run during the user's call, while the hook is on.
_make_resume, _make_composed = _hook.plain(resume_code), _hook.plain(composed_code)
for _function in (Point.tail, Point.make, CallPoint.tail, ComposedPoint.__init__, ComposedPoint.make):
    _hook.skip(_function.__code__)
