"""Resume code and composed code: they continue a function in the middle.

At a break, step code leaves the user's frame (``sot/bytecode/step.py``). The code that continues is an ordinary
function, which the hook captures like any other:

- resume code (`resume_code`) restores the frame and contains the rest of the user's function;
- composed code (`composed_code`) contains the rest of an outer function, and calls the rest of the inner one first;
- `generator_code` is the rest of a generator, as a generator function.

The exception table of the original still fits. One thing does not: the thread's record of the exception being handled,
which PUSH_EXC_INFO saves on the stack (SAVED). Step code removes it with POP_EXCEPT before it leaves, and resume code
pushes it again. Its parameter is the exception being handled, which need not be on the stack any more. A lasti on the
stack is passed on unchanged, because it affects only the line that a tracer sees while RERAISE unwinds.
"""
from __future__ import annotations

import functools
import inspect
import weakref
from types import CodeType

from sot import _hook
from sot._hook import run
from sot.bytecode.decode import decode
from sot.bytecode.encode import with_targets
from sot.bytecode.frame_layout import CALL, GENERATORS, Layout, encode_as, push_callable, restoring
from sot.bytecode.instr import Handler, Instr
from sot.bytecode.liveness import shares_locals, super_argument
from sot.bytecode.resume_origin import Origin, body_start, cells_of, per_place, source


def can_resume(code: CodeType, pc: int, layout: Layout, *, generator: bool = False) -> str | None:
    """The reason why a frame cannot be left at `pc`, or None. `generator` is true for `generator_code`."""
    code, pc = source(code, pc)
    instrs, cells, argument = decode(code).instrs, cells_of(code), super_argument(code)
    if code.co_flags & GENERATORS != inspect.CO_GENERATOR * generator:
        return "not a generator" if generator else "a generator cannot be left in the middle"
    if pc < body_start(code):
        return "the frame has not started"
    if generator and "YIELD_VALUE" not in (instrs[pc - 1].op, instrs[pc - 2].op):
        return "the generator is not suspended there"
    if shares_locals(code):
        return "the function uses the dict of its variables more than once"
    if argument in cells:
        return "super() without arguments, and the first argument is a variable of an inner function too"
    if argument is not None and argument not in layout.names:
        return "super() without arguments, and the first argument has been deleted"
    for instr, following in zip(instrs, instrs[1:], strict=False):
        if instr.op == "LOAD_FAST_AND_CLEAR" and instr.arg in cells:
            if following.op != "MAKE_CELL" or instr is instrs[pc]:
                return f"{instr.arg} is a cell, and for a while a plain variable of a comprehension"
    return None


@per_place
def resume_code(code: CodeType, pc: int, layout: Layout) -> CodeType:
    """Resume code: the user's function from `pc` on, as an ordinary function."""
    instrs, handlers = with_targets(decode(code))
    target = instrs[pc]
    emit = functools.partial(Instr, pos=target.pos)
    prologue = [emit("RESUME", 0), *restoring(emit, layout, handlers),
                emit("JUMP", None, target, handler=target.handler)]
    return _rest(code, pc, layout, prologue + instrs[body_start(code):], handlers, GENERATORS)


@per_place
def composed_code(code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> CodeType:
    """Composed code: the user's function from the call at `pc` on. Its callee is the rest of the inner function, which
    is the last parameter, with its arguments.
    """
    instrs, handlers = with_targets(decode(code))
    emit = functools.partial(Instr, pos=instrs[pc].pos, handler=instrs[pc].handler)
    target = instrs[next_pc]
    plain = functools.partial(Instr, pos=instrs[pc].pos)
    prologue = [plain("RESUME", 0), *restoring(plain, layout, handlers),
                emit("NOP"), *push_callable(emit, run), emit("LOAD_FAST", CALL), emit("DELETE_FAST", CALL),
                emit("CALL_FUNCTION_EX", False), *[emit("POP_TOP")] * (not keep),
                Instr("JUMP", None, target, target.pos, target.handler)]
    rest = encode_as(code, layout, prologue + instrs[body_start(code):], handlers, GENERATORS, (CALL,))
    return with_origin(rest, Origin(weakref.ref(code), pc, layout, next_pc, keep))


@per_place
def generator_code(code: CodeType, pc: int, layout: Layout) -> CodeType:
    """A generator function for the rest of a generator that is suspended at a yield right before `pc`. After one
    `next()` its generator is suspended at the same place: a sent value is pushed on `layout.slots`, and `pc` is next.
    """
    decoded = decode(code)
    instrs, handlers = with_targets(decoded)
    start, at = body_start(code), pc - 1 if instrs[pc - 1].op == "YIELD_VALUE" else pc - 2
    # this handler covers all of the body
    emit = functools.partial(Instr, pos=instrs[at].pos, handler=instrs[start - 1].handler)
    # the args say whether it is in a try
    suspend, go_on = (emit(i.op, i.arg, handler=i.handler) for i in instrs[at : at + 2])
    before, behind = [], [emit("JUMP", None, instrs[at + 2], handler=instrs[at + 2].handler)]
    if instrs[at - 1].op == "SEND":  # right before the yield; throw() of 3.11 uses it to find the end of a yield from
        behind += [emit("END_SEND"), emit("JUMP", None, instrs[decoded.instrs[at - 1].target + 1])]
        before = [emit("JUMP", None, suspend), emit("SEND", None, behind[1])]
    prologue = [emit("RETURN_GENERATOR", handler=-1), emit("POP_TOP"), emit("RESUME", 0),
                *restoring(emit, layout, handlers), emit("LOAD_CONST", None), *before, suspend, go_on, *behind]
    return _rest(code, pc, layout, prologue + instrs[start:], handlers, 0)


def _rest(code: CodeType, pc: int, layout: Layout, instrs: list[Instr], handlers: list[Handler], drop: int) -> CodeType:
    return with_origin(encode_as(code, layout, instrs, handlers, drop),
                       Origin(weakref.ref(code), pc, layout))


def with_origin(rest: CodeType, of: Origin) -> CodeType:
    return passing_tails(rest.replace(co_consts=(*rest.co_consts, of)))


def passing_tails(rest: CodeType) -> CodeType:
    _hook.pass_tails(rest)
    return rest


_hook.skip(passing_tails.__code__)      # it runs during the user's call, while the hook is on
