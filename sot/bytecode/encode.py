"""Canonical instructions -> code object.

Each canonical instruction has one writer `write(encoder, instr)`, which appends zero or more native instructions. A
family shares a writer, and the version's file adds writers. A writer may `take` the instructions that follow and fold
them into one opcode, as the compiler does. It gets them only if nothing jumps to them and if they have the same
position and handler. Then jump distances are computed, and the `bytecode` library packs opcodes, line table and
exception table.

An edited list must keep these rules:
- FOR_ITER and SEND jump forward; on 3.12 and 3.13 a FOR_ITER jumps to an END_FOR.
- MAKE_CELL runs before its cell is used, for each of `cellvars`. COPY_FREE_VARS is added by `encode`.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bytecode import CompilerFlags, ConcreteBytecode, ConcreteInstr
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import InstrLocation

from sot.bytecode.decode import CACHES, VERSION, slot_names
from sot.bytecode.instr import (
    FAST,
    FLAG,
    NAME,
    NO_FALL_THROUGH,
    NO_POSITION,
    NUMBER,
    PLAIN,
    Code,
    Handler,
    Instr,
    Position,
)


def with_targets(code: Code) -> tuple[list[Instr], list[Handler]]:
    """A copy for editing. Its targets are references to the new instructions, so lists can be spliced."""
    instrs = [Instr(i.op, i.arg, i.target, i.pos, i.handler) for i in code.instrs]
    for instr in instrs:
        if instr.target is not None:
            instr.target = instrs[instr.target]
    return instrs, [Handler(instrs[h.target], h.depth, h.lasti) for h in code.handlers]


def encode(
    instrs: list[Instr],
    handlers: list[Handler],
    *,
    like: types.CodeType,
    name: str | None = None,
    qualname: str | None = None,
    argnames: tuple[str, ...] | None = None,
    extra_locals: Iterable[str] = (),
    freevars: tuple[str, ...] | None = None,
    cellvars: tuple[str, ...] | None = None,
    flags: int | None = None,
) -> types.CodeType:
    """A code object with these instructions, and everything else as in `like`.

    `argnames` replaces the signature by these positional parameters. `freevars` replaces the free variables: the cells
    come from the closure of the function, `types.FunctionType(code, globals, closure=(cell, ...))`. A cell variable of
    `like` that is named there becomes a free variable. Its MAKE_CELL at the head is dropped, and all other
    instructions use the given cell.
    """
    layout = _layout(like, instrs, argnames, extra_locals, freevars, cellvars)
    encoder = Encoder(instrs, handlers, layout)
    encoder.run()
    starts, ends = encoder.place()
    result = ConcreteBytecode(
        _concrete(encoder.out),
        consts=tuple(encoder.consts),
        names=tuple(encoder.names),
        varnames=layout.varnames,
        exception_table=_exception_table(encoder, starts, ends),
    )
    result.argcount, result.posonlyargcount, result.kwonlyargcount = layout.arg_counts
    result.flags = CompilerFlags(layout.flags if flags is None else flags)
    result.name = like.co_name if name is None else name
    result.qualname = like.co_qualname if qualname is None else qualname
    result.filename, result.first_lineno = like.co_filename, like.co_firstlineno
    result.freevars, result.cellvars = list(layout.freevars), list(layout.cellvars)
    return result.to_code(stacksize=_stack_size(encoder), compute_exception_stack_depths=False)


# ---------------------------------------------------------------------------------------------------
# Variables


@dataclass(slots=True, frozen=True)
class Layout:
    """The variables and the signature of the new code object."""

    like: types.CodeType
    arg_counts: tuple[int, int, int]
    flags: int
    varnames: tuple[str, ...]
    cellvars: tuple[str, ...]
    freevars: tuple[str, ...]

    def slots(self) -> tuple[str, ...]:
        return slot_names(self.varnames, self.cellvars, self.freevars)

    def arguments(self) -> tuple[str, ...]:
        variadic = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
        count = self.arg_counts[0] + self.arg_counts[2]
        return self.varnames[: count + sum(bool(self.flags & flag) for flag in variadic)]


def _layout(
    like: types.CodeType,
    instrs: list[Instr],
    argnames: tuple[str, ...] | None,
    extra_locals: Iterable[str],
    freevars: tuple[str, ...] | None,
    cellvars: tuple[str, ...] | None,
) -> Layout:
    arg_counts = like.co_argcount, like.co_posonlyargcount, like.co_kwonlyargcount
    flags = like.co_flags
    if argnames is not None:
        arg_counts = len(argnames), 0, 0
        flags &= ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    given = tuple(freevars or ())  # these are neither locals nor cells, whatever they are in `like`
    freevars = like.co_freevars if freevars is None else given
    if cellvars is None:
        cellvars = tuple(n for n in like.co_cellvars if n not in given)
    if shared := set(given) & set(argnames or ()):
        raise ValueError(f"variables that are both an argument and a free variable: {sorted(shared)}")
    names: dict[str, None] = dict.fromkeys((*(argnames or ()), *like.co_varnames, *extra_locals))
    known = tuple(n for n in names if n not in given)
    slots = slot_names(known, tuple(cellvars), freevars)
    used: dict[str, None] = dict.fromkeys(i.arg for i in instrs if i.op in FAST and i.arg not in slots)
    return Layout(like, arg_counts, flags, (*known, *used), tuple(cellvars), freevars)


# ---------------------------------------------------------------------------------------------------
# Native instructions


@dataclass(slots=True, eq=False)
class Native:
    """One opcode. `target` is an index into the canonical instructions. `size` counts the code units of the opcode, of
    the EXTENDED_ARGs before it, and of the caches after it.
    """

    opname: str
    opcode: int
    arg: int
    target: Any  # int | None
    pos: Position
    handler: int
    size: int


class Encoder:
    """The state while one code object is written: the tables for arguments, and the output."""

    def __init__(self, instrs: list[Instr], handlers: list[Handler], layout: Layout) -> None:
        self.instrs = instrs
        self.layout = layout
        index_of = {id(instr): index for index, instr in enumerate(instrs)}

        def absolute(target: Any) -> Any:
            return index_of[id(target)] if isinstance(target, Instr) else target

        self.targets = [absolute(instr.target) for instr in instrs]
        self.handlers = [Handler(absolute(h.target), h.depth, h.lasti) for h in handlers]
        self.targeted = {*self.targets, *(h.target for h in self.handlers)}
        self.slots = {name: slot for slot, name in enumerate(layout.slots())}
        self.names = {name: index for index, name in enumerate(layout.like.co_names)}
        self.consts = list(layout.like.co_consts)
        self._const_at = {id(value): index for index, value in reversed([*enumerate(self.consts)])}
        self.out: list[Native] = []
        self.first: list[int] = []  # canonical index -> index of its first native instruction
        self.index = 0  # of the canonical instruction being written
        self._unbound: set[int] | None = None

    def run(self) -> None:
        self._copy_free_vars()
        head = next((n for n, i in enumerate(self.instrs) if i.op == "RESUME"), 0)
        while self.index < len(self.instrs):
            instr = self.instrs[self.index]
            self.first.append(len(self.out))
            if not (self.index < head and instr.op == "MAKE_CELL" and self.is_free(instr.arg)):
                self._writer(instr.op)(self, instr)
            self.index += 1
        self.first.append(len(self.out))

    def _copy_free_vars(self) -> None:
        if self.layout.freevars:
            pos = next((i.pos for i in self.instrs if i.op == "COPY_FREE_VARS"), NO_POSITION)
            self.put("COPY_FREE_VARS", len(self.layout.freevars), like=Instr("NOP", pos=pos))

    def _writer(self, op: str) -> Writer:
        try:
            return WRITERS[op]
        except KeyError:
            raise ValueError(f"CPython's bytecode has no {op} in this version") from None

    # For the writers

    def put(
        self, opname: str, arg: int = 0, target: int | None = None, like: Instr | None = None
    ) -> None:
        opcode = dis.opmap[opname]
        like = like or self.instrs[self.index]
        size = 1 + CACHES[opcode] + _extended_args(arg)
        self.out.append(Native(opname, opcode, arg, target, like.pos, like.handler, size))

    def take(self, *ops: str) -> list[Instr] | None:
        """The next instructions, if they are these and can be folded into the current one."""
        start, current = self.index + 1, self.instrs[self.index]
        following = self.instrs[start : start + len(ops)]
        if len(following) < len(ops):
            return None
        for index, (instr, op) in enumerate(zip(following, ops, strict=True), start):
            foldable = instr.pos == current.pos and instr.handler == current.handler
            if instr.op != op or index in self.targeted or not foldable:
                return None
        self.first.extend([len(self.out)] * len(ops))
        self.index += len(ops)
        return following

    def const(self, value: object) -> int:
        index = self._const_at.setdefault(id(value), len(self.consts))
        if index == len(self.consts):
            self.consts.append(value)  # the list keeps the id valid
        return index

    def name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def slot(self, name: str) -> int:
        return self.slots[name]

    def target(self) -> int:
        """The target of the current instruction, past a landing pad that belongs to other instructions."""
        target = self.targets[self.index]
        while self.instrs[target].op == "END_FOR":
            target += 1
        return target

    def is_forward(self) -> bool:
        return self.targets[self.index] > self.index

    def is_free(self, name: str) -> bool:
        return name in self.layout.freevars and name not in self.layout.cellvars

    def is_bound(self, ahead: int = 0) -> bool:
        """Whether the variable of the LOAD_FAST here, or `ahead` instructions later, certainly has a value."""
        if self._unbound is None:
            self._unbound = maybe_unbound(self)
        return self.index + ahead not in self._unbound

    def is_fallen_into(self) -> bool:
        return self.index == 0 or self.instrs[self.index - 1].op not in NO_FALL_THROUGH

    def sources(self) -> set[str]:
        """The opcodes that jump to the current instruction."""
        return {i.op for i, t in zip(self.instrs, self.targets, strict=True) if t == self.index}

    # Layout

    def place(self) -> tuple[list[int], list[int]]:
        """The code units where each native instruction starts and ends. This fills in jump distances. An instruction
        grows if its distance needs more room, which moves others, so the computation is repeated until nothing grows.
        """
        jumps = [(index, native) for index, native in enumerate(self.out) if native.target is not None]
        while True:
            ends, end = [], 0
            for native in self.out:
                end += native.size
                ends.append(end)
            starts = [0, *ends]
            grown = False
            for index, native in jumps:
                native.arg = abs(starts[self.first[native.target]] - ends[index])
                size = 1 + CACHES[native.opcode] + _extended_args(native.arg)
                grown |= size > native.size
                native.size = max(size, native.size)
            if not grown:
                return starts, ends


def _extended_args(arg: int) -> int:
    return (arg > 0xFF) + (arg > 0xFFFF) + (arg > 0xFFFFFF)


# ---------------------------------------------------------------------------------------------------
# Assembly


def _concrete(natives: list[Native]) -> list[ConcreteInstr]:
    result: list[ConcreteInstr] = []
    locations: dict[Position, InstrLocation] = {}
    for native in natives:
        location = locations.get(native.pos)
        if location is None:
            location = locations[native.pos] = _location(native.pos)
        if native.opcode in HAS_ARGUMENT:
            result.append(ConcreteInstr(native.opname, native.arg, location=location))
        else:
            result.append(ConcreteInstr(native.opname, location=location))
        if caches := CACHES[native.opcode]:
            result.extend([ConcreteInstr("CACHE", 0, location=location)] * caches)
    return result


def _location(pos: Position) -> InstrLocation:
    if pos[2] is not None and pos[3] is not None:
        try:
            return InstrLocation(*pos)
        except ValueError:
            pass  # code made from a syntax tree may have invalid positions
    return InstrLocation(pos[0], None, None, None)


def _exception_table(
    encoder: Encoder, starts: list[int], ends: list[int]
) -> list[ExceptionTableEntry]:
    table: list[ExceptionTableEntry] = []
    previous = -1
    for index, native in enumerate(encoder.out):
        if native.handler >= 0 and native.handler == previous:
            table[-1].stop_offset = ends[index] - 1
        elif native.handler >= 0:
            handler = encoder.handlers[native.handler]
            target = starts[encoder.first[handler.target]]
            table.append(
                ExceptionTableEntry(
                    starts[index], ends[index] - 1, target, handler.depth, handler.lasti
                )
            )
        previous = native.handler
    return table


def _stack_size(encoder: Encoder) -> int:
    """The greatest stack depth, found by walking all paths from the start and into the handlers."""
    out, first = encoder.out, encoder.first
    depth_at = [-1] * (len(out) + 1)
    handler_done = [False] * len(encoder.handlers)
    greatest, pending = 1, [(0, 0)]
    while pending:
        index, depth = pending.pop()
        while index < len(out) and depth > depth_at[index]:
            depth_at[index] = depth
            greatest = max(greatest, depth)
            native = out[index]
            if native.handler >= 0 and not handler_done[native.handler]:
                handler_done[native.handler] = True
                handler = encoder.handlers[native.handler]
                pending.append((first[handler.target], handler.depth + handler.lasti + 1))
            arg = native.arg if native.opcode in HAS_ARGUMENT else None
            if native.target is not None:
                jumped = depth + dis.stack_effect(native.opcode, arg, jump=True)
                pending.append((first[native.target], jumped))
            depth = max(depth + dis.stack_effect(native.opcode, arg, jump=False), 0)
            if native.opname in NATIVE_NO_FALL_THROUGH:
                break
            index += 1
    return greatest


# ---------------------------------------------------------------------------------------------------
# Unbound variables


def maybe_unbound(encoder: Encoder) -> set[int]:
    """The LOAD_FASTs that may find no value. This is a forward data flow over sets of bound names, as bits. A
    comprehension saves a name (LOAD_FAST_AND_CLEAR) and may restore it without a value.
    """
    instrs, targets = encoder.instrs, encoder.targets
    aside = {i.arg for i in instrs if i.op == "LOAD_FAST_AND_CLEAR"}
    bits = {name: 0 if name in aside else 1 << slot for name, slot in encoder.slots.items()}
    everything = (1 << len(bits)) - 1
    bound_at = [everything] * (len(instrs) + 1)
    bound_at[0] = sum(bits[name] for name in encoder.layout.arguments())
    changed = True
    while changed:
        changed = False
        for index, instr in enumerate(instrs):
            before = after = bound_at[index]
            if instr.op in ("STORE_FAST", "LOAD_FAST"):
                after |= bits[instr.arg]
            elif instr.op == "DELETE_FAST":
                after &= ~bits[instr.arg]
            successors = [] if instr.op in NO_FALL_THROUGH else [index + 1]
            if targets[index] is not None:
                successors.append(targets[index])
            for successor in successors:
                if bound_at[successor] & ~after:
                    bound_at[successor] &= after
                    changed |= successor <= index
            if instr.handler >= 0:
                target = encoder.handlers[instr.handler].target
                if bound_at[target] & ~(before & after):
                    bound_at[target] &= before & after
                    changed |= target <= index
    return {
        index
        for index, instr in enumerate(instrs)
        if instr.op == "LOAD_FAST" and not bound_at[index] & bits[instr.arg]
    }


# ---------------------------------------------------------------------------------------------------
# Writers

Writer = Callable[[Encoder, Instr], None]


def _plain(op: str) -> Writer:
    return lambda e, instr: e.put(op)


def _number(op: str) -> Writer:
    return lambda e, instr: e.put(op, int(instr.arg))


def _name(op: str) -> Writer:
    return lambda e, instr: e.put(op, e.name(instr.arg))


def _slot(op: str) -> Writer:
    return lambda e, instr: e.put(op, e.slot(instr.arg))


def _nothing(encoder: Encoder, instr: Instr) -> None:
    """Nothing: COPY_FREE_VARS is written at the start."""


_FAMILIES = ((PLAIN, _plain), (NUMBER, _number), (FLAG, _number), (NAME, _name), (FAST, _slot))
_NATIVE = {op for op in dis.opmap if dis.opmap[op] < 256}

WRITERS: dict[str, Writer] = {
    **{op: make(op) for family, make in _FAMILIES for op in family & _NATIVE},
    "COPY_FREE_VARS": _nothing,
    **VERSION.WRITE,
}

HAS_ARGUMENT = frozenset(VERSION.has_argument())
NATIVE_NO_FALL_THROUGH = NO_FALL_THROUGH | {
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_CONST",
}
