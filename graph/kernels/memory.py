"""Plans memory: which buffers reuse the memory of others, and the greatest number of allocated bytes.

A buffer that a kernel fills may reuse the memory of one of the same kind if that one's last reader has run. The last
reader may be this very kernel, if it reads each element where it stores the new one. A call that adds a product to a
buffer does so in its memory. Only memory that the program has allocated is reused, never that of an input, a constant,
or a result that an operator may have passed on.
"""
from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

import torch

from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.program import Buffer, Extern, Group, Program, Step
from sot.graph.kernels.sizes import typical

# Operators whose results have new memory, and are often the largest.
FRESH = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution",
                   "aten::_addmm_activation"))
# Operators that add to their first argument. They have a variant that does so in its memory.
ADDING = frozenset((torch.ops.aten.addmm.default, torch.ops.aten.baddbmm.default))


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """``reused`` maps a buffer to the one whose memory it takes. ``peak`` is in bytes, without the inputs."""

    reused: dict[str, str]
    peak: int
    without: int        # the peak without reuse


def planned(program: Program) -> MemoryPlan:
    """When each buffer is allocated and freed, in the order of the steps."""
    last, owned = last_uses(program), set(program.inputs) | program.constants.keys()
    gone: dict[int, list[str]] = defaultdict(list)
    for name, number in last.items():
        gone[number].append(name)
    reused: dict[str, str] = {}
    spare: list[str] = []
    for number, step in enumerate(program.steps):
        ending = [n for n in gone[number] if is_own(n, program)]
        for name in made_by(step, owned):
            if (donor := found(name, step, spare, ending, program)) is not None:
                reused[name] = donor
                (spare if donor in spare else ending).remove(donor)
            owned.add(name)
        spare += [n for n in ending if n not in reused.values()]
    return MemoryPlan(reused, peak(program, last, reused), peak(program, last, {}))


def made_by(step: Step, known: set[str]) -> list[str]:
    """The buffers that a step makes."""
    made = step.written() - known
    return [n for n in (step.outputs if isinstance(step, Extern) else step.buffers) if n and n in made]


def last_uses(program: Program) -> dict[str, int]:
    """The last step that needs each buffer, directly or through shared memory. Results of the program are excluded."""
    last: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        for name in step.read() | step.written():
            for one in shared(name, program.buffers):
                last[one] = number
    kept = {one for name in program.kept() for one in shared(name, program.buffers)}
    return {name: number for name, number in last.items() if name not in kept}


def shared(name: str, buffers: dict[str, Buffer]) -> set[str]:
    """The buffer, and all buffers whose memory it may share."""
    found, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += buffers[one].alias if one in buffers else ()
    return found


def is_own(name: str, program: Program) -> bool:
    """Whether it is memory that the program has allocated and that nothing else views."""
    if name in program.inputs or name in program.constants or any(name in b.alias for b in program.buffers.values()):
        return False
    maker: Any = next(s for s in program.steps if name in s.written())
    if isinstance(maker, Extern):
        schema = getattr(maker.target, "_schema", None)
        return schema is not None and schema.name in FRESH
    return True


def found(name: str, step: Step, spare: list[str], ending: list[str], program: Program) -> str | None:
    """The memory for a result: that of a buffer with its last read here. For a kernel's also that of a free one."""
    buffer = program.buffers[name]
    if isinstance(step, Extern):
        return donor if (donor := added_to(step, program)) in ending else None
    together = step.kernels if isinstance(step, Group) else (step,)
    maker = next(k for k in together if name in k.written())
    here = [n for n in ending if is_in_place(n, name, maker) and not any(
        n in k.buffers for k in together if k is not maker)]
    return next((n for n in (*here, *reversed(spare)) if is_alike(program.buffers[n], buffer)), None)


def added_to(step: Extern, program: Program) -> str | None:
    """The buffer that a call adds to, if it is like the result and not a factor as well."""
    if type(step) is not Extern or step.target not in ADDING:
        return None
    first, *factors = step.args
    buffer, result = program.buffers[first.buffer], program.buffers[str(step.outputs[0])]
    fits = first == buffer.view() and is_alike(buffer, result) and all(v.buffer != buffer.name for v in factors)
    return buffer.name if fits else None


def is_alike(a: Buffer, b: Buffer) -> bool:
    return (a.dtype, a.shape, a.strides, a.device) == (b.dtype, b.shape, b.strides, b.device)


def is_in_place(old: str, new: str, kernel: Kernel) -> bool:
    """Whether each program of the kernel reads the old buffer only at the places where it stores the new one."""
    if (kernel.reduced and not kernel.is_tiled) or old in kernel.written() or old not in kernel.buffers:
        return False
    places = {s.index for s in kernel.stores if s.buffer == new and s.how == "store"}
    return len(places) == 1 and {s.index for s in kernel.loads() if s.buffer == old} == places


def peak(program: Program, last: dict[str, int], reused: dict[str, str]) -> int:
    """The greatest number of bytes that are allocated at a time, for results and intermediate values."""
    given = set(program.inputs) | program.constants.keys()
    alive: dict[str, int] = {}
    most = 0
    for number, step in enumerate(program.steps):
        for name in made_by(step, given):
            buffer = program.buffers[name]
            given.add(name)
            if not buffer.alias:
                if name in reused:
                    alive.pop(reused[name], None)
                alive[name] = typical(buffer.extent) * buffer.dtype.itemsize
        most = max(most, sum(alive.values()))
        donors = set(reused.values())
        for name in [n for n in alive if last.get(n) == number and not _waits(n, donors, number, reused, program)]:
            del alive[name]
    return most


def _waits(name: str, donors: set[str], number: int, reused: dict[str, str], program: Program) -> bool:
    """Whether the memory is reserved for a later buffer."""
    return name in donors and not any(
        reused.get(made) == name for step in program.steps[:number + 1] for made in step.written())
