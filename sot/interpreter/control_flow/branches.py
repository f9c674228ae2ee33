"""Branches on tensors as part of the graph.

At a jump that depends on a tensor's value both ways are followed, each into a subgraph and each from the same state
of the machine, up to the place where all ways come together (``sot/bytecode/flow.py``): an instruction of the frame, or
its return. Then the two states become one (``merging.py``), and one ``torch.cond`` gives the tensors in which they
differ. A way that raises becomes an assertion: if it fails when the graph runs, the graph raises, and Python runs the
frame from its start and raises what the program raises (see ``failures.py``).

What else a way may do is the machine's state between the two: mutations are undone by the journal, output and
what is changed outside of the way are refused (``Refusal``); the jump then is a break that says why.
Loops that a tensor ends are in ``loops.py``.
"""
from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from sot.bytecode.flow import Flow, flow_of, ways
from sot.graph.regions import Region
from sot.guards.assumptions import Point
from sot.interpreter.control_flow import loops
from sot.interpreter.control_flow.join import at, join, refuse_symbols, settle_truth
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
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.objects import ExceptionValue
from sot.values.tensor import TensorBool, TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


# ---- the two ways of a jump ---------------------------------------------------------------------------------------
def jump(m: Machine, frame: Frame, test: TensorBool) -> Any:
    """Take both ways of the conditional jump at hand."""
    flow, pc = flow_of(frame.native), frame.last
    if not m.assumptions.control_flow:
        return assertion(m, frame, test, sides_of(frame))
    point: Point = frame.native, pc
    if (why := m.assumptions.refused.get(point)) is not None:
        raise Break(Reason.BRANCH, f"{why}, after {at(point)}")
    refuse_symbols(m)
    start = Start(m, frame)
    try:
        return take(m, frame, flow, test, sides_of(frame))
    except Refusal as e:
        start.restore()
        raise Break(Reason.BRANCH, f"{e}, in {at(point)}") from None


def sides_of(frame: Frame) -> list[Way]:
    jump = frame.instrs[frame.last]
    keeps = jump.op.startswith("JUMP_IF")      # the value stays on the stack where the jump is taken
    rest = frame.stack[:-1] if keeps else frame.stack
    return [Way(p, frame.stack if keeps and p == jump.target else rest) for p in ways(frame.instrs, frame.last)]


def assertion(m: Machine, frame: Frame, test: TensorBool, sides: list[Way]) -> None:
    """Where branches are breaks, one of which a way surely raises is none: if that way is taken, Python runs the
    frame from its start. So nothing may be changed from here on without a trace."""
    flow = flow_of(frame.native)
    which = [flow.place[way.pc] in flow.unraised for way in sides].index(True)
    check(m, test, which == 0, "the way that was captured is not taken")
    m.refusal_seen = True
    frame.pc, frame.stack = sides[which].pc, list(sides[which].stack)


def take(m: Machine, frame: Frame, flow: Flow, test: TensorBool, sides: list[Way]) -> Any:
    place = flow.place[frame.last]
    for i, way in enumerate(sides):
        if flow.place[way.pc] not in flow.returning and raises(m, frame, test, way, i == 0):
            frame.pc, frame.stack = sides[1 - i].pc, list(sides[1 - i].stack)
            return None
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
    """If one way raises, make it an assertion that it is not taken."""
    region = Region(m.builder)
    end = follow(m, frame, way, frozenset(), region, frame.loop)
    if end.kind != RAISED:
        return False
    check(m, test, not when, end.text, end.value)
    return True


def check(m: Machine, test: TensorBool, holds: bool, text: str, raised: Value | None = None) -> None:
    """An assertion node. A GPU's own assertions end the process, so it is made on the CPU.

    It raises torch's RuntimeError. Python runs the frame again then, and raises; where it cannot, because inputs have
    been changed, the exception that the way ``raised`` takes the place of torch's, if it is made of constants.
    """
    if (isinstance(raised, ExceptionValue) and raised.real is ABSENT and all(isinstance(a, Const) for a in raised.args)
            and not isinstance(inspect.getattr_static(raised.pytype, "__init__"), FunctionType)):
        m.asserted[text] = raised.pytype, tuple(a.constant() for a in raised.args)
    value: Value = TensorValue(test.ref)
    if not holds:
        value = torch_call(m, "call_function", torch.logical_not, [value], {})
    if test.ref.fake.device.type != "cpu":
        value = torch_call(m, "call_method", "cpu", [value], {})
    torch_call(m, "call_function", torch._assert_async, [value, Const(text)], {})


def branch(m: Machine, frame: Frame, flow: Flow, test: TensorBool, sides: list[Way]) -> Any:
    """Follow both ways to where they meet; if an exception leads one of them past that, to the frame's return."""
    loop = frame.loop
    place = flow.meeting(flow.place[frame.last], *((loop.body, loop.latch) if loop else ()))
    ends, regions = both(m, frame, sides, loops.arrivals(flow, place))
    for end in ends:
        loops.pass_test(flow, end, place)
    if {e.kind for e in ends} == {ARRIVED, RETURNED}:
        if loop is not None:
            raise Refusal(f"{m.position()}: one way returns out of the loop by an exception")
        ends, regions = both(m, frame, sides, frozenset())
    kinds = [e.kind for e in ends]
    if RAISED in kinds:
        return one_raises(m, frame, test, sides, ends)
    settle_truth(m, flow, ends, regions)
    return join(m, frame, test, ends, regions, loops.needed(frame, ends))


def both(m: Machine, frame: Frame, sides: list[Way], stops: frozenset[int]) -> tuple[list[End], list[Region]]:
    regions = [Region(m.builder), Region(m.builder)]
    ends = [follow(m, frame, way, stops, region, frame.loop) for way, region in zip(sides, regions, strict=True)]
    return ends, regions


def one_raises(m: Machine, frame: Frame, test: TensorBool, sides: list[Way], ends: list[End]) -> None:
    if all(e.kind == RAISED for e in ends):
        raise Refusal("both ways raise an exception")
    which = [e.kind for e in ends].index(RAISED)
    check(m, test, which == 1, ends[which].text, ends[which].value)
    frame.pc, frame.stack = sides[1 - which].pc, list(sides[1 - which].stack)
