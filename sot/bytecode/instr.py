"""The canonical instruction set: one set for the bytecode of CPython 3.11 to 3.14.

`decode` turns a code object into `Code`. `encode` turns a list of `Instr` back into a code object. Both follow the
families below: an opcode in a family has the same name in CPython, and the family says how its argument is read and
written. All exceptions are in the file of their CPython version (in versions/), the only place where versions differ.

Jump targets are indices into the list after `decode`. In a list that is being edited they may be references to `Instr`
objects (`with_targets`). `encode` takes both.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

Position = tuple[int | None, int | None, int | None, int | None]
NO_POSITION: Position = (None, None, None, None)


@dataclass(slots=True, eq=False)
class Instr:
    """One canonical instruction. `pos` is (lineno, end_lineno, col, end_col). `handler` is an index into the handlers
    of its code, or -1.
    """

    op: str
    arg: Any = None
    target: Any = None  # int | Instr | None
    pos: Position = NO_POSITION
    handler: int = -1

    def __str__(self) -> str:
        has_arg = self.arg is not None or self.op == "LOAD_CONST"
        text = f"{self.op} {self.arg!r}" if has_arg else self.op
        if isinstance(self.target, int):
            text += f" -> {self.target}"
        elif self.target is not None:
            text += f" -> [{self.target}]"
        return text


@dataclass(slots=True, eq=False)
class Handler:
    """Where an exception goes: the stack is cut to `depth`, then the lasti (if any) and the exception are pushed."""

    target: Any  # int | Instr
    depth: int
    lasti: bool


@dataclass(slots=True, frozen=True, eq=False)
class Code:
    """A decoded code object. Callers share it and must not change it; `with_targets(code)` makes a copy for
    editing.
    """

    instrs: list[Instr]
    handlers: list[Handler]
    code: types.CodeType

    def __str__(self) -> str:
        lines = [
            f"{i:4} {instr.pos[0] or '-':>5} {'' if instr.handler < 0 else f'h{instr.handler}':4}{instr}"
            for i, instr in enumerate(self.instrs)
        ]
        lines += [f"h{i}: {h.target} depth {h.depth}{' lasti' if h.lasti else ''}"
                  for i, h in enumerate(self.handlers)]
        return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------
# Families of opcodes. The name is CPython's. The argument is ...

# ... absent. Since 3.14 it is 1 for BEFORE_WITH, BEFORE_ASYNC_WITH and WITH_EXCEPT_START: the exit method has two
# slots
PLAIN = frozenset("""
    NOP POP_TOP PUSH_NULL
    UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL
    BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR BINARY_SLICE STORE_SLICE
    GET_ITER GET_YIELD_FROM_ITER GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS
    PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH CHECK_EG_MATCH BEFORE_WITH WITH_EXCEPT_START
    GET_AITER GET_ANEXT BEFORE_ASYNC_WITH END_ASYNC_FOR
    END_FOR END_SEND CLEANUP_THROW RETURN_GENERATOR RETURN_VALUE
    LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_LOCALS SETUP_ANNOTATIONS
    FORMAT_SIMPLE FORMAT_WITH_SPEC BUILD_TEMPLATE
""".split())

# ... a small number
NUMBER = frozenset("""
    RESUME COPY SWAP COPY_FREE_VARS
    BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING BUILD_SLICE
    LIST_APPEND SET_ADD MAP_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE
    UNPACK_SEQUENCE MATCH_CLASS RERAISE RAISE_VARARGS YIELD_VALUE GET_AWAITABLE
    CONVERT_VALUE MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE BUILD_INTERPOLATION
""".split())

# ... true or false
FLAG = frozenset("IS_OP CONTAINS_OP CALL_FUNCTION_EX".split())

# ... a name in co_names
NAME = frozenset("""
    LOAD_GLOBAL STORE_GLOBAL DELETE_GLOBAL LOAD_NAME STORE_NAME DELETE_NAME
    LOAD_ATTR LOAD_METHOD STORE_ATTR DELETE_ATTR IMPORT_NAME IMPORT_FROM LOAD_FROM_DICT_OR_GLOBALS
""".split())

# ... a local variable or a cell, by name
FAST = frozenset("""
    LOAD_FAST LOAD_FAST_AND_CLEAR STORE_FAST DELETE_FAST
    MAKE_CELL LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF
""".split())

# ... absent, and the instruction has a target
JUMPS = frozenset("""
    JUMP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
    JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP FOR_ITER SEND
""".split())

# ... particular to the opcode: a value, a symbol such as '+=' or '<', a name without INTRINSIC_,
#     (before, after), (name, is_method, two_args), (count, names of the keyword arguments)
OTHER = frozenset("""
    LOAD_CONST BINARY_OP COMPARE_OP CALL_INTRINSIC_1 CALL_INTRINSIC_2
    UNPACK_EX LOAD_SUPER_ATTR CALL
""".split())

CANONICAL = PLAIN | NUMBER | FLAG | NAME | FAST | JUMPS | OTHER

# Execution never continues with the next instruction.
NO_FALL_THROUGH = frozenset("JUMP RETURN_VALUE RERAISE RAISE_VARARGS".split())

_SYMBOLS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
BINARY_OPS = _SYMBOLS + tuple(symbol + "=" for symbol in _SYMBOLS)
COMPARE_OPS = ("<", "<=", "==", "!=", ">", ">=")

# What the instructions that begin a ``with`` call, and keep for its end.
METHODS_OF_WITH = {"BEFORE_WITH": ("__enter__", "__exit__"), "BEFORE_ASYNC_WITH": ("__aenter__", "__aexit__")}

# The opcodes that the interpreter may refuse, and why. They are decoded and encoded like the others.
_ASYNC = "async code is left to Python"
REFUSED: dict[str, str] = {
    **dict.fromkeys("GET_AITER GET_ANEXT END_ASYNC_FOR".split(), _ASYNC),
    **dict.fromkeys("BUILD_INTERPOLATION BUILD_TEMPLATE".split(), "template strings are left to Python"),
}
