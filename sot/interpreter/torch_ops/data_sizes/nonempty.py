"""Branches that only a size of zero decides, such as ``if rows.numel() == 0: continue``.

Capture goes the way of sizes that are not zero, and the graph asserts it. If the assertion fails, Python runs the
frame. If it fails often, it is given up like what torch guesses (``failing_guesses.py``).

A branch that ends a loop is no such branch: it is taken at some time, and until then capture would unroll the loop.
Neither is a branch on a size that follows from one that the same branch has asked for, as in a recursion.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.bytecode.flow import asking, flow_of
from sot.bytecode.resume_origin import source
from sot.guards.assumptions import Part
from sot.interpreter.torch_ops.data_sizes import graph_numbers

if TYPE_CHECKING:
    from sot.guards.assumptions import Point
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine
    from sot.values.deferred_scalars import DeferredScalar


def truth_if_nonempty(m: Machine, value: DeferredScalar) -> bool | None:
    """The truth of a number if no size is zero, with its assertion; None if that does not decide it."""
    frame = m.frames[-1]
    if not value.is_in_graph or not graph_numbers.may_be(m) or Part.EMPTY in m.assumptions.plain:
        return None
    if ends_loop(frame):
        return None
    truth = graph_numbers.as_truth(m, value).graph_number(m)
    if not isinstance(truth.fake, torch.SymBool) or (found := m.symbols.data.if_nonempty(truth.fake)) is None:
        return None
    sizes = m.symbols.data.symbols_of(truth.fake)
    if repeats(m, frame, sizes):
        return None
    text = f"{m.symbols.data.text_of(m.symbols.torch.expression(truth.fake))} is {found}"
    graph_numbers.note_guess(m, "a branch", text, sizes)
    graph_numbers.check(m, truth, found, text)
    m.refusals.note(m)
    return found


def ends_loop(frame: Frame) -> bool:
    """Whether the jump leaves a loop, or no jump asks: what the truth decides is then unknown."""
    at = asking(frame.instrs, frame.last)
    flow = flow_of(frame.native)
    return "JUMP_IF" not in frame.instrs[at].op or any(
        flow.leaves(loop, flow.place[at]) for loop in flow.loops.values())


def repeats(m: Machine, frame: Frame, sizes: set[Any]) -> bool:
    """Whether this branch was decided before by sizes that these follow from. Notes that it is decided by these.

    A helper that the program calls from two places has a branch in each. A loop calls it from one place, and so does
    a recursion, in a round that begins where the one before did.
    """
    before = m.symbols.nonempty.setdefault(way_to(m, frame), set())
    if any(before & m.symbols.made_from.get(size, set()) for size in sizes):
        return True
    before |= sizes
    return False


def way_to(m: Machine, frame: Frame) -> tuple[Point, ...]:
    """The places at which the frames up to this one are: of each code the last one, so a recursion has few ways."""
    places: dict[Any, Point] = {}
    for caller in m.frames[:m.frames.index(frame) + 1]:
        code, at = source(caller.native, caller.last)
        places[code] = code, at
    return (*places.values(),)
