"""A generator, coroutine or async generator as an ordinary function that returns where the original suspends.

``pieces_of(code)`` gives that function's code and its points. At a point the function returns a tuple: the number of
the point, what is yielded or awaited, the cells, and the values that the rest needs (``argument_order`` of the
layout). ``Point.rest`` makes the code that continues there. It takes these values and, at the end, what was sent, and
the exception that was thrown in, or None. At the end the function returns ``(None, result)``.

So each piece between two suspensions is a function that the hook captures like any other. Python itself suspends:
``sot/driver/suspending.py`` yields and awaits, and calls the pieces.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CodeType
from typing import Any

from sot.bytecode.decode import decode
from sot.bytecode.encode import encode, with_targets
from sot.bytecode.frame_layout import (
    GENERATORS,
    NULL,
    VALUE,
    Emit,
    Layout,
    handler_slots,
    names_after,
    parameters,
    push_callable,
    slot_parameter,
    slots_after,
)
from sot.bytecode.instr import METHODS_OF_WITH, NO_FALL_THROUGH, Handler, Instr
from sot.bytecode.liveness import live_names
from sot.bytecode.resume import can_resume, resume_code
from sot.bytecode.resume_origin import argument_count, body_start, cells_of, per_place
from sot.bytecode.step import emptying, lowered, pushing_cells

PASSED = "__passed"     # the variable for what is yielded or awaited
YIELDS, DELEGATES, AWAITS, STEPS = "yields", "delegates", "awaits", "steps"     # what Python does at a point
BEGINS = {"GET_YIELD_FROM_ITER": DELEGATES, "GET_AWAITABLE": AWAITS}
WRAPS = "ASYNC_GEN_WRAP"


class NoPieces(Exception):
    """Why a function cannot be cut at its suspensions."""


def at_once(awaited: Any) -> tuple[bool, Any]:
    """Whether what is awaited ended without a suspension, and its result, or else what is awaited. A capture follows a
    coroutine that does. Python awaits any in the driver.
    """
    return False, awaited


class Missing:
    """Stands for the value of a variable that has none."""


@dataclass
class Point:
    """A suspension. ``does`` is YIELDS, DELEGATES (``yield from``), AWAITS, or STEPS (an awaited iterator)."""

    does: str
    whole: CodeType
    pc: int = 0
    layout: Layout = Layout((), ())

    @property
    def rest(self) -> CodeType:
        return resume_code(self.whole, self.pc, self.layout)


@dataclass
class Pieces:
    code: CodeType
    points: list[Point]


@per_place
def _pieces(code: CodeType, _: int) -> Pieces:
    return Cut(code).run()


def pieces_of(code: CodeType) -> Pieces:
    """Raises NoPieces."""
    return _pieces(code, 0)


class Cut:
    """Builds the code of the pieces."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.original = code, decode(code)
        self.instrs, self.handlers = with_targets(self.original)
        self.layouts = layouts_of(code)
        self.replaced: dict[int, list[Instr]] = {}
        self.resumed: list[tuple[str, Instr, Layout]] = []

    def run(self) -> Pieces:
        start = body_start(self.code)
        # From 3.12 on a handler around the body turns StopIteration into RuntimeError. The driver has its own.
        outer = {i for i, h in enumerate(self.handlers) if h.target is self.around(start - 1)}
        for instr in self.instrs:
            instr.handler = -1 if instr.handler in outer else instr.handler
        lowers = any(NULL in layout.slots for pc, layout in self.layouts.items()
                     if self.instrs[pc].op in ("YIELD_VALUE", "SEND"))
        for pc, instr in enumerate(self.instrs):
            if instr.op == "RETURN_GENERATOR":
                self.replaced[pc] = self.replaced[pc + 1] = []
            elif instr.op == "RETURN_VALUE" and pc >= start:
                emit = functools.partial(Instr, pos=instr.pos, handler=instr.handler)
                self.replace(pc, [emit("LOAD_CONST", None), emit("SWAP", 2), emit("BUILD_TUPLE", 2), instr])
            elif lowers and self.is_lowered(instr):
                new = lowered(instr)
                for part in new:
                    part.handler = instr.handler
                self.replace(pc, new)
            elif instr.op == "SEND" and pc in self.layouts:
                self.cut_delegation(pc)
            elif instr.op == "YIELD_VALUE" and self.instrs[pc - 1].op != "SEND" and pc in self.layouts:
                self.cut(pc, YIELDS, self.layouts[pc], [])
        body = [new for pc, instr in enumerate(self.instrs) for new in self.replaced.get(pc, [instr])]
        return self.encoded(reachable(body, self.handlers, [begin for _, begin, _ in self.resumed]))

    def around(self, pc: int) -> Instr | None:
        """The handler of an instruction."""
        at = self.instrs[pc].handler
        return self.handlers[at].target if at >= 0 else None

    @staticmethod
    def is_lowered(instr: Instr) -> bool:
        """Whether an instruction leaves a slot that holds a value or NULL. Its other form always leaves a NULL."""
        return instr.op == "LOAD_METHOD" or bool(instr.arg) and (
            instr.op in METHODS_OF_WITH or instr.op == "LOAD_SUPER_ATTR" and instr.arg[1])

    def replace(self, pc: int, new: list[Instr]) -> None:
        """Put instructions in the place of one, which stays the first of them, because jumps lead to it."""
        old, first = self.instrs[pc], new[0]
        if first is not old:
            copy = Instr(old.op, old.arg, old.target, old.pos, old.handler)
            new = [copy if instr is old else instr for instr in new]
            old.op, old.arg, old.target, old.handler = first.op, first.arg, first.target, first.handler
        self.replaced[pc] = [old, *new[1:]]

    def cut_delegation(self, pc: int) -> None:
        """``receiver, None; SEND`` up to END_SEND: the receiver is passed on, and its result is what is sent."""
        for earlier in range(pc - 1, -1, -1):
            if self.instrs[earlier].op in BEGINS:
                break
            if self.instrs[earlier].op != "LOAD_CONST":     # GET_ANEXT has made an iterator
                earlier = -1
                break
        does = STEPS if earlier < 0 else BEGINS[self.instrs[earlier].op]
        if earlier >= 0:
            self.replace(earlier, [Instr("NOP", pos=self.instrs[earlier].pos)])
        emit = functools.partial(Instr, pos=self.instrs[pc].pos, handler=self.instrs[pc].handler)
        after = self.instrs[self.original.instrs[pc].target + 1]
        go_on, waits = emit("JUMP", None, after), emit("NOP")
        first = [emit("POP_TOP")]
        if does == AWAITS:
            first += [emit("STORE_FAST", PASSED), *push_callable(emit, at_once), emit("LOAD_FAST", PASSED),
                      emit("DELETE_FAST", PASSED), emit("CALL", (1, ())), emit("UNPACK_SEQUENCE", 2),
                      emit("POP_JUMP_IF_FALSE", None, waits), emit("JUMP", None, after), waits]
        before = self.layouts[pc]
        self.cut(pc, does, Layout(before.slots[:-1], before.names), first, [go_on])

    def cut(self, pc: int, does: str, before: Layout, first: list[Instr], last: list[Instr] | None = None) -> None:
        at = self.instrs[pc]
        if self.instrs[pc - 1].op == "CALL_INTRINSIC_1" and self.instrs[pc - 1].arg == WRAPS:
            self.replace(pc - 1, [Instr("NOP", pos=at.pos)])
        perhaps = live_names(self.code, pc) - {*before.names} - never_bound(self.code)
        names = tuple(n for n in self.code.co_varnames if n in before.names or n in perhaps)
        layout = Layout(before.slots[:-1], names)
        plain, emit = functools.partial(Instr, pos=at.pos), functools.partial(Instr, pos=at.pos, handler=at.handler)
        fine = emit("POP_TOP")
        resumed = [*forgetting(plain, perhaps), emit("COPY", 1), emit("POP_JUMP_IF_NONE", None, fine),
                   emit("RAISE_VARARGS", 1), fine]
        leaving, begin = self.leaving(plain, layout, perhaps), resumed[0]
        self.resumed.append((does, begin, Layout((*layout.slots, VALUE, VALUE), layout.names)))
        self.replace(pc, [*first, *leaving, *resumed, *(last or [])])

    def leaving(self, emit: Emit, layout: Layout, perhaps: frozenset[str]) -> list[Instr]:
        """Return what belongs to a point. ``perhaps`` are the variables that may have no value."""
        instrs = [emit("STORE_FAST", PASSED), *emptying(emit, layout), emit("LOAD_CONST", len(self.resumed)),
                  emit("LOAD_FAST", PASSED), emit("DELETE_FAST", PASSED), *pushing_cells(emit, self.code)]
        values = parameters(self.code, layout)
        for depth, name in enumerate(values, 3):
            if name in perhaps:
                landing, after = emit("POP_TOP"), emit("NOP")
                instrs += [emit("LOAD_FAST", name, handler=len(self.handlers)), emit("DELETE_FAST", name),
                           emit("JUMP", None, after), landing, emit("LOAD_CONST", Missing), after]
                self.handlers.append(Handler(landing, depth, False))
            else:
                instrs += [emit("LOAD_FAST", name), emit("DELETE_FAST", name)]
        return [*instrs, emit("BUILD_TUPLE", 3 + len(values)), emit("RETURN_VALUE")]

    def encoded(self, body: list[Instr]) -> Pieces:
        used = sorted({instr.handler for instr in body if instr.handler >= 0})
        places = {number: i for i, number in enumerate(used)} | {-1: -1}
        for instr in body:
            instr.handler = places[instr.handler]
        depth = max((len(layout.slots) for _, _, layout in self.resumed), default=0)
        whole = encode(body, [self.handlers[n] for n in used], like=self.code, flags=self.code.co_flags & ~GENERATORS,
                       extra_locals=(PASSED, *map(slot_parameter, range(depth))))
        again = decode(whole).instrs
        points = [Point(does, whole, len(again) - (len(body) - body.index(begin)), layout)
                  for does, begin, layout in self.resumed]
        if why := next(filter(None, (can_resume(whole, point.pc, point.layout) for point in points)), None):
            raise NoPieces(why)
        return Pieces(whole, points)


