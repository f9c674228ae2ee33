"""Speculation: the execution of one side of a branch, and the return to the state before it.

``follow`` runs the machine into a subgraph, from an instruction of the top frame to a stop or to the frame's return.
It returns an ``End``: the contents of the frame, the values that were changed, and the result or the exception. The
journal undoes the mutations. Whatever a graph cannot do is a ``Refusal``.
"""
from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from sot.graph.regions import Region
from sot.interpreter.control_flow.merge_values import CONTENTS, reachable
from sot.interpreter.frame import BRANCH, Frame
from sot.interpreter.loop import run
from sot.interpreter.outcomes import Touch
from sot.support.errors import Reason
from sot.torch_compat.global_state import REGIONS, STATE_PAIRS, STATE_SETTERS, StateLog
from sot.values.base import ABSENT, Value

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

ARRIVED, RETURNED, RAISED = "arrived", "returned", "raised"


class Refusal(Exception):
    """A branch cannot be part of the graph. The text says why."""


class Way(NamedTuple):
    """The start of one side of a branch."""

    pc: int
    stack: list[Value]


class Start:
    """The state of the machine before a branch, and how to restore it."""

    def __init__(self, m: Machine, frame: Frame) -> None:
        self.m, self.frame = m, frame
        self.depth = len(m.frames)
        self.locals, self.cells, self.stack = dict(frame.locals), dict(frame.cells), list(frame.stack)
        self.saved = {name: getattr(frame, name) for name in ("pc", "last", "mark", "on_return", "stops", "loop")}
        self.rounds = dict(frame.rounds)
        self.handled, self.watch = m.handled, m.watch
        self.journal, self.effects, self.states = len(m.journal), len(m.effects), len(m.state_log)
        self.mutated = len(m.mutated)

    def end(self, way: Way) -> End:
        """The state itself, as the end of a side that has not begun."""
        end = End(self, ARRIVED).holding(self.locals, way.stack, {})
        end.pc = way.pc
        return end

    def restore(self) -> None:
        m, frame = self.m, self.frame
        while len(m.journal) > self.journal:
            m.journal.pop()()
        del m.frames[self.depth:], m.effects[self.effects:]
        while len(m.mutated) > self.mutated:
            m.mutated.popitem()
        frame.locals, frame.cells, frame.stack = dict(self.locals), dict(self.cells), list(self.stack)
        frame.rounds = dict(self.rounds)
        for name, value in self.saved.items():
            setattr(frame, name, value)
        m.handled, m.watch = self.handled, self.watch


class End:
    """The end of one side of a branch, with its values."""

    def __init__(self, start: Start, kind: str, value: Value | None = None) -> None:
        m, frame = start.m, start.frame
        self.kind, self.value = kind, value
        self.pc = frame.pc
        self.locals, self.cells, self.stack = dict(frame.locals), dict(frame.cells), list(frame.stack)
        self.touched: dict[int, Touch] = {id(t.value): t for t in m.watch or () if t.value is not None}
        self.contents = {key: CONTENTS[type(t.value)].read(t.value) for key, t in self.touched.items()
                         if type(t.value) in CONTENTS}
        self.made = [(t.value, parts_of(t.value)) for t in self.touched.values() if t.value.real is ABSENT]
        self.states = m.state_log[start.states:]
        self.text = ""

    def keep_made(self, roots: list[Any]) -> None:
        """Fill the containers that the side has made: undoing its mutations has emptied them. Changes of containers
        that existed before stay in ``touched``.
        """
        if not self.made:
            return
        before = reachable(roots)
        for value, parts in self.made:
            if id(value) not in before:
                vars(value).update(parts)
                del self.touched[id(value)]

    def holding(self, locals_: dict, stack: list[Value], contents: dict[int, Any]) -> End:
        """An end like this one with other contents, which has changed nothing."""
        end = copy(self)
        end.locals, end.stack, end.contents, end.touched, end.states, end.made = locals_, stack, contents, {}, [], []
        return end


def follow(m: Machine, frame: Frame, way: Way, stops: frozenset[int], region: Region,
           loop: Any = None) -> End:
    """Execute one side into a subgraph, until one of ``stops`` or the frame's return. Then restore the machine."""
    start = Start(m, frame)
    frame.pc, frame.stack = way.pc, list(way.stack)
    frame.stops, frame.on_return, frame.loop = stops, BRANCH, loop
    m.watch = []
    with region:
        end = ended(start, run(m))
    start.restore()
    end.keep_made([*m.frames, way.stack])
    return end


def parts_of(value: Value) -> dict[str, Any]:
    """The mutable parts of a value."""
    return {name: copy(part) if isinstance(part, (list, dict, set)) else part
            for name, part in vars(value).items()}


def ended(start: Start, done: Any) -> End:
    """The end of a side. Raises Refusal if it cannot be part of a graph."""
    if done is None:
        end = End(start, ARRIVED)
    elif hasattr(done, "value"):
        end = End(start, RETURNED, done.value)
    elif done.cause.reason is Reason.UNCAUGHT:
        end = End(start, RAISED, done.raised)
        end.text = done.cause.detail
        return end
    else:
        cause = done.cause
        raise Refusal(cause.detail if cause.reason is Reason.BRANCH else f"{start.m.position()}: {cause}")
    refuse_effects(start, end)
    return end


def refuse_effects(start: Start, end: End) -> None:
    m = start.m
    if len(m.effects) > start.effects:
        raise Refusal(f"{next(t.where for t in m.watch or () if t.value is None)} writes output")
    if m.handled is not start.handled and end.kind == ARRIVED:
        raise Refusal(f"{m.position()}: an exception is still being handled at the end of one side")
    if changes_state(end.states):
        raise Refusal(f"{m.position()}: torch's global state differs at the end of one side")


def changes_state(log: StateLog) -> bool:
    """Whether torch's global state differs after these changes. Transforms and inference mode count as differences."""
    first: dict[Any, tuple] = {}
    last: dict[Any, tuple] = {}
    depth = 0
    for setter, args, (_, before) in log:
        if setter in STATE_SETTERS:
            key = (setter, args[:-1])
            first.setdefault(key, before)
            last[key] = args
        elif setter in REGIONS:
            return True
        else:
            depth += 1 if setter in STATE_PAIRS else -1
    return depth != 0 or any(first[key] != last[key] for key in first)
