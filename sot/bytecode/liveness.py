"""Liveness: which variables may still be read after an instruction."""
from __future__ import annotations

from types import CodeType

from sot.bytecode.decode import decode
from sot.bytecode.instr import NO_FALL_THROUGH
from sot.bytecode.resume_origin import argument_count, cells_of, per_place, source

SEES_ALL_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})
SHOWS_FRAMES = frozenset({"breakpoint", "set_trace", "_getframe", "currentframe"})


def live_names(code: CodeType, pc: int) -> frozenset[str]:
    """The local variables (no cells) whose values may be read from `pc` on."""
    code, pc = source(code, pc)
    return _live_names(code, 0)[pc]


def bound_names(code: CodeType, pc: int) -> frozenset[str]:
    """The local variables (no cells) that have a value at `pc` on every path to it."""
    code, pc = source(code, pc)
    return _bound_names(code, 0)[pc]


@per_place
def _bound_names(code: CodeType, _: int) -> list[frozenset[str]]:
    """For each instruction, the variables that are set on all paths to it. This is a forward data flow."""
    decoded = decode(code)
    instrs, everything = decoded.instrs, frozenset(code.co_varnames) - {*cells_of(code)}
    bound = [everything] * (len(instrs) + 1)
    bound[0] = frozenset(code.co_varnames[:argument_count(code)]) & everything
    changed = True
    while changed:
        changed = False
        for pc, instr in enumerate(instrs):
            after = bound[pc]
            if instr.op == "STORE_FAST":
                after |= {instr.arg}
            elif instr.op in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
                after -= {instr.arg}
            targets = [] if instr.op in NO_FALL_THROUGH else [(pc + 1, after)]
            if instr.target is not None:
                targets.append((instr.target, after))
            if instr.handler >= 0:
                targets.append((decoded.handlers[instr.handler].target, bound[pc] & after))
            for target, names in targets:
                changed |= not bound[target] <= names
                bound[target] &= names
    return bound


def read_cells(code: CodeType, pc: int) -> frozenset[str]:
    """The cell variables that the code itself may read from `pc` on before it sets them. Reading one without a value
    raises UnboundLocalError in the user's code. Step and resume code would raise another error, because there the
    variables are free variables.
    """
    code, pc = source(code, pc)
    return _liveness(code, 0, frozenset(code.co_cellvars))[pc]


@per_place
def _live_names(code: CodeType, _: int) -> list[frozenset[str]]:
    names = frozenset(code.co_varnames) - {*cells_of(code)}
    sees_all = not SHOWS_FRAMES.isdisjoint(code.co_names) or any(
        i.op in ("LOAD_GLOBAL", "LOAD_NAME") and i.arg in SEES_ALL_LOCALS for i in decode(code).instrs)
    return _liveness(code, 0, names, names if sees_all else names & {super_argument(code)})


@per_place
def _liveness(code: CodeType, _: int, names: frozenset[str], always: frozenset[str] = frozenset()
              ) -> list[frozenset[str]]:
    """For each instruction, the names that may be read later. This is a backward data flow, along jumps and into
    handlers.
    """
    decoded = decode(code)
    instrs = decoded.instrs
    live = [always] * (len(instrs) + 1)
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(len(instrs))):
            instr = instrs[pc]
            before = always if instr.op in NO_FALL_THROUGH else live[pc + 1]
            if instr.target is not None:
                before |= live[instr.target]
            if instr.op in ("STORE_FAST", "STORE_DEREF"):
                before -= {instr.arg}
            elif instr.op in ("LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "LOAD_DEREF", "DELETE_DEREF"):
                before |= names & {instr.arg}
            if instr.handler >= 0:
                before |= live[decoded.handlers[instr.handler].target]
            before |= always
            changed |= before != live[pc]
            live[pc] = before
    return live


def super_argument(code: CodeType) -> str | None:
    """The argument that `super()` without arguments uses: the first local variable of the frame."""
    implicit = "__class__" in code.co_freevars and "super" in code.co_names and code.co_argcount
    return code.co_varnames[0] if implicit else None
