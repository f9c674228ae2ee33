"""The frame layout: what is restored when a function continues elsewhere, namely kinds of stack slots and variables.

``slots_after`` and ``names_after`` say how an instruction changes a layout. Step, resume and composed code take the
values of a layout as parameters (``argument_order``) and restore them with ``restoring``.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from types import CodeType
from typing import Any

from sot.bytecode.decode import VERSION
from sot.bytecode.encode import encode
from sot.bytecode.instr import METHODS_OF_WITH, Handler, Instr
from sot.bytecode.liveness import live_names
from sot.bytecode.resume_origin import cells_of, origin
from sot.bytecode.stack_effects import net_effect

NULL_FIRST: bool = VERSION.NULL_FIRST
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

VALUE, NULL, SAVED = "value", "null", "saved"
LASTI = VALUE if VERSION.LASTI_IS_OBJECT else "lasti"
WITHOUT_VALUE = {NULL, LASTI} - {VALUE}     # kinds of slots that are made anew

Emit = Callable[..., Instr]

SLOT = "__stack_"
CALL = "__call"  # the parameter for the code that continues the callee, with its arguments
slot_parameter = (SLOT + "{}").format  # the parameter for a slot


@dataclass(frozen=True)
class Layout:
    """What is restored of a frame: the kinds of the stack's slots, bottom first, and the local variables (no cells)
    that have a value and are still needed.

    If COPY has copied a SAVED slot, its kind is VALUE from then on, because only the copy is ever restored from.
    """

    slots: tuple[str, ...]
    names: tuple[str, ...]


Place = tuple[int, Layout]


def argument_order(code: CodeType, layout: Layout) -> list[tuple[str, Any]]:
    """The parameters of step and resume code: ("name", name of a local) in the order of co_varnames, which keeps
    the first argument first, for `super()`; then ("slot", index) for the slots that have a value, bottom first. The
    argument for a SAVED slot is the exception that is being handled since it was pushed."""
    known = origin(code)
    order = (known.code if known else code).co_varnames
    slots = [("slot", index) for index, kind in enumerate(layout.slots) if kind not in WITHOUT_VALUE]
    return [*(("name", name) for name in sorted(layout.names, key=order.index)), *slots]


def parameters(code: CodeType, layout: Layout) -> tuple[str, ...]:
    return tuple(what if kind == "name" else slot_parameter(what) for kind, what in argument_order(code, layout))


def slots_after(instr: Instr, layout: Layout, jump: bool) -> list[str]:
    """The kinds of the slots, where execution goes on at the next instruction or at the target of the jump."""
    slots, op, arg = [*layout.slots], instr.op, instr.arg
    net = net_effect(instr, jump=jump)
    slots = slots[:net] if net < 0 else slots + [VALUE] * net
    if op == "COPY":
        slots[-1] = layout.slots[-arg]
        if slots[-1] == SAVED:
            slots[-1 - arg] = VALUE
    elif op == "SWAP":
        slots[-1], slots[-arg] = slots[-arg], slots[-1]
    elif op == "PUSH_EXC_INFO":
        slots[-2] = SAVED
    elif op == "PUSH_NULL" or op == "LOAD_FAST_AND_CLEAR" and arg not in layout.names:
        slots[-1] = NULL
    elif op in ("CALL", "CALL_FUNCTION_EX"):
        slots[-1] = VALUE
    elif op in METHODS_OF_WITH and arg:       # see `lowered`
        slots[-2] = NULL
    elif op == "LOAD_METHOD" or op == "LOAD_SUPER_ATTR" and arg[1]:     # see `lowered` in sot/bytecode/step.py
        slots[-2 if NULL_FIRST else -1] = NULL
    return slots


def names_after(instr: Instr, layout: Layout) -> set[str]:
    """The variables that have a value afterwards. Storing a NULL removes the value."""
    if instr.op == "STORE_FAST" and layout.slots[-1] != NULL:
        return {*layout.names, instr.arg}
    return {*layout.names} - {instr.arg if instr.op in ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR") else None}


def kept_names(code: CodeType, pc: int, layout: Layout) -> Set[str]:
    """The variables that keep their value from ``pc`` on, although nothing reads them (see
    ``codegen/lifetimes.py``).
    """
    return {*layout.names} - live_names(code, pc)


def place_with(code: CodeType, pc: int, slots: Iterable[str], names: Set[str], kept: Set[str]) -> Place:
    """The place that keeps the live variables and those of ``kept``, as far as they have a value."""
    needed = names & (live_names(code, pc) | kept)
    return pc, Layout(tuple(slots), tuple(name for name in code.co_varnames if name in needed))


def encode_as(code: CodeType, layout: Layout, instrs: list[Instr], handlers: list[Handler],
            drop: int, extra: tuple[str, ...] = ()) -> CodeType:
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | drop)
    argnames = *parameters(code, layout), *extra     # super() without arguments reads the first one
    return encode(instrs, handlers, like=code, argnames=argnames, freevars=cells_of(code), flags=flags)


def push_callable(emit: Emit, function: Callable[..., Any]) -> list[Instr]:
    pair = [emit("LOAD_CONST", function), emit("PUSH_NULL")]
    return pair[::-1] if NULL_FIRST else pair


def handler_slots(slots: Iterable[str], handler: Handler) -> tuple[str, ...]:
    """The kinds of the slots at the start of an exception handler."""
    return (*slots,)[:handler.depth] + (LASTI,) * handler.lasti + (VALUE,)


def restoring(emit: Emit, layout: Layout, handlers: list[Handler]) -> list[Instr]:
    """Push the parameters on the stack. They are then deleted: `locals()` must not show them, and they must not keep
    anything alive.

    Arguments:
        handlers: those of the new code. A lasti is made as CPython makes it, by raising an exception.
    """
    instrs: list[Instr] = []
    for index, kind in enumerate(layout.slots):
        if kind == NULL:
            instrs.append(emit("PUSH_NULL"))
            continue
        if kind in WITHOUT_VALUE:
            landing = emit("POP_TOP")
            instrs += [emit("LOAD_CONST", Exception), emit("RAISE_VARARGS", 1, handler=len(handlers)), landing]
            handlers.append(Handler(landing, index, True))
            continue
        instrs += [emit("LOAD_FAST", slot_parameter(index)), emit("DELETE_FAST", slot_parameter(index))]
        if kind == SAVED:
            instrs += [emit("PUSH_EXC_INFO"), emit("POP_TOP")]
    return instrs
