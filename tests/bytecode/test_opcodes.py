"""Every instruction of every supported CPython is complete: executed symbolically or refused with its reason, with a
stack effect. That each has a reader and a writer, test_bytecode.py says."""
from __future__ import annotations

import argparse
import asyncio.streams
import collections
import contextlib
import dataclasses
import enum
import inspect
import types
import typing

import pytest

from sot.bytecode import CANONICAL, NO_FALL_THROUGH, REFUSED, Code, Instr, decode
from sot.bytecode.stack_effects import EFFECTS, net_effect
from sot.interpreter.opcodes import HANDLERS
from sot.interpreter.opcodes.table import op, refused

MODULES = (argparse, asyncio.streams, collections, contextlib, dataclasses, enum, inspect, typing)


def test_every_canonical_instruction_has_a_handler_or_a_reason():
    assert set(HANDLERS) == CANONICAL


def test_what_is_refused_is_what_the_table_says():
    assert {name for name, handler in HANDLERS.items() if handler is refused} == set(REFUSED)
    assert all(REFUSED.values())


def test_a_second_handler_is_refused_and_told_where_the_first_is():
    with pytest.raises(ValueError, match=r"'LOAD_CONST' is registered at .*names\.py"):
        op("LOAD_CONST")(refused)


# ---- stack effects ----------------------------------------------------------------------------------------------


def test_every_canonical_instruction_has_a_stack_effect_and_no_other_has():
    assert set(EFFECTS) == CANONICAL
    with pytest.raises(KeyError):
        net_effect(Instr("LOAD_NOTHING"))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_stack_is_equally_deep_by_whichever_way_an_instruction_is_reached(module):
    with open(module.__file__, encoding="utf-8") as file:
        code = compile(file.read(), module.__file__, "exec")
    for inner in all_code(code):
        assert depths(decode(inner))


def all_code(code: types.CodeType) -> list[types.CodeType]:
    inner = [c for const in code.co_consts if isinstance(const, types.CodeType) for c in all_code(const)]
    return [code, *inner]


def depths(code: Code) -> dict[int, int]:
    """The depth of the stack before each instruction, which handlers of exceptions cut; all ways must agree."""
    found: dict[int, int] = {}
    todo = [(0, 0)]
    while todo:
        pc, depth = todo.pop()
        if pc in found:
            assert found[pc] == depth, f"{code.code.co_qualname}: {code.instrs[pc]} at depths {found[pc]} and {depth}"
            continue
        found[pc] = depth
        instr = code.instrs[pc]
        if instr.handler >= 0:
            handler = code.handlers[instr.handler]
            assert handler.depth <= depth
            todo.append((handler.target, handler.depth + handler.lasti + 1))
        if instr.target is not None:
            todo.append((instr.target, depth + net_effect(instr, jump=True)))
        after = depth + net_effect(instr)
        assert after >= 0
        if instr.op not in NO_FALL_THROUGH:
            todo.append((pc + 1, after))
    return found
