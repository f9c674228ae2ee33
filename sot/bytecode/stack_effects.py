"""The stack effect of each canonical instruction: how many more values it leaves on the stack than it has found.

The table has every instruction of ``CANONICAL`` and no default, so a missing one is an error when this file is
imported. A number is the effect; a function computes it from the argument. ``OF_JUMP`` has the instructions whose
effect is different when they jump.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sot.bytecode.instr import CANONICAL, Instr

Effect = int | Callable[[Any], int]


def _table(*rows: tuple[Effect, str]) -> dict[str, Effect]:
    table: dict[str, Effect] = {}
    for effect, ops in rows:
        for op in ops.split():
            if op in table:
                raise ValueError(f"two stack effects of {op}")
            table[op] = effect
    return table


EFFECTS = _table(
    (0, """NOP RESUME MAKE_CELL COPY_FREE_VARS JUMP SEND SWAP END_FOR SETUP_ANNOTATIONS
           UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL GET_ITER GET_YIELD_FROM_ITER GET_AWAITABLE GET_AITER
           CHECK_EXC_MATCH CHECK_EG_MATCH YIELD_VALUE CALL_INTRINSIC_1 CONVERT_VALUE FORMAT_SIMPLE LOAD_ATTR
           LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF
           DELETE_FAST DELETE_DEREF DELETE_GLOBAL DELETE_NAME"""),
    (1, """PUSH_NULL COPY LOAD_CONST LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF
           LOAD_GLOBAL LOAD_NAME LOAD_LOCALS LOAD_METHOD LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS IMPORT_FROM
           GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS FOR_ITER RETURN_GENERATOR PUSH_EXC_INFO
           WITH_EXCEPT_START GET_ANEXT"""),
    (lambda two_slots: 2 if two_slots else 1, "BEFORE_WITH BEFORE_ASYNC_WITH"),
    (-1, """POP_TOP POP_EXCEPT STORE_FAST STORE_DEREF STORE_GLOBAL STORE_NAME DELETE_ATTR END_SEND CLEANUP_THROW
            BINARY_OP BINARY_SUBSCR COMPARE_OP IS_OP CONTAINS_OP IMPORT_NAME CALL_INTRINSIC_2 FORMAT_WITH_SPEC
            LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE SET_FUNCTION_ATTRIBUTE
            POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
            JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP RETURN_VALUE RERAISE BUILD_TEMPLATE"""),
    (-2, "STORE_ATTR DELETE_SUBSCR BINARY_SLICE MAP_ADD MATCH_CLASS END_ASYNC_FOR"),
    (-3, "STORE_SUBSCR"),
    (-4, "STORE_SLICE"),
    (lambda count: 1 - count, "BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_STRING BUILD_SLICE"),
    (lambda count: 1 - 2 * count, "BUILD_MAP"),
    (lambda count: -count, "BUILD_CONST_KEY_MAP RAISE_VARARGS"),
    (lambda count: count - 1, "UNPACK_SEQUENCE"),
    (lambda flags: -1 - (flags & 1), "BUILD_INTERPOLATION"),            # 1: there is a format
    (sum, "UNPACK_EX"),                                                 # (before, after)
    (lambda flags: -(flags & 15).bit_count(), "MAKE_FUNCTION"),
    (lambda arg: arg[1] - 2, "LOAD_SUPER_ATTR"),                        # (name, is_method, two_args)
    (lambda arg: -arg[0] - 1, "CALL"),                                  # (count, keyword names)
    (lambda has_keywords: -2 - has_keywords, "CALL_FUNCTION_EX"),
)

OF_JUMP = _table((-1, "FOR_ITER"), (0, "JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP"))

if EFFECTS.keys() != CANONICAL:
    raise ValueError(f"stack effects are missing or too many: {sorted(EFFECTS.keys() ^ CANONICAL)}")


def net_effect(instr: Instr, *, jump: bool = False) -> int:
    """The change of the stack's depth, at the next instruction or at the target of the jump."""
    effect = OF_JUMP.get(instr.op) if jump else None
    effect = EFFECTS[instr.op] if effect is None else effect
    return effect if isinstance(effect, int) else effect(instr.arg)
