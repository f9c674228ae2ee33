"""What is particular to the bytecode of CPython 3.14: the changes since 3.13."""

from __future__ import annotations

import opcode

from sot.bytecode.instr import BINARY_OPS
from sot.bytecode.versions import v311, v312, v313

NULL_FIRST = v313.NULL_FIRST
ONE_LOCALS_DICT = v313.ONE_LOCALS_DICT
CLOSE_ANSWERS = v313.CLOSE_ANSWERS
TUPLE_ASKS_LENGTH = False
LASTI_IS_OBJECT = False  # a number in the place of a reference, which only RERAISE may take
REMOVED = frozenset({"NOT_TAKEN"})      # a marker for counting branches
NEVER = {op: why for op, why in v313.NEVER.items() if op in opcode.opmap}

cache_units = v313.cache_units
has_argument = v313.has_argument

SUBSCRIPT = len(BINARY_OPS)     # of BINARY_OP
COMMON_CONSTANTS: list[object] = opcode._common_constants  # type: ignore[attr-defined]
SPECIAL: list[str] = opcode._special_method_names  # type: ignore[attr-defined]

# At the start of a `with`, the exit method and its self are two slots below the result of the enter method.
WITH = ("COPY", "LOAD_SPECIAL", "SWAP", "SWAP", "LOAD_SPECIAL", "CALL")
TWO_SLOTS = 1       # the argument of BEFORE_WITH, BEFORE_ASYNC_WITH and WITH_EXCEPT_START
BEGINS = {("__exit__", "__enter__"): "BEFORE_WITH", ("__aexit__", "__aenter__"): "BEFORE_ASYNC_WITH"}


# ---------------------------------------------------------------------------------------------------
# Reading

READ_JUMP = v313.READ_JUMP


def binary_op(d, arg):
    if arg == SUBSCRIPT:
        d.emit("BINARY_SUBSCR")
    else:
        d.emit("BINARY_OP", BINARY_OPS[arg])


def load_small_int(d, arg):
    d.emit("LOAD_CONST", arg)


def load_common_constant(d, arg):
    if COMMON_CONSTANTS[arg] is AssertionError:
        d.emit("LOAD_ASSERTION_ERROR")
    else:
        d.emit("LOAD_CONST", COMMON_CONSTANTS[arg])


def load_special(d, arg):
    """Nothing: the CALL that ends the start of a `with` reads it together with its neighbours."""
    d.emit("LOAD_SPECIAL", SPECIAL[arg])


def call(d, arg):
    begin = d.out[1 - len(WITH):]
    if tuple(i.op for i in begin) == WITH[:-1]:
        del d.out[1 - len(WITH):]
        d.emit(BEGINS[begin[1].arg, begin[4].arg], TWO_SLOTS)
    else:
        d.emit("CALL", (arg, ()))


def call_function_ex(d, arg):
    """The fourth operand is the keyword arguments, or a NULL."""
    has_keywords = not d.out or d.out[-1].op != "PUSH_NULL"
    if not has_keywords:
        d.out.pop()
    d.emit("CALL_FUNCTION_EX", has_keywords)


def with_except_start(d, arg):
    d.emit("WITH_EXCEPT_START", TWO_SLOTS)


def pop_iter(d, arg):
    """FOR_ITER leaves the iterator to the POP_ITER behind END_FOR. Elsewhere a POP_ITER ends a loop."""
    if d.in_end_for:
        d.in_end_for = False
    else:
        d.emit("POP_TOP")


READ = {
    **{op: read for op, read in v313.READ.items() if op in opcode.opmap and op != "POP_TOP"},
    "BINARY_OP": binary_op,
    "LOAD_SMALL_INT": load_small_int,
    "LOAD_COMMON_CONSTANT": load_common_constant,
    "LOAD_FAST_BORROW": v312.load_fast,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": v313.two_fast("LOAD_FAST", "LOAD_FAST"),
    "LOAD_SPECIAL": load_special,
    "CALL": call,
    "CALL_FUNCTION_EX": call_function_ex,
    "WITH_EXCEPT_START": with_except_start,
    "POP_ITER": pop_iter,
}

finish = v313.finish


# ---------------------------------------------------------------------------------------------------
# Writing


def write_load_const(e, instr):
    value = instr.arg
    if type(value) is int and 0 <= value < 256:
        e.put("LOAD_SMALL_INT", value)
    elif (index := next((n for n, c in enumerate(COMMON_CONSTANTS) if c is value), None)) is not None:
        e.put("LOAD_COMMON_CONSTANT", index)
    else:
        e.put("LOAD_CONST", e.const(value))


def write_load_assertion_error(e, instr):
    e.put("LOAD_COMMON_CONSTANT", COMMON_CONSTANTS.index(AssertionError))


def write_binary_subscr(e, instr):
    e.put("BINARY_OP", SUBSCRIPT)


def write_call_function_ex(e, instr):
    if not instr.arg:
        e.put("PUSH_NULL")
    e.put("CALL_FUNCTION_EX")


def write_before(leave, enter):
    def write(e, instr):
        for op, arg in zip(WITH, (1, SPECIAL.index(leave), 2, 3, SPECIAL.index(enter), 0), strict=True):
            e.put(op, arg)

    return write


def write_pop_jump(e, instr):
    """A NOT_TAKEN stands where a jump is not taken, as a marker for counting branches."""
    if e.is_forward():
        e.put(instr.op, target=e.target())
        e.put("NOT_TAKEN")
    else:
        opposite = v312.OPPOSITE[instr.op.removeprefix("POP_JUMP_IF_")]
        e.put(f"POP_JUMP_IF_{opposite}", target=e.index + 1)
        e.put("NOT_TAKEN")
        e.put("JUMP_BACKWARD", target=e.target())


def write_end_for(e, instr):
    v312.write_end_for(e, instr)
    e.put("POP_ITER")


def write_with_except_start(e, instr):
    e.put("WITH_EXCEPT_START")


WRITE = {
    **v313.WRITE,
    "LOAD_CONST": write_load_const,
    "LOAD_ASSERTION_ERROR": write_load_assertion_error,
    "BINARY_OP": v311.write_binary_op,
    "BINARY_SUBSCR": write_binary_subscr,
    "CALL_FUNCTION_EX": write_call_function_ex,
    "BEFORE_WITH": write_before("__exit__", "__enter__"),
    "BEFORE_ASYNC_WITH": write_before("__aexit__", "__aenter__"),
    "WITH_EXCEPT_START": write_with_except_start,
    **{f"POP_JUMP_IF_{test}": write_pop_jump for test in v312.CONDITIONS},
    "END_FOR": write_end_for,
}