def layouts_of(code: CodeType) -> dict[int, Layout]:
    """For each instruction of the body that can be reached: the kinds of its stack slots, and the variables that have
    a value on every path.
    """
    decoded, cells = decode(code), cells_of(code)
    names = tuple(n for n in code.co_varnames[:argument_count(code)] if n not in cells)
    found: dict[int, Layout] = {}
    todo = [(body_start(code), Layout((), names))]
    while todo:
        pc, layout = todo.pop()
        if pc in found:
            if len(found[pc].slots) != len(layout.slots):
                raise NoPieces("its stack differs from path to path")
            layout = Layout(found[pc].slots, tuple(n for n in found[pc].names if n in layout.names))
            if layout == found[pc]:
                continue
        found[pc] = layout
        instr = decoded.instrs[pc]
        after = tuple(names_after(instr, layout))
        if instr.op not in NO_FALL_THROUGH:
            todo.append((pc + 1, Layout(tuple(slots_after(instr, layout, False)), after)))
        if instr.target is not None:
            todo.append((instr.target, Layout(tuple(slots_after(instr, layout, True)), after)))
        if instr.handler >= 0:
            handler = decoded.handlers[instr.handler]
            both = tuple(n for n in layout.names if n in after)
            todo.append((handler.target, Layout(handler_slots(layout.slots, handler), both)))
    return found


