"""Loops that Python runs unchanged: step code of a whole loop.

A loop without tensor operations gives the graph nothing, and Python runs it fastest. Its step code (see
``sot/bytecode/step.py``) contains all instructions of the loop instead of one. It leaves by each exit of the loop,
exceptions included. The stack and the variables at each exit follow from those at the entry of the loop.
"""
from __future__ import annotations

import functools
from types import CodeType

from sot.bytecode.code_table import CodeTable
from sot.bytecode.decode import decode
from sot.bytecode.encode import with_targets
from sot.bytecode.frame_layout import (
    GENERATORS,
    Layout,
    Place,
    encode_as,
    handler_slots,
    kept_names,
    names_after,
    place_with,
    restoring,
    slots_after,
)
from sot.bytecode.instr import NO_FALL_THROUGH, Code, Handler, Instr
from sot.bytecode.liveness import live_names
from sot.bytecode.resume_origin import per_place, source
from sot.bytecode.step import leave_for

ENDS = ("END_FOR", "END_SEND")      # CPython requires one at the target of FOR_ITER and SEND
State = tuple[tuple[str, ...], frozenset[str]]      # kinds of the slots, and the variables with a value


class Unclear(Exception):
    """The stack, or the set of variables with a value, depends on the path that is taken."""


def loop_at(code: CodeType, head: int) -> frozenset[int]:
    """The instructions of the loop whose iterations begin at ``head``: all that lead to a jump back to it."""
    known = _loops.of(code)
    if head not in known:
        known[head] = _loop_at(decode(code), head)
    return known[head]


def ends_only_at_head(code: CodeType, head: int) -> bool:
    """Whether only exceptions leave the loop elsewhere than at its head: it has no ``break`` and no ``return``."""
    decoded, body = decode(code), loop_at(code, head)
    return not any(after not in body for pc in body - {head} for after in following(decoded, pc, handlers=False))


_loops: CodeTable[dict[int, frozenset[int]]] = CodeTable(lambda code: {})


def _loop_at(decoded: Code, head: int) -> frozenset[int]:
    before: dict[int, list[int]] = {}
    for pc in range(len(decoded.instrs)):
        for after in following(decoded, pc):
            before.setdefault(after, []).append(pc)
    body, todo = {head}, [pc for pc in before.get(head, ()) if pc >= head]
    while todo:
        pc = todo.pop()
        if pc not in body:
            body.add(pc)
            todo += before.get(pc, [])
    return frozenset(body)


def following(code: Code, pc: int, handlers: bool = True) -> list[int]:
    instr = code.instrs[pc]
    found = [] if instr.op in NO_FALL_THROUGH else [pc + 1]
    if instr.target is not None:
        found.append(instr.target)
    if handlers and instr.handler >= 0:
        found.append(code.handlers[instr.handler].target)
    return found


def loop_code(code: CodeType, pc: int, layout: Layout, head: int) -> CodeType | None:
    """Step code for the rest of a loop, from ``pc`` inside it. None if it is unclear what to restore."""
    return _loop_code(code, pc, layout, source(code, head)[1])


@per_place
def _loop_code(code: CodeType, pc: int, layout: Layout, head: int) -> CodeType | None:
    try:
        return LoopWriter(code, pc, layout, loop_at(code, head)).write()
    except Unclear:
        return None


class LoopWriter:
    """Copies the loop, and appends an exit for each place that the loop leads to."""

    def __init__(self, code: CodeType, pc: int, layout: Layout, body: frozenset[int]) -> None:
        self.code, self.pc, self.layout, self.body = code, pc, layout, body
        self.decoded = decode(code)
        self.kept = kept_names(code, pc, layout)
        self.states = states(self.decoded, code, pc, layout, body)
        self.copies, self.handlers = with_targets(self.decoded)
        self.stubs: dict[tuple[int, bool], list[Instr]] = {}

    def write(self) -> CodeType:
        emit = functools.partial(Instr, pos=self.decoded.instrs[self.pc].pos)
        start = self.copies[self.pc]
        instrs = [emit("RESUME", 0), *restoring(emit, self.layout, self.handlers),
                  emit("JUMP", None, start, handler=start.handler)]
        for pc in sorted(self.body):
            instrs += self.copy(pc)
        # the handlers of `restoring` stay
        for handler, original in zip(self.handlers, self.decoded.handlers, strict=False):
            if original.target not in self.body:
                handler.target = self.way_out(original.target) if original.target in self.states else start
        instrs += [instr for stub in self.stubs.values() for instr in stub]
        used = sorted({i.handler for i in instrs if i.handler >= 0})
        for instr in instrs:
            instr.handler = used.index(instr.handler) if instr.handler >= 0 else -1
        return encode_as(self.code, self.layout, instrs, [self.handlers[n] for n in used], GENERATORS)

    def copy(self, pc: int) -> list[Instr]:
        """A copy of an instruction, followed by a jump to an exit if the next instruction is outside the loop."""
        instr, target = self.copies[pc], self.decoded.instrs[pc].target
        if target is not None and target not in self.body:
            instr.target = self.way_out(target)
        if instr.op in NO_FALL_THROUGH or pc + 1 in self.body:
            return [instr]
        return [instr, Instr("JUMP", None, self.way_out(pc + 1), instr.pos, instr.handler)]

    def way_out(self, pc: int) -> Instr:
        """The first instruction of the exit to a place outside the loop."""
        lands = self.decoded.instrs[pc].op in ENDS
        stub = self.stubs.get((pc, lands))
        if stub is None:
            emit = functools.partial(Instr, pos=self.decoded.instrs[pc].pos)
            landing = [emit(self.decoded.instrs[pc].op)] if lands else []
            stub = self.stubs[pc, lands] = [*landing, *leave_for(emit, self.code, self.place(pc + lands))]
        return stub[0]

    def place(self, pc: int) -> Place:
        slots, names = self.states[pc]
        return place_with(self.code, pc, slots, names, self.kept)


def states(decoded: Code, code: CodeType, start: int, layout: Layout, body: frozenset[int]) -> dict[int, State]:
    """The state before each instruction of the loop, and at the places that the loop leads to. Raises Unclear."""
    found: dict[int, State] = {}
    kept = kept_names(code, start, layout)
    todo: list[tuple[int, tuple[str, ...], frozenset[str]]] = [(start, layout.slots, frozenset(layout.names))]
    while todo:
        pc, slots, names = todo.pop()
        state = slots, names & (live_names(code, pc) | kept)
        if pc in found:
            if found[pc] != state:
                raise Unclear
            continue
        found[pc] = state
        instr = decoded.instrs[pc]
        if pc in body:
            todo += ways_on(decoded, pc, Layout(slots, tuple(names)))
        elif instr.op in ENDS:
            here = Layout(slots, tuple(names))
            todo.append((pc + 1, tuple(slots_after(instr, here, False)), frozenset(names_after(instr, here))))
    return found


def ways_on(decoded: Code, pc: int, here: Layout) -> list[tuple[int, tuple[str, ...], frozenset[str]]]:
    instr, names = decoded.instrs[pc], frozenset(names_after(decoded.instrs[pc], here))
    found = []
    if instr.op not in NO_FALL_THROUGH:
        found.append((pc + 1, tuple(slots_after(instr, here, False)), names))
    if instr.target is not None:
        found.append((instr.target, tuple(slots_after(instr, here, True)), names))
    if instr.handler >= 0:
        handler: Handler = decoded.handlers[instr.handler]
        if handler.depth > len(here.slots):
            raise Unclear
        found.append((handler.target, handler_slots(here.slots, handler),
                      frozenset(here.names)))
    return found
