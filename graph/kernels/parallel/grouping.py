"""Groups small independent kernels into one launch, for example those of an optimizer's step.

The programs of the launch are divided among the kernels. Each kernel reads and writes the same memory as before, so
this saves no memory traffic. It saves launches, each of which costs as much as moving some megabytes.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.program import Group, Program, Step
from sot.graph.kernels.sizes import typical

LARGEST = 1 << 22       # elements of a kernel; a larger one fills a GPU on its own
BUFFERS = 120           # limit for a group
MEMBERS = 32


def grouped(program: Program) -> Program:
    """The program with independent kernels in groups."""
    steps: list[Step] = []
    for step in program.steps:
        place = partner(step, steps, program) if fits(step) else None
        if place is None:
            steps.append(step)
        else:
            steps[place] = joined(steps[place], step)
    return dataclasses.replace(program, steps=steps)


def fits(step: Step) -> bool:
    """Whether it is a small elementwise kernel. Others are cut into blocks too differently."""
    kernels = members(step)
    return bool(kernels) and all(not k.reduced and 1 <= typical(k.row_count) <= LARGEST for k in kernels)


def members(step: Step) -> tuple[Kernel, ...]:
    return step.kernels if isinstance(step, Group) else (step,) if isinstance(step, Kernel) else ()


def joined(first: Step, second: Step) -> Group:
    return Group((*members(first), *members(second)))


def partner(step: Step, steps: Sequence[Step], program: Program) -> int | None:
    """The first step, after the last one that this step needs, that it can share a launch with."""
    start = 1 + max((i for i, other in enumerate(steps) if conflict(other, step, program)), default=-1)
    for i in range(start, len(steps)):
        if fits(steps[i]) and is_one_launch(steps[i], step, program):
            return i
    return None


def conflict(first: Step, second: Step, program: Program) -> bool:
    """Whether they must run in this order: one writes memory that the other reads or writes. Both may add to it."""
    both = added(first) & added(second)

    def memory(names: Iterable[str]) -> set[str]:
        return {one for name in names for one in (name, *program.buffers[name].alias)}
    return bool(memory(first.written()) & memory((second.read() | second.written()) - both)
                or memory(first.read() - both) & memory(second.written()))


def added(step: Step) -> set[str]:
    """The buffers that it only adds to."""
    kernels = members(step)
    stores = [s for k in kernels for s in k.stores]
    others = {s.buffer for s in stores if s.how != "add"}.union(*({s.buffer for s in k.loads()} for k in kernels))
    return {s.buffer for s in stores} - others


def is_one_launch(first: Step, second: Step, program: Program) -> bool:
    kernels = (*members(first), *members(second))
    buffers = {name for kernel in kernels for name in kernel.buffers}
    devices = {program.buffers[name].device for name in buffers}
    checked = {any(s.op == "inside" for s in k.body) for k in kernels}      # these are compiled differently
    return (len(kernels) <= MEMBERS and len(buffers) <= BUFFERS and len(devices) == 1 and len(checked) == 1
            and sum(typical(k.row_count) for k in kernels) <= LARGEST)
