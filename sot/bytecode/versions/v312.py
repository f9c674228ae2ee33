"""What is particular to the bytecode of CPython 3.12: the changes since 3.11."""

from __future__ import annotations

import dis

from sot.bytecode.instr import COMPARE_OPS
from sot.bytecode.versions import v311

NULL_FIRST = v311.NULL_FIRST
ONE_LOCALS_DICT = v311.ONE_LOCALS_DICT
CLOSE_ANSWERS = v311.CLOSE_ANSWERS
TUPLE_ASKS_LENGTH = v311.TUPLE_ASKS_LENGTH
LASTI_IS_OBJECT = True
cache_units = v311.cache_units
has_argument = v311.has_argument
REMOVED: frozenset[str] = frozenset()


def never(extra: dict[str, str]) -> dict[str, str]:
    """Opcodes of dis.opmap that never occur in co_code, and why."""
    instrumented = {op: "instrumented" for op in dis.opmap if op.startswith("INSTRUMENTED_")}
    pseudo = {op: "a pseudo-opcode of the compiler" for op in dis.opmap if dis.opmap[op] >= 256}
    return {**instrumented, **pseudo, **extra}


NEVER = never({
    "INTERPRETER_EXIT": "only in the code of the interpreter's entry frame",
    "RESERVED": "not an instruction",
})


# ---------------------------------------------------------------------------------------------------
# Reading

CONDITIONS = ("TRUE", "FALSE", "NONE", "NOT_NONE")

READ_JUMP = {
    "JUMP_FORWARD": ("JUMP", None, 1),
    "JUMP_BACKWARD": ("JUMP", None, -1),
    "JUMP_BACKWARD_NO_INTERRUPT": ("JUMP", "no_interrupt", -1),
    "FOR_ITER": ("FOR_ITER", None, 1),
    "SEND": ("SEND", None, 1),
    **{f"POP_JUMP_IF_{test}": (f"POP_JUMP_IF_{test}", None, 1) for test in CONDITIONS},
}

INTRINSICS_1 = [name.removeprefix("INTRINSIC_") for name in dis._intrinsic_1_descs]  # type: ignore[attr-defined]
INTRINSICS_2 = [name.removeprefix("INTRINSIC_") for name in dis._intrinsic_2_descs]  # type: ignore[attr-defined]


def return_const(d, arg):
    d.emit("LOAD_CONST", d.consts[arg])
    d.emit("RETURN_VALUE")


def load_attr(d, arg):
    d.emit("LOAD_METHOD" if arg & 1 else "LOAD_ATTR", d.names[arg >> 1])


def load_super_attr(d, arg):
    d.emit("LOAD_SUPER_ATTR", (d.names[arg >> 2], bool(arg & 1), bool(arg & 2)))


def load_fast(d, arg):
    d.emit("LOAD_FAST", d.slots[arg])


def compare_op(d, arg):
    d.emit("COMPARE_OP", COMPARE_OPS[arg >> 4])


def intrinsic_1(d, arg):
    d.emit("CALL_INTRINSIC_1", INTRINSICS_1[arg])


def intrinsic_2(d, arg):
    d.emit("CALL_INTRINSIC_2", INTRINSICS_2[arg])


READ = {
    **{op: read for op, read in v311.READ.items() if op in dis.opmap},
    "RETURN_CONST": return_const,
    "LOAD_ATTR": load_attr,
    "LOAD_SUPER_ATTR": load_super_attr,
    "LOAD_FAST_CHECK": load_fast,
    "COMPARE_OP": compare_op,
    "CALL_INTRINSIC_1": intrinsic_1,
    "CALL_INTRINSIC_2": intrinsic_2,
}


def finish(d, handlers):
    """Nothing to do."""


# ---------------------------------------------------------------------------------------------------
# Writing

# The low bits of COMPARE_OP: the outcomes (unordered 1, less 2, greater 4, equal 8) that are true.
COMPARE_MASKS = {"<": 2, "<=": 2 | 8, "==": 8, "!=": 1 | 2 | 4, ">": 4, ">=": 4 | 8}
OPPOSITE = {"TRUE": "FALSE", "FALSE": "TRUE", "NONE": "NOT_NONE", "NOT_NONE": "NONE"}


def write_load_const(e, instr):
    e.put("RETURN_CONST" if e.take("RETURN_VALUE") else "LOAD_CONST", e.const(instr.arg))


def write_load_attr(e, instr):
    e.put("LOAD_ATTR", e.name(instr.arg) << 1)


def write_load_method(e, instr):
    e.put("LOAD_ATTR", e.name(instr.arg) << 1 | 1)


def write_load_super_attr(e, instr):
    name, is_method, two_args = instr.arg
    e.put("LOAD_SUPER_ATTR", e.name(name) << 2 | two_args << 1 | is_method)


def write_load_fast(e, instr):
    e.put("LOAD_FAST" if e.is_bound() else "LOAD_FAST_CHECK", e.slot(instr.arg))


def write_compare_op(e, instr):
    e.put("COMPARE_OP", COMPARE_OPS.index(instr.arg) << 4 | COMPARE_MASKS[instr.arg])


def write_call(e, instr):
    count, keywords = instr.arg
    if keywords:
        e.put("KW_NAMES", e.const(keywords))
    e.put("CALL", count)


def write_intrinsic_1(e, instr):
    e.put("CALL_INTRINSIC_1", INTRINSICS_1.index(instr.arg))


def write_intrinsic_2(e, instr):
    e.put("CALL_INTRINSIC_2", INTRINSICS_2.index(instr.arg))


def write_pop_jump(e, instr):
    if e.is_forward():
        e.put(instr.op, target=e.target())
    else:
        opposite = OPPOSITE[instr.op.removeprefix("POP_JUMP_IF_")]
        e.put(f"POP_JUMP_IF_{opposite}", target=e.index + 1)
        e.put("JUMP_BACKWARD", target=e.target())


def write_for_iter(e, instr):
    target = e.targets[e.index]
    if not e.is_forward() or e.instrs[target].op != "END_FOR":
        raise ValueError("FOR_ITER jumps forward, to an END_FOR")
    e.put("FOR_ITER", target=target)


def write_end_for(e, instr):
    """CPython's END_FOR pops the iterator. FOR_ITER has already popped it, so it jumps behind END_FOR."""
    if e.is_fallen_into():
        e.put("JUMP_FORWARD", target=e.index + 1)
        e.first[-1] = len(e.out)
    e.put("END_FOR")


def write_send(e, instr):
    e.put("SEND", target=e.targets[e.index])


_FROM_311 = """
    PUSH_NULL LOAD_GLOBAL BINARY_OP UNPACK_EX
    SWAP CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC TO_BOOL JUMP
""".split()

WRITE = {
    **{op: v311.WRITE[op] for op in _FROM_311},
    **{f"POP_JUMP_IF_{test}": write_pop_jump for test in CONDITIONS},
    "LOAD_CONST": write_load_const,
    "LOAD_ATTR": write_load_attr,
    "LOAD_METHOD": write_load_method,
    "LOAD_SUPER_ATTR": write_load_super_attr,
    "LOAD_FAST": write_load_fast,
    "COMPARE_OP": write_compare_op,
    "CALL": write_call,
    "CALL_INTRINSIC_1": write_intrinsic_1,
    "CALL_INTRINSIC_2": write_intrinsic_2,
    "FOR_ITER": write_for_iter,
    "END_FOR": write_end_for,
    "SEND": write_send,
}
