"""How often a loop goes around, and when that is enough.

A loop with operations on tensors is unrolled up to a limit; then each backward jump is a break, and the body is an
entry of its own. A loop, or a call, that goes on for long without any is left to Python as a whole: capture begins
again, and breaks before it (``RestartCapture``).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sot.bytecode.plain_loops import loop_at
from sot.bytecode.resume_origin import source
from sot.guards.assumptions import RestartCapture
from sot.support.errors import Break, Reason
from sot.support.limits import WITHOUT_OPERATIONS

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine


class Rounds(NamedTuple):
    """Of one loop of a frame, when it was at its head the last time."""

    operations: int         # of the graph, then
    at: int                 # the machine's steps, then
    done: int = 0           # rounds
    steps: int = 0          # that they took
    is_plain: bool = True   # has no round had an operation?


def enter_loop(m: Machine, frame: Frame, head: int) -> None:
    """Note that a loop begins, or goes on with another round; a break if it is Python's."""
    refuse_left(m, frame, head)
    before = frame.rounds.get(head)
    now = Rounds(m.builder.operations, m.steps)
    frame.rounds[head] = before._replace(operations=now.operations, at=now.at) if before else now


def go_around(m: Machine, frame: Frame, head: int) -> None:
    """Note one more round; a break if there have been enough."""
    refuse_left(m, frame, head)
    operations = m.builder.operations
    before = frame.rounds.get(head) or Rounds(operations, m.steps)
    rounds = frame.rounds[head] = Rounds(operations, m.steps, before.done + 1, before.steps + m.steps - before.at,
                                         before.is_plain and operations == before.operations)
    limits = m.unrolling
    if rounds.is_plain:
        if rounds.steps > min(WITHOUT_OPERATIONS, limits.instructions):
            raise RestartCapture("a loop has no operation on tensors for long", left_to_python=frozenset(
                {outermost(m), source(frame.native, head)}))
    elif rounds.done > limits.rounds:
        raise Break(Reason.LOOP, f"more than {limits.rounds} times")
    elif m.steps > limits.instructions:
        raise Break(Reason.LOOP, f"for more than {limits.instructions} instructions")


def outermost(m: Machine) -> tuple:
    """The place of the outermost loop or call that has had no operation so far."""
    operations = m.builder.operations
    for frame in m.frames:
        loops = [head for head, rounds in frame.rounds.items() if rounds.is_plain and rounds.done
                 and rounds.operations == operations and source(frame.native, frame.last)[1] in body(frame, head)]
        if loops:
            return source(frame.native, max(loops, key=lambda head: len(body(frame, head))))
        if frame is not m.frames[-1] and frame.mark.graph[1] == operations:
            return source(frame.native, frame.last)
    raise AssertionError("a loop without operations is not among the loops")


def body(frame: Frame, head: int) -> frozenset[int]:
    return loop_at(*source(frame.native, head))


def refuse_left(m: Machine, frame: Frame, head: int | None = None) -> None:
    """A break at a loop, or without ``head`` at a call, that has been found to be Python's."""
    left = m.assumptions.left_to_python
    if left and source(frame.native, frame.last if head is None else head) in left:
        call = "within a call, " if head is None else ""
        raise Break(Reason.LOOP, f"{call}for long without an operation on tensors", loop=head)
