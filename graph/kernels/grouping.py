"""Small kernels that have nothing to do with each other, launched as one: the steps of an optimizer, say.

A group is one launch: its programs are shared out among the kernels. What a kernel reads and writes stays as it is, so
no memory traffic is saved, but launches are, of which each costs as much as moving some megabytes.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.program import Group, Program, Step

LARGEST = 1 << 22       # elements of a kernel: beyond, it fills a GPU on its own
BUFFERS = 120           # of a group at most
MEMBERS = 32


def grouped(program: Program) -> Program:
    """The program with kernels that need not wait for each other in groups."""
    steps: list[Step] = []
    for step in program.steps:
        place = partner(step, steps, program) if fits(step) else None
        if place is None:
            steps.append(step)
        else:
            steps[place] = joined(steps[place], step)
    return dataclasses.replace(program, steps=steps)


def fits(step: Step) -> bool:
    """Is it an elementwise kernel that is not large?  Others differ too much in how they are cut into blocks."""
    kernels = members(step)
    return bool(kernels) and all(not k.reduced and 1 <= k.row_count <= LARGEST for k in kernels)


def members(step: Step) -> tuple[Kernel, ...]:
    return step.kernels if isinstance(step, Group) else (step,) if isinstance(step, Kernel) else ()


def joined(first: Step, second: Step) -> Group:
    return Group((*members(first), *members(second)))


def partner(step: Step, steps: Sequence[Step], program: Program) -> int | None:
    """The first step, of those behind the last that this one needs, with which it may be one launch."""
    start = 1 + max((i for i, other in enumerate(steps) if conflict(other, step, program)), default=-1)
    for i in range(start, len(steps)):
        if fits(steps[i]) and is_one_launch(steps[i], step, program):
            return i
    return None


def conflict(first: Step, second: Step, program: Program) -> bool:
    """Must they run in this order?  One writes memory that the other reads or writes."""
    def memory(names: frozenset[str]) -> set[str]:
        return {one for name in names for one in (name, *program.buffers[name].alias)}
    return bool(memory(first.written()) & memory(second.read() | second.written())
                or memory(first.read()) & memory(second.written()))


def is_one_launch(first: Step, second: Step, program: Program) -> bool:
    kernels = (*members(first), *members(second))
    buffers = {name for kernel in kernels for name in kernel.buffers}
    devices = {program.buffers[name].device for name in buffers}
    checked = {any(s.op == "inside" for s in k.body) for k in kernels}      # these are compiled otherwise
    return (len(kernels) <= MEMBERS and len(buffers) <= BUFFERS and len(devices) == 1 and len(checked) == 1
            and sum(k.row_count for k in kernels) <= LARGEST)
