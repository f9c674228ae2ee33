"""Branches on tensors as part of the graph.

At a jump that depends on a tensor's value, both sides are executed. Each starts from the same state of the machine,
fills a subgraph, and stops where all paths meet (``sot/bytecode/flow.py``): at an instruction of the frame, or at its
return. Then the two states are merged (``merge_values.py``), and one ``torch.cond`` yields the tensors that differ. A
side that raises becomes an assertion. If the assertion fails when the graph runs, the graph raises. Then Python runs
the frame from its start and raises the program's exception (see ``failures.py``).

The journal undoes the mutations of each side. Output and changes outside of the machine's state are refused
(``Refusal``). The jump is then a break, and its message names the reason. ``loops.py`` does the same for loops whose
end depends on a tensor.
"""
from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

from sot.bytecode.flow import Flow, flow_of, ways
from sot.graph import NumberRef
from sot.graph.builder import has_changed
from sot.graph.regions import Region
from sot.guards.assumptions import Point
from sot.interpreter.control_flow import loops, random_branches
from sot.interpreter.control_flow.join import at, join, refuse_symbols, settle_truth
from sot.interpreter.control_flow.predicates import assert_tensor
from sot.interpreter.control_flow.speculate import (
    ARRIVED,
    RAISED,
    RETURNED,
    End,
    Refusal,
    Start,
    Way,
    follow,
)
from sot.interpreter.frame import Frame
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.objects import ExceptionValue
from sot.values.tensor import TensorBool, TensorValue
from sot.values.text import varies

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


# ---- the two sides of a jump ---------------------------------------------------------------------------------------
def jump(m: Machine, frame: Frame, test: TensorBool) -> Any:
    """Execute both sides of the current conditional jump."""
    flow, pc = flow_of(frame.native), frame.last
    point: Point = frame.native, pc
    if random_branches.goes_on(frame, pc) and not m.assumptions.control_flow:
        return drawn(m, frame, flow, test, point)
    if not m.assumptions.control_flow or isinstance(test.ref, NumberRef):
        return assertion(m, frame, test, sides_of(frame))
    if (why := m.assumptions.refused.get(point)) is not None:
        raise Break(Reason.BRANCH, f"{why}, after {at(point)}")
    start = Start(m, frame)
    try:
        return take(m, frame, flow, test, sides_of(frame))
    except Refusal as e:
        start.restore()
        raise Break(Reason.BRANCH, f"{e}, in {at(point)}") from None


def drawn(m: Machine, frame: Frame, flow: Flow, test: TensorBool, point: Point) -> Any:
    """The same where a random number decides, as Python's ``if``."""
    place = flow.place[frame.last]
    loop = flow.loop(place)
    try:
        if loop is not None and flow.leaves(loop, place) and not flow.is_iteration(loop):
            raise Refusal("the end of a loop depends on a random number")
        return branch(m, frame, flow, test, sides_of(frame), is_plain=True)
    except Refusal as e:
        random_branches.restart(test, point, str(e))


def sides_of(frame: Frame) -> list[Way]:
    jump = frame.instrs[frame.last]
    keeps = jump.op.startswith("JUMP_IF")      # the value stays on the stack if the jump is taken
    rest = frame.stack[:-1] if keeps else frame.stack
    return [Way(p, frame.stack if keeps and p == jump.target else rest) for p in ways(frame.instrs, frame.last)]


def assertion(m: Machine, frame: Frame, test: TensorBool, sides: list[Way]) -> None:
    """Where branches are breaks, a branch with one side that always raises is no break. If that side is taken, Python
    runs the frame from its start. So from here on every change must be undone before that.
    """
    flow = flow_of(frame.native)
    which = [flow.place[way.pc] in flow.unraised for way in sides].index(True)
    check(m, test, which == 0, "the way that was captured is not taken")
    m.refusals.note(m)
    frame.pc, frame.stack = sides[which].pc, list(sides[which].stack)


