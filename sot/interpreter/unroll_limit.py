"""The unroll limit: how many iterations of a loop become part of one graph.

A loop with tensor operations is unrolled up to a limit. From then on each backward jump is a break, and the body gets
an entry. If it is known at the first jump that the loop will exceed the limit, that jump is a break already. A loop or
a call that runs for long without tensor operations is left to Python as a whole. Then the capture starts again and
breaks before it (``RestartCapture``). A step of torch.optim loops over its parameters, however many a model has, and is
one graph or none, so only the number of instructions limits it.
"""
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from sot.bytecode.plain_loops import ends_only_at_head, loop_at
from sot.bytecode.resume_origin import origin, source
from sot.guards.assumptions import RestartCapture
from sot.interpreter.torch_ops.data_sizes.counters import step_function
from sot.support.errors import Break, LeftAlone, Reason
from sot.support.settings import WITHOUT_OPERATIONS
from sot.values.base import Lazy, Value
from sot.values.iterators import IteratorValue, StartedRange

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine

WITH_WORK = (torch.Tensor, torch.nn.Module)


class Rounds(NamedTuple):
    """The state of one loop of a frame, when it was last at its head."""

    operations: int         # operations in the graph at that time
    at: int                 # steps of the machine at that time
    done: int = 0           # iterations
    steps: int = 0          # steps of these iterations
    is_plain: bool = True   # whether no iteration had an operation


def enter_loop(m: Machine, frame: Frame, head: int) -> None:
    """Record that a loop begins or starts another iteration. Break if Python has to run the loop."""
    refuse_left(m, frame, head)
    before = frame.rounds.get(head)
    now = Rounds(m.builder.operations, m.steps)
    frame.rounds[head] = before._replace(operations=now.operations, at=now.at) if before else now


def go_around(m: Machine, frame: Frame, head: int) -> None:
    """Record another iteration. Break at the limit."""
    refuse_left(m, frame, head)
    operations = m.builder.operations
    before = frame.rounds.get(head) or Rounds(operations, m.steps)
    rounds = frame.rounds[head] = Rounds(operations, m.steps, before.done + 1, before.steps + m.steps - before.at,
                                         before.is_plain and operations == before.operations)
    limits, of_optimizer = m.unrolling, step_function(m) is not None
    if rounds.is_plain:
        if rounds.steps > (limits.instructions if of_optimizer else min(WITHOUT_OPERATIONS, limits.instructions)):
            raise RestartCapture("a loop runs long without a tensor operation", left_to_python=frozenset(
                {outermost(m), source(frame.native, head)}))
    elif not of_optimizer and (rounds.done > limits.rounds or (
            before and will_exceed(frame, head, limits.rounds - rounds.done))):
        raise Break(Reason.LOOP, f"more than {limits.rounds} times")
    elif m.steps > limits.instructions:
        raise Break(Reason.LOOP, f"for more than {limits.instructions} instructions")


def will_exceed(frame: Frame, head: int, limit: int) -> bool:
    """Whether the loop is sure to have more than ``limit`` further iterations, unless an exception ends it."""
    iterator = frame.stack[-1] if frame.instrs[head].op == "FOR_ITER" else None
    remaining = iterator.remaining() if isinstance(iterator, IteratorValue) else None
    return remaining is not None and remaining > limit and ends_only_at_head(*source(frame.native, head))


def outermost(m: Machine) -> tuple:
    """The place of the outermost loop or call without an operation so far."""
    operations = m.builder.operations
    for frame in m.frames:
        loops = [head for head, rounds in frame.rounds.items() if rounds.is_plain and rounds.done
                 and rounds.operations == operations and source(frame.native, frame.last)[1] in body(frame, head)]
        if loops:
            return source(frame.native, max(loops, key=lambda head: len(body(frame, head))))
        if frame is not m.frames[-1] and frame.mark.graph[1] == operations:
            return source(frame.native, frame.last)
    raise AssertionError("a loop without operations is not in the table of loops")


# ---- calls
def note_call(m: Machine) -> None:
    """Record a call of a Python function. Python runs a call that has neither tensor nor module arguments and runs for
    long without an operation, for example an interpreter of another language, or a solver.
    """
    operations = m.builder.operations
    if m.quiet_since[0] != operations:
        m.quiet_since = operations, m.steps
    elif m.steps - m.quiet_since[1] > WITHOUT_OPERATIONS and not m.assumptions.control_flow and not step_function(m):
        if not operations and not any(isinstance(value, WITH_WORK) for value in m.inputs):
            raise LeftAlone(Reason.TOO_LONG, f"{WITHOUT_OPERATIONS} tensor-free")
        call = call_without_work(m)
        if call is not None:
            raise RestartCapture("a call runs long without a tensor operation", left_to_python=frozenset({call}))
        m.quiet_since = operations, m.steps


def call_without_work(m: Machine) -> tuple | None:
    """The place of the outermost call since the last operation that had neither tensor nor module arguments."""
    for caller, frame in itertools.pairwise(m.frames):
        names = frame.native.co_varnames[:frame.native.co_argcount + frame.native.co_kwonlyargcount]
        if caller.mark.graph[1] == m.builder.operations and not any(
                has_work(frame.locals.get(name)) for name in names):
            return source(caller.native, caller.last)
    return None


def has_work(value: Any) -> bool:
    """Whether it is a tensor or a module. This adds no guard."""
    kind = type(value.real) if isinstance(value, Lazy) else getattr(value, "pytype", object)
    return issubclass(kind, WITH_WORK)


def body(frame: Frame, head: int) -> frozenset[int]:
    return loop_at(*source(frame.native, head))


def refuse_left(m: Machine, frame: Frame, head: int | None = None) -> None:
    """Break at a loop (or at a call, without ``head``) that Python has to run."""
    left = m.assumptions.left_to_python
    if left and source(frame.native, frame.last if head is None else head) in left:
        call = "within a call, " if head is None else ""
        raise Break(Reason.LOOP, f"{call}for long without an operation on tensors", loop=head)


def refuse_varying(m: Machine, frame: Frame, name: str) -> None:
    """Break at a call of a function that works on a structure of which other parts are one object at each call."""
    if m.assumptions.varying_calls and source(frame.native, frame.last) in m.assumptions.varying_calls:
        raise Break(Reason.OPAQUE_VALUE, f"what {name} works on, of which other parts are one object at each call,")


def refuse_started(m: Machine, frame: Frame, iterator: Value) -> None:
    """Break where a loop that began before the frame would be unrolled again. If the frame goes on inside of the body,
    as after a suspension, it takes one element.
    """
    known = origin(frame.native)
    if not isinstance(iterator, StartedRange) or known is None or frame is not m.frames[0]:
        return
    head = source(frame.native, frame.last)[1]
    inside = known.pc in loop_at(known.code, head) and known.pc not in (head, head + 1)
    if iterator.index or not inside:
        raise Break(Reason.OPAQUE_ITERATOR, iterator.pytype.__qualname__)
