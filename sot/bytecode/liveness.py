"""Liveness: which variables may still be read after an instruction."""
from __future__ import annotations

from types import CodeType

from sot.bytecode.decode import VERSION, decode
from sot.bytecode.instr import NO_FALL_THROUGH, Instr
from sot.bytecode.resume_origin import argument_count, cells_of, per_place, source
from sot.bytecode.stack_effects import net_effect

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


# ---- the dict of locals() -----------------------------------------------------------------------------------
RETURN_LOCALS = frozenset({"locals", "vars", "dir"})    # without arguments


def shares_locals(code: CodeType) -> bool:
    """Whether a function may use the dict of its variables more than once.

    Since 3.13 each use has its own dict. Before, there is one for a frame, which each use brings up to date. A frame
    that is left and continued by resume code would have several.
    """
    if not VERSION.ONE_LOCALS_DICT:
        return False
    instrs = decode(code).instrs
    uses = [pc for pc in range(len(instrs)) if is_use(instrs, pc)]
    return len(uses) > 1 or bool(uses) and is_in_loop(instrs, uses[0])


def is_use(instrs: list[Instr], pc: int) -> bool:
    instr = instrs[pc]
    if instr.op not in ("LOAD_GLOBAL", "LOAD_NAME") or instr.arg not in SEES_ALL_LOCALS:
        return False
    count = arguments_of(instrs, pc)
    return count is None or count < (1 if instr.arg in RETURN_LOCALS else 2)


def arguments_of(instrs: list[Instr], pc: int) -> int | None:
    """The number of arguments with which what an instruction loads is called, or None if it is not plain."""
    depth = 0
    for instr in instrs[pc + 1 + (instrs[pc + 1].op == "PUSH_NULL"):]:
        if instr.target is not None or instr.op in NO_FALL_THROUGH:
            return None
        depth += net_effect(instr)
        if depth < 0:
            return instr.arg[0] if instr.op == "CALL" else None
    return None


def is_in_loop(instrs: list[Instr], pc: int) -> bool:
    return any(instr.target is not None and instr.target <= pc < at for at, instr in enumerate(instrs))