def never_bound(code: CodeType) -> frozenset[str]:
    """Variables that no instruction sets."""
    stored = {i.arg for i in decode(code).instrs if i.op == "STORE_FAST"}
    return frozenset(code.co_varnames[argument_count(code):]) - stored


def forgetting(emit: Emit, perhaps: frozenset[str]) -> list[Instr]:
    """Delete the variables whose value is Missing."""
    instrs = []
    for name in sorted(perhaps):
        after = emit("NOP")
        instrs += [emit("LOAD_FAST", name), emit("LOAD_CONST", Missing), emit("IS_OP", 0),
                   emit("POP_JUMP_IF_FALSE", None, after), emit("DELETE_FAST", name), after]
    return instrs


def reachable(body: list[Instr], handlers: list[Handler], begins: list[Instr]) -> list[Instr]:
    """The instructions that the start and the points lead to."""
    places = {id(instr): i for i, instr in enumerate(body)}
    found: set[int] = set()
    todo: list[Any] = [body[0], *begins]
    while todo:
        instr = todo.pop()
        if id(instr) in found:
            continue
        found.add(id(instr))
        if instr.op not in NO_FALL_THROUGH:
            todo.append(body[places[id(instr)] + 1])
        if instr.target is not None:
            todo.append(instr.target)
        if instr.handler >= 0:
            todo.append(handlers[instr.handler].target)
    return [instr for instr in body if id(instr) in found]
