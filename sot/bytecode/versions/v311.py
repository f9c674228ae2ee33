"""What is particular to the bytecode of CPython 3.11."""

from __future__ import annotations

import bisect
import dis

from sot.bytecode.instr import BINARY_OPS, COMPARE_OPS, Instr

LASTI_IS_OBJECT = True  # the lasti below the exception in a handler can be stored in a variable
NULL_FIRST = True  # the two slots below the arguments of a call are NULL, callable
ONE_LOCALS_DICT = True      # whether all calls of locals() in a function return the same dict
CLOSE_ANSWERS = False   # whether generator.close() returns what the generator returns
TUPLE_ASKS_LENGTH = True    # whether tuple(iterable) asks the iterable for its length, as list(iterable) does

# Opcodes of dis.opmap that never occur in co_code, and why.
NEVER: dict[str, str] = {}

REMOVED = frozenset({"PRECALL"})


def cache_units(opcode: int) -> int:
    return dis._inline_cache_entries[opcode]  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------------------
# Reading

# opname: canonical op, argument, direction
READ_JUMP: dict[str, tuple[str, object, int]] = {
    "JUMP_FORWARD": ("JUMP", None, 1),
    "JUMP_BACKWARD": ("JUMP", None, -1),
    "JUMP_BACKWARD_NO_INTERRUPT": ("JUMP", "no_interrupt", -1),
    "FOR_ITER": ("FOR_ITER", None, 1),
    "SEND": ("SEND", None, 1),
    "JUMP_IF_TRUE_OR_POP": ("JUMP_IF_TRUE_OR_POP", None, 1),
    "JUMP_IF_FALSE_OR_POP": ("JUMP_IF_FALSE_OR_POP", None, 1),
    **{
        f"POP_JUMP_{way}_IF_{test}": (f"POP_JUMP_IF_{test}", None, sign)
        for way, sign in (("FORWARD", 1), ("BACKWARD", -1))
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}


def load_const(d, arg):
    d.emit("LOAD_CONST", d.consts[arg])


def load_global(d, arg):
    if arg & 1:
        d.emit("PUSH_NULL")
    d.emit("LOAD_GLOBAL", d.names[arg >> 1])


def binary_op(d, arg):
    d.emit("BINARY_OP", BINARY_OPS[arg])


def compare_op(d, arg):
    d.emit("COMPARE_OP", dis.cmp_op[arg])


def unpack_ex(d, arg):
    d.emit("UNPACK_EX", (arg & 255, arg >> 8))


def format_value(d, arg):
    conversion, has_spec = arg & 3, arg & 4
    if conversion and has_spec:
        d.emit("SWAP", 2)
    if conversion:
        d.emit("CONVERT_VALUE", conversion)
    if conversion and has_spec:
        d.emit("SWAP", 2)
    d.emit("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE")


def kw_names(d, arg):
    d.keywords = d.consts[arg]


def call(d, arg):
    d.emit("CALL", (arg, d.keywords))
    d.keywords = ()


def intrinsic(op, name, push):
    def read(d, arg):
        d.emit(op, name)
        if not push:
            d.emit("POP_TOP")

    return read


# CPython 3.11 opcode: the intrinsic function of 3.12, and whether the result stays on the stack
INTRINSICS_1 = {
    "PRINT_EXPR": ("PRINT", False),
    "IMPORT_STAR": ("IMPORT_STAR", False),
    "ASYNC_GEN_WRAP": ("ASYNC_GEN_WRAP", True),
    "UNARY_POSITIVE": ("UNARY_POSITIVE", True),
    "LIST_TO_TUPLE": ("LIST_TO_TUPLE", True),
}

READ = {
    "LOAD_CONST": load_const,
    "LOAD_GLOBAL": load_global,
    "BINARY_OP": binary_op,
    "COMPARE_OP": compare_op,
    "UNPACK_EX": unpack_ex,
    "FORMAT_VALUE": format_value,
    "KW_NAMES": kw_names,
    "CALL": call,
    "PREP_RERAISE_STAR": intrinsic("CALL_INTRINSIC_2", "PREP_RERAISE_STAR", True),
    **{op: intrinsic("CALL_INTRINSIC_1", *row) for op, row in INTRINSICS_1.items()},
}


def finish(d, handlers):
    """3.11's SEND drops the receiver when it is exhausted. In canonical code END_SEND at its target does. Only SEND
    reaches that END_SEND, because the instruction before it is a jump back to SEND.
    """
    landings = sorted({i.target for i in d.out if i.op == "SEND"})
    if not landings:
        return
    moved = [index + bisect.bisect_right(landings, index) for index in range(len(d.out) + 1)]
    for instr in d.out:
        if instr.target is not None:
            instr.target = moved[instr.target] - (instr.op == "SEND")
    for handler in handlers:
        handler.target = moved[handler.target]
    for landing in reversed(landings):
        where = d.out[landing]
        d.out.insert(landing, Instr("END_SEND", None, None, where.pos, where.handler))


# ---------------------------------------------------------------------------------------------------
# Writing


def has_argument() -> range:
    return range(dis.HAVE_ARGUMENT, 256)


def write_load_const(e, instr):
    e.put("LOAD_CONST", e.const(instr.arg))


def write_push_null(e, instr):
    if loaded := e.take("LOAD_GLOBAL"):
        e.put("LOAD_GLOBAL", e.name(loaded[0].arg) << 1 | 1)
    else:
        e.put("PUSH_NULL")


def write_load_global(e, instr):
    e.put("LOAD_GLOBAL", e.name(instr.arg) << 1)


def write_binary_op(e, instr):
    e.put("BINARY_OP", BINARY_OPS.index(instr.arg))


def write_compare_op(e, instr):
    e.put("COMPARE_OP", COMPARE_OPS.index(instr.arg))


def write_unpack_ex(e, instr):
    before, after = instr.arg
    e.put("UNPACK_EX", before | after << 8)


def write_swap(e, instr):
    ahead = e.instrs[e.index + 1 : e.index + 3]
    if instr.arg == 2 and [i.arg for i in ahead[1:]] == [2]:
        if taken := e.take("CONVERT_VALUE", "SWAP", "FORMAT_WITH_SPEC"):
            e.put("FORMAT_VALUE", taken[0].arg | 4)
            return
    e.put("SWAP", instr.arg)


def write_convert_value(e, instr):
    e.take("FORMAT_SIMPLE")  # the value is a str now, and the rest of FORMAT_VALUE does nothing to it
    e.put("FORMAT_VALUE", instr.arg)


def write_format_simple(e, instr):
    e.put("FORMAT_VALUE", 0)


def write_format_with_spec(e, instr):
    e.put("FORMAT_VALUE", 4)


def write_call(e, instr):
    count, keywords = instr.arg
    if keywords:
        e.put("KW_NAMES", e.const(keywords))
    e.put("PRECALL", count)
    e.put("CALL", count)


def write_intrinsic(e, instr):
    if instr.arg == "PREP_RERAISE_STAR":
        e.put("PREP_RERAISE_STAR")
        return
    native = next(op for op, (name, _) in INTRINSICS_1.items() if name == instr.arg)
    e.put(native)
    if not INTRINSICS_1[native][1] and not e.take("POP_TOP"):
        e.put("LOAD_CONST", e.const(None))


def write_to_bool(e, instr):
    e.put("UNARY_NOT")
    e.put("UNARY_NOT")


def write_slice(op):
    def write(e, instr):
        e.put("BUILD_SLICE", 2)
        e.put(op)

    return write


def write_jump(e, instr):
    if e.is_forward():
        e.put("JUMP_FORWARD", target=e.target())
    else:
        e.put("JUMP_BACKWARD_NO_INTERRUPT" if instr.arg else "JUMP_BACKWARD", target=e.target())


def write_forward(e, instr):
    if not e.is_forward():
        raise ValueError(f"{instr.op} jumps forward only")
    e.put(instr.op, target=e.target())


def write_pop_jump(e, instr):
    way = "FORWARD" if e.is_forward() else "BACKWARD"
    e.put(f"POP_JUMP_{way}_IF_{instr.op.removeprefix('POP_JUMP_IF_')}", target=e.target())


def write_send(e, instr):
    landing = e.targets[e.index]
    e.put("SEND", target=landing + (e.instrs[landing].op == "END_SEND"))


def write_end_send(e, instr):
    if e.is_fallen_into() or e.sources() != {"SEND"}:
        e.put("SWAP", 2)
        e.put("POP_TOP")


def write_end_for(e, instr):
    """Nothing: FOR_ITER has popped the iterator."""


WRITE = {
    "LOAD_CONST": write_load_const,
    "PUSH_NULL": write_push_null,
    "LOAD_GLOBAL": write_load_global,
    "BINARY_OP": write_binary_op,
    "COMPARE_OP": write_compare_op,
    "UNPACK_EX": write_unpack_ex,
    "SWAP": write_swap,
    "CONVERT_VALUE": write_convert_value,
    "FORMAT_SIMPLE": write_format_simple,
    "FORMAT_WITH_SPEC": write_format_with_spec,
    "CALL": write_call,
    "CALL_INTRINSIC_1": write_intrinsic,
    "CALL_INTRINSIC_2": write_intrinsic,
    "TO_BOOL": write_to_bool,
    "BINARY_SLICE": write_slice("BINARY_SUBSCR"),
    "STORE_SLICE": write_slice("STORE_SUBSCR"),
    "JUMP": write_jump,
    "FOR_ITER": write_forward,
    "JUMP_IF_TRUE_OR_POP": write_forward,
    "JUMP_IF_FALSE_OR_POP": write_forward,
    "POP_JUMP_IF_TRUE": write_pop_jump,
    "POP_JUMP_IF_FALSE": write_pop_jump,
    "POP_JUMP_IF_NONE": write_pop_jump,
    "POP_JUMP_IF_NOT_NONE": write_pop_jump,
    "SEND": write_send,
    "END_SEND": write_end_send,
    "END_FOR": write_end_for,
}
