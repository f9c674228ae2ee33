"""What is particular to the bytecode of CPython 3.13: the changes since 3.12."""

from __future__ import annotations

import dis

from sot.bytecode.instr import COMPARE_OPS
from sot.bytecode.versions import v312

LASTI_IS_OBJECT = True
NULL_FIRST = False  # the two slots below the arguments of a call are callable, NULL
ONE_LOCALS_DICT = False
CLOSE_ANSWERS = True
TUPLE_ASKS_LENGTH = v312.TUPLE_ASKS_LENGTH
REMOVED: frozenset[str] = frozenset()

NEVER = v312.never({
    "INTERPRETER_EXIT": "only in the code of the interpreter's entry frame",
    "EXIT_INIT_CHECK": "only in the code of the frame that calls __init__",
    "ENTER_EXECUTOR": "co_code holds the instruction it stands for",
    "RESERVED": "not an instruction",
})


def cache_units(opcode: int) -> int:
    return dis._inline_cache_entries.get(dis.opname[opcode], 0)  # type: ignore[attr-defined]


def has_argument() -> list[int]:
    return dis.hasarg  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------------------
# Reading

READ_JUMP = v312.READ_JUMP


def load_global(d, arg):
    d.emit("LOAD_GLOBAL", d.names[arg >> 1])
    if arg & 1:
        d.emit("PUSH_NULL")


def compare_op(d, arg):
    d.emit("COMPARE_OP", COMPARE_OPS[arg >> 5])
    if arg & 16:
        d.emit("TO_BOOL")


def call(d, arg):
    d.emit("CALL", (arg, ()))


def call_kw(d, arg):
    names = d.out.pop()  # the LOAD_CONST before
    d.emit("CALL", (arg, names.arg))


def make_function(d, arg):
    d.emit("MAKE_FUNCTION", 0)


def two_fast(first, second):
    def read(d, arg):
        d.emit(first, d.slots[arg >> 4])
        d.emit(second, d.slots[arg & 15])

    return read


def end_for(d, arg):
    d.emit("END_FOR")
    d.in_end_for = True


def pop_top(d, arg):
    """The compiler lets END_FOR pop the value, and the POP_TOP behind it the iterator."""
    if d.in_end_for:
        d.in_end_for = False
    else:
        d.emit("POP_TOP")


READ = {
    **{op: read for op, read in v312.READ.items() if op in dis.opmap},
    "LOAD_GLOBAL": load_global,
    "COMPARE_OP": compare_op,
    "CALL": call,
    "CALL_KW": call_kw,
    "MAKE_FUNCTION": make_function,
    "LOAD_FAST_LOAD_FAST": two_fast("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": two_fast("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": two_fast("STORE_FAST", "STORE_FAST"),
    "END_FOR": end_for,
    "POP_TOP": pop_top,
}


def finish(d, handlers):
    """LOAD_FAST of a cell is LOAD_CLOSURE, except while a comprehension uses the name as a plain variable
    (LOAD_FAST_AND_CLEAR). There it is LOAD_CLOSURE only if the value goes into a closure.
    """
    cells = {*d.code.co_cellvars, *d.code.co_freevars}
    if not cells:
        return
    certain = cells - {i.arg for i in d.out if i.op == "LOAD_FAST_AND_CLEAR"}
    for index, instr in enumerate(d.out):
        if instr.op == "LOAD_FAST" and instr.arg in certain:
            instr.op = "LOAD_CLOSURE"
        elif instr.op == "SET_FUNCTION_ATTRIBUTE" and instr.arg == 8:
            tuple_at = index - 3  # BUILD_TUPLE, LOAD_CONST, MAKE_FUNCTION
            for load in d.out[tuple_at - d.out[tuple_at].arg : tuple_at]:
                load.op = "LOAD_CLOSURE"


# ---------------------------------------------------------------------------------------------------
# Writing


def write_load_global(e, instr):
    flag = bool(e.take("PUSH_NULL"))
    e.put("LOAD_GLOBAL", e.name(instr.arg) << 1 | flag)


def write_compare_op(e, instr):
    flag = bool(e.take("TO_BOOL"))
    mask = v312.COMPARE_MASKS[instr.arg]
    e.put("COMPARE_OP", COMPARE_OPS.index(instr.arg) << 5 | flag << 4 | mask)


def write_call(e, instr):
    count, keywords = instr.arg
    if keywords:
        e.put("LOAD_CONST", e.const(keywords))
    e.put("CALL_KW" if keywords else "CALL", count)


def write_make_function(e, instr):
    e.put("MAKE_FUNCTION")


def write_load_closure(e, instr):
    e.put("LOAD_FAST", e.slot(instr.arg))


def write_end_for(e, instr):
    v312.write_end_for(e, instr)
    e.put("POP_TOP")


def write_load_fast(e, instr):
    if not e.is_bound():
        e.put("LOAD_FAST_CHECK", e.slot(instr.arg))
    elif not (e.is_bound(1) and _write_two_fast(e, instr, "LOAD_FAST")):
        e.put("LOAD_FAST", e.slot(instr.arg))


def write_store_fast(e, instr):
    if _write_two_fast(e, instr, "STORE_FAST"):
        return
    if not (e.is_bound(1) and _write_two_fast(e, instr, "LOAD_FAST")):
        e.put("STORE_FAST", e.slot(instr.arg))


def _write_two_fast(e, instr, second):
    """Fold the current instruction and the next one into one, if the next one is `second`."""
    following = e.instrs[e.index + 1 : e.index + 2]
    slots = [e.slot(i.arg) for i in (instr, *following) if i.op in ("LOAD_FAST", "STORE_FAST")]
    if len(slots) < 2 or max(slots) > 15 or not e.take(second):
        return False
    e.put(f"{instr.op}_{second}", slots[0] << 4 | slots[1])
    return True


_NATIVE_AGAIN = "PUSH_NULL SWAP CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC TO_BOOL".split()

WRITE = {
    **{op: write for op, write in v312.WRITE.items() if op not in _NATIVE_AGAIN},
    "LOAD_GLOBAL": write_load_global,
    "COMPARE_OP": write_compare_op,
    "CALL": write_call,
    "MAKE_FUNCTION": write_make_function,
    "LOAD_CLOSURE": write_load_closure,
    "LOAD_FAST": write_load_fast,
    "STORE_FAST": write_store_fast,
    "END_FOR": write_end_for,
}
