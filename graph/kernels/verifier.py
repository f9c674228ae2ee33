"""The rules that a program satisfies after lowering and after every pass over it.

SOT_VERIFY=1 checks them in ``schedule``; tests set it. A failure names the pass and the step.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sot.graph.kernels import ir
from sot.graph.kernels.ir import InvalidKernel
from sot.graph.kernels.memory import MemoryPlan, added_to, is_in_place, planned, shared
from sot.graph.kernels.program import Effect, Extern, Group, Program, Step, effects_of, views
from sot.graph.kernels.sized import mapped
from sot.graph.kernels.sizes import typical
from sot.support.settings import is_on

VERIFIES = is_on("SOT_VERIFY", False)


class InvalidProgram(ValueError):
    """A program breaks a rule. The message has the pass and the step."""


def check(program: Program, effects: Sequence[Effect], after: str) -> None:
    """Verify the result of a pass, if verification is on.

    Arguments:
        effects: the effects of the lowered program.
        after: the name of the pass.
    """
    if not VERIFIES:
        return
    try:
        verify(program, effects)
        for kernel in program.kernels():
            ir.verify(mapped(kernel, typical))
    except (InvalidKernel, InvalidProgram) as error:
        raise InvalidProgram(f"after {after}: {error}") from error


def verify(program: Program, effects: Sequence[Effect] | None = None) -> None:
    """Raise InvalidProgram unless each buffer is written before it is read, inputs are changed only after their last
    reader, and the steps with effects are those of the lowered program, in its order.
    """
    given, changed = {*program.inputs, *program.constants}, set[str]()
    known = set(given)
    for step in program.steps:
        for name in step.read():
            if not {name, *program.buffers[name].alias} & known:
                raise InvalidProgram(f"{name} is read before it is written:\n{step}")
            if name in changed:
                raise InvalidProgram(f"{name} is read after it has been changed:\n{step}")
        known |= step.written()
        changed |= step.written() & given
    for view in views(program.outputs):
        if not {view.buffer, *program.buffers[view.buffer].alias} & known:
            raise InvalidProgram(f"{view.buffer} is a result, but nothing writes it")
    found = effects_of(program)
    if effects is not None and found != list(effects):
        raise InvalidProgram(f"the effects {[*map(str, effects)]} became {[*map(str, found)]}")


# ---- memory ----------------------------------------------------------------------------------------------
def verify_memory(program: Program, plan: MemoryPlan | None = None) -> None:
    """Raise InvalidProgram unless every buffer that a step reads still has its memory."""
    plan = plan or planned(program)
    taken: dict[str, str] = {}      # a buffer that has lost its memory, and the one that has it now
    for step in program.steps:
        _require_memory(step.read(), taken, program, step)
        for name in sorted(step.written() & plan.reused.keys()):
            donor = plan.reused[name]
            if taken.get(donor) == name:
                continue        # a further change of the buffer
            if donor in taken or donor in program.kept():
                raise InvalidProgram(f"{name} cannot have the memory of {donor}, which is in use:\n{step}")
            if donor in step.read() and not _in_place(donor, name, step, program):
                raise InvalidProgram(f"{name} overwrites {donor} while that is read:\n{step}")
            taken[donor] = name
    _require_memory({v.buffer for v in views(program.outputs)}, taken, program, "the results")


def _require_memory(names: Any, taken: dict[str, str], program: Program, where: Step | str) -> None:
    for name in names:
        for one in shared(name, program.buffers) & taken.keys():
            raise InvalidProgram(f"{one} is read, but {taken[one]} has its memory:\n{where}")


def _in_place(old: str, new: str, step: Step, program: Program) -> bool:
    """Whether only the kernel that stores the new buffer reads the old one, and each element before it is replaced."""
    if isinstance(step, Extern):
        return added_to(step, program) == old
    together = step.kernels if isinstance(step, Group) else (step,)
    return all(is_in_place(old, new, k) if new in k.written() else old not in k.buffers for k in together)
