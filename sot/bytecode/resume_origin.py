"""Maps a resume function to the user's code that it continues, and its instructions to those of that code.

A resume function may break again. Its breaks count as breaks of the user's code, so there is one resume function for
each place and layout, however often the user's function breaks.
"""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from sot.bytecode.code_table import CodeTable
from sot.bytecode.decode import decode
from sot.bytecode.instr import Instr

if TYPE_CHECKING:
    from sot.bytecode.frame_layout import Layout

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(eq=False)
class Origin:
    """The last constant of resume and composed code: the code that it continues, and the instruction to continue from.
    For composed code `pc` is that of the call. The reference is weak: the entries of that code keep the resume code
    alive, and Python's garbage collector does not traverse code objects.
    """

    of: weakref.ref[CodeType]
    pc: int
    layout: Layout
    next_pc: int | None = None      # of composed code, and whether the result of the call is pushed
    keep: bool = True
    places: list[int] = field(default_factory=list)  # for each instruction of resume code, the index of the original

    @property
    def code(self) -> CodeType:
        return alive(self.of)


def alive(reference: weakref.ref[CodeType]) -> CodeType:
    """The code of a reference. The caller knows that it is alive."""
    code = reference()
    assert code is not None
    return code


def origin(code: CodeType) -> Origin | None:
    last = code.co_consts[-1] if code.co_consts else None
    return last if isinstance(last, Origin) and last.of() is not None else None


def source(code: CodeType, pc: int) -> tuple[CodeType, int]:
    """The place in the user's code that corresponds to a place in resume code."""
    known = origin(code)
    if known is None:
        return code, pc
    if not known.places:
        known.places = _places(decode(known.code).instrs, decode(code).instrs)
    return known.code, known.places[pc]


def place_of_call(code: CodeType, pc: int, next_pc: int, keep: bool) -> tuple[CodeType, int, int, bool]:
    """The place of a call in the user's code, the next instruction, and whether the result is pushed. The call at the
    start of composed code stands for the call in the user's code.
    """
    known = origin(code)
    if known is None:
        return code, pc, next_pc, keep
    prologue = len(decode(code).instrs) - len(decode(known.code).instrs) + body_start(known.code)
    if known.next_pc is not None and pc < prologue:
        return known.code, known.pc, known.next_pc, known.keep
    return known.code, source(code, pc)[1], source(code, next_pc)[1], keep


def _places(original: list[Instr], copy: list[Instr]) -> list[int]:
    """The user's instruction for each instruction of the copy. Both lists end in the same way. Before 3.13, however,
    resume code has an additional FORMAT_SIMPLE after each CONVERT_VALUE behind which it starts.
    """
    places, at = [], len(original) - 1
    for instr in reversed(copy):
        places.append(at)
        at -= instr.op == original[at].op
    return places[::-1]


def per_place(function: F) -> F:
    """Cache a function of (code, pc, ...) by the identity of the user's code, because equal code may come from
    different files. The cached result must not keep the code alive.
    """
    cache: CodeTable[dict[Any, Any]] = CodeTable(lambda code: {})

    @functools.wraps(function)
    def at(code: CodeType, pc: int, *args: Any) -> Any:
        code, pc = source(code, pc)
        known, key = cache.of(code), (pc, *args)
        if key not in known:
            known[key] = function(code, pc, *args)
        return known[key]

    return at  # type: ignore[return-value]


def cells_of(code: CodeType) -> tuple[str, ...]:
    return code.co_cellvars + code.co_freevars


def argument_count(code: CodeType) -> int:
    """The number of ``co_varnames`` that are parameters."""
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def body_start(code: CodeType) -> int:
    """The index where the body starts. The instructions before it set up cells and the generator."""
    return next(n for n, instr in enumerate(decode(code).instrs) if instr.op == "RESUME") + 1


def whole_code(code: CodeType) -> CodeType:
    """The user's function that this code continues after a break, or the code itself."""
    while (rest_of := origin(code)) is not None:
        code = rest_of.code
    return code