def take(m: Machine, frame: Frame, flow: Flow, test: TensorBool, sides: list[Way]) -> Any:
    place = flow.place[frame.last]
    for i, way in enumerate(sides):
        if flow.place[way.pc] not in flow.returning and raises(m, frame, test, way, i == 0):
            frame.pc, frame.stack = sides[1 - i].pc, list(sides[1 - i].stack)
            return None
    refuse_symbols(m)       # an assertion has no subgraph
    loop = flow.loop(place)
    if frame.loop is not None and flow.leaves(frame.loop.body, place):
        return loops.leave(m, frame, flow, test, sides)
    if loop is not None and flow.leaves(loop, place) and not flow.is_iteration(loop):
        start = Start(m, frame)
        try:
            return loops.run(m, frame, flow, test, sides, loop)
        except loops.NoLoop:
            start.restore()
    return branch(m, frame, flow, test, sides)


def raises(m: Machine, frame: Frame, test: TensorBool, way: Way, when: bool) -> bool:
    """If one side raises, assert that it is not taken."""
    region = Region(m.builder)
    end = follow(m, frame, way, frozenset(), region, frame.loop)
    if end.kind != RAISED:
        return False
    check(m, test, not when, end.text, end.value)
    return True


def check(m: Machine, test: TensorBool, holds: bool, text: str, raised: Value | None = None) -> None:
    """An assertion node. It raises torch's RuntimeError. Python then runs the frame again and raises the program's
    exception. If inputs have been changed, Python cannot run the frame again. Then the exception ``raised`` of the
    other side replaces torch's, if it consists of constants.
    """
    if (isinstance(raised, ExceptionValue) and raised.real is ABSENT and all(isinstance(a, Const) for a in raised.args)
            and (has_changed(m.builder) or not any(map(varies, raised.args)))
            and not isinstance(inspect.getattr_static(raised.pytype, "__init__"), FunctionType)):
        m.asserted[text] = raised.pytype, tuple(a.constant() for a in raised.args)
    if isinstance(test.ref, NumberRef):
        return graph_numbers.check(m, test.ref, holds, text)
    return assert_tensor(m, TensorValue(test.ref), holds, text)


def branch(m: Machine, frame: Frame, flow: Flow, test: TensorBool, sides: list[Way], is_plain: bool = False) -> Any:
    """Execute both sides up to the place where they meet, or to the frame's return if an exception leads past that
    place. ``is_plain``: see ``random_branches.py``.
    """
    loop = frame.loop
    place = flow.meeting(flow.place[frame.last], *((loop.body, loop.latch) if loop else ()))
    ends, regions = both(m, frame, sides, loops.arrivals(flow, place), is_plain)
    for end in ends:
        loops.pass_test(flow, end, place)
    if is_plain and RAISED in [e.kind for e in ends]:
        raise Refusal("one side raises an exception")
    if {e.kind for e in ends} == {ARRIVED, RETURNED}:
        if loop is not None:
            raise Refusal(f"{m.position()}: one side leaves the loop by an exception and returns")
        ends, regions = both(m, frame, sides, frozenset(), is_plain)
    kinds = [e.kind for e in ends]
    if RAISED in kinds:
        return one_raises(m, frame, test, sides, ends)
    if not is_plain:
        settle_truth(m, flow, ends, regions)
    return join(m, frame, test, ends, regions, loops.needed(frame, ends))


def both(m: Machine, frame: Frame, sides: list[Way], stops: frozenset[int],
         is_plain: bool) -> tuple[list[End], list[Region]]:
    regions = [Region(m.builder, is_plain), Region(m.builder, is_plain)]
    ends = [follow(m, frame, way, stops, region, frame.loop) for way, region in zip(sides, regions, strict=True)]
    if is_plain and any(region.has_reshaped() for region in regions):
        raise Refusal("an operation in place changes more than the elements of a tensor")
    return ends, regions


def one_raises(m: Machine, frame: Frame, test: TensorBool, sides: list[Way], ends: list[End]) -> None:
    if all(e.kind == RAISED for e in ends):
        raise Refusal("both sides raise an exception")
    which = [e.kind for e in ends].index(RAISED)
    check(m, test, which == 1, ends[which].text, ends[which].value)
    frame.pc, frame.stack = sides[1 - which].pc, list(sides[1 - which].stack)
