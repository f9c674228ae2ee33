"""Loops whose end depends on a tensor, as ``while_loop`` in the graph.

A loop is cut at the test that is met first, its *latch*. An iteration begins and ends with the state at the latch and
the truth of the test. An iteration is executed from the state before the loop. The values that it changes are carried,
and the iteration is executed again from the merged state, until nothing else changes. So the subgraph of the body
holds for every iteration.

The body may have another test of a tensor that leaves the loop. It ends the iteration with a false latch. If its
target differs from what follows the latch, a flag (``LEFT``) is carried, and decides after the loop where to continue.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sot.bytecode.flow import EXIT, Flow
from sot.bytecode.liveness import live_names
from sot.graph import TensorRef
from sot.graph.regions import WHILE_TRUE, Region, While
from sot.guards.assumptions import Point
from sot.interpreter.control_flow import predicates
from sot.interpreter.control_flow.join import (
    State,
    as_condition,
    constant,
    copied,
    given,
    join,
    keep_states,
    merged_contents,
    merged_locals,
    settle_truth,
    take_results,
    with_grad,
    zeros,
)
from sot.interpreter.control_flow.merge_values import CONTENTS, Differ, Merge, Output, Pair, Undecided
from sot.interpreter.control_flow.speculate import ARRIVED, RAISED, RETURNED, End, Refusal, Start, Way, follow
from sot.interpreter.frame import Frame
from sot.values.base import FALSE, TRUE, boolean
from sot.values.tensor import TensorBool

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

ROUNDS = 6      # iterations after which the body must have settled on metadata and on the set of carried tensors
# carried like variables: whether the loop was left elsewhere, and with which result
LEFT, RESULT = "<left>", "<result>"


class NoLoop(Exception):
    """Python decides when the loop ends, so it is unrolled."""


@dataclass
class Loop:
    """A loop whose body is executed."""

    body: frozenset[int]    # places
    latch: int
    when: bool              # the truth of the latch that starts another iteration
    after: int              # the place that the latch leads to otherwise
    exit: int               # the place where all exits of the loop meet
    outer: Loop | None
    needed: frozenset[str]          # the variables that the next iteration reads
    needed_after: frozenset[str]    # ... at ``after``
    needed_at_exit: frozenset[str]


def run(m: Machine, frame: Frame, flow: Flow, test: TensorBool, sides: list[Way], body: frozenset[int]) -> Any:
    """Make a node of the loop that the current test enters or leaves, and continue after it. Raises NoLoop."""
    latch, outer = flow.place[frame.last], frame.loop
    when = flow.place[sides[0].pc] in body
    stay, leave = sides if when else sides[::-1]
    exit_ = flow.join(latch, *((outer.body, outer.latch) if outer else ()))
    at_exit = frozenset({RESULT, LEFT}).union(*(live_names(frame.native, pc) for pc in flow.pcs(exit_)))
    loop = Loop(body, latch, when, flow.place[leave.pc], exit_, outer, live_names(frame.native, stay.pc) | {LEFT},
                live_names(frame.native, leave.pc) | {LEFT}, at_exit)
    kept = {name: frame.locals.pop(name) for name in (LEFT, RESULT) if name in frame.locals}
    frame.locals[LEFT] = FALSE
    rounds = Rounds(m, frame, flow, loop, test, stay)
    rounds.settle()
    rounds.emit()
    rounds.state.apply(m, frame)
    found = {name: frame.locals.pop(name) for name in (LEFT, RESULT) if name in frame.locals}
    frame.locals.update(kept)
    frame.pc = leave.pc
    return go_on(m, frame, flow, loop, found, leave)


def go_on(m: Machine, frame: Frame, flow: Flow, loop: Loop, found: dict[str, Any], leave: Way) -> Any:
    """Continue after the loop: at the code that follows it or, if it was left elsewhere, where the exits meet."""
    flag = found[LEFT]
    if not isinstance(flag, TensorBool):
        return None
    regions = [Region(m.builder), Region(m.builder)]
    rest = Way(leave.pc, frame.stack)
    stops = flow.pcs(loop.exit)
    there = next(iter(stops), leave.pc)
    ends = [follow(m, frame, Way(there, frame.stack), frozenset({there}), regions[0], frame.loop),
            follow(m, frame, rest, stops, regions[1], frame.loop)]
    if loop.exit == EXIT:
        ends[0].kind, ends[0].value = RETURNED, found[RESULT]
    if ends[0].kind != ends[1].kind:
        raise Refusal("the code after the loop raises an exception")
    return join(m, frame, flag, ends, regions, needed(frame, ends))


class Rounds:
    """Executes a body until it is known what an iteration changes."""

    def __init__(self, m: Machine, frame: Frame, flow: Flow, loop: Loop, test: TensorBool, stay: Way) -> None:
        self.m, self.frame, self.loop, self.test, self.stay = m, frame, loop, test, stay
        self.latches = flow.pcs(loop.latch)
        self.stops = self.latches | flow.pcs(loop.exit)
        self.point: Point = frame.native, frame.last
        self.before = State(Start(m, frame).end(stay), dict(frame.locals), list(stay.stack), [], None)
        self.state = self.before
        # ``ref`` is the parameter of an iteration, ``first`` its initial value
        self.pairs: list[Pair] = []
        self.results: dict[int, Pair] = {}          # the results of the last iteration, by parameter

    def settle(self) -> None:
        """Execute iterations until one changes exactly the tensors that it carries."""
        for _ in range(ROUNDS):
            self.region = Region(self.m.builder)
            self.region.parameter(TensorRef(self.test.ref.fake), "again")
            for pair in self.pairs:
                self.region.parameter(pair.ref, "carried")
            self.end, self.again = self.round()
            state, pairs = self.merged(self.state)
            if self.closes(state, pairs):
                return
            self.state, self.pairs = self.merged(self.before)
        raise Refusal("the set of changed values differs between iterations of the loop")

    def round(self) -> tuple[End, Output]:
        """Execute one iteration from the state so far: returns its end, and whether another follows."""
        m, frame = self.m, self.frame
        start = Start(m, frame)
        for container, contents in self.state.contents:
            CONTENTS[type(container)].write(m, container, contents)
        frame.locals = dict(self.state.locals)
        end = follow(m, frame, Way(self.stay.pc, self.state.stack), self.stops, self.region, self.loop)
        start.restore()
        if end.kind != ARRIVED or end.pc not in self.latches:
            raise NoLoop
        with self.region:
            truth = as_condition(m, end.stack.pop())
            again = truth if self.loop.when else predicates.inverted(m, truth)
        return end, again.ref if isinstance(again, TensorBool) else bool(again.constant())

    def merged(self, first: State) -> tuple[State, list[Pair]]:
        """The state before and after an iteration, and the pairs of tensors that differ."""
        merge, end, loop = Merge(self.m, self.test), self.end, self.loop
        if len(first.stack) != len(end.stack):
            raise Refusal("an iteration leaves an unfinished expression")
        try:
            stack = [merge.value(a, b, "the value of the expression")
                     for a, b in zip(first.stack, end.stack, strict=True)]
            contents = merged_contents(self.m, self.frame, merge, [first.as_end(), end])
        except Differ as e:
            raise Refusal(f"{e} (before and after an iteration of the loop)") from None
        always = loop.needed | loop.needed_after
        locals_ = merged_locals(merge, first.locals, end.locals, (always, always | loop.needed_at_exit), self.point)
        return State(self.before.end, locals_, stack, contents, None), merge.pairs

    def closes(self, state: State, pairs: list[Pair]) -> bool:
        known = {id(pair.ref) for pair in self.pairs}
        self.results = {id(p.first): p for p in pairs}
        return (len(pairs) == len(self.results) and known.issuperset(self.results)
                and undecided(state) == undecided(self.state)
                and all(p.ref.fake.requires_grad == p.first.fake.requires_grad for p in pairs))  # type: ignore[union-attr]

    # ---- the node
    def emit(self) -> None:
        m, builder, region = self.m, self.m.builder, self.region
        first = self.test if self.loop.when else predicates.inverted(m, self.test)
        assert isinstance(first, TensorBool)
        region.initial = [p.first for p in self.pairs if isinstance(p.first, TensorRef)]
        outs = [Pair(None, self.again, region.parameters[0])]
        outs += [Pair(None, self.results[id(p.ref)].second if id(p.ref) in self.results else p.ref, p.ref)
                 for p in self.pairs]
        results = given(m, region, outs, 1, self.test, self.point)
        operands = region.used()
        decider = Region(builder)
        for ref in region.parameters:
            decider.parameter(TensorRef(ref.fake), "carried")
        with decider:
            decision = copied(m, decider.parameters[0])
        initial = [first.ref, *(self.initial(pair) for pair in self.pairs)]
        initial = with_grad(m, initial, region.parameters, operands)
        names = [decider.close([decision], operands, WHILE_TRUE, alone=True), region.close(results, operands, "body")]
        modules = [builder.subgraph(name) for name in names]
        refs = region.parameters        # from here on they stand for the results of the loop
        node = builder.record("call_function", While, (*modules, tuple(initial), tuple(operands)), {},
                              tuple(ref.fake for ref in refs), m.stack_trace())
        keep_states(m, [self.end])
        take_results(m, node, refs, [*operands, *initial])

    def initial(self, pair: Pair) -> TensorRef:
        """The initial value of a pair."""
        ref = pair.first
        if not isinstance(ref, TensorRef):
            return zeros(self.m, pair.ref.fake) if ref is None else constant(self.m, ref, self.test)
        self.m.builder.tie([ref, pair.ref], self.point)     # without an iteration, a backend may return a copy of it
        return ref if ref.fake.stride() == pair.ref.fake.stride() else copied(self.m, ref)


def undecided(state: State) -> set[str]:
    return {name for name, value in state.locals.items() if isinstance(value, Undecided)}


# ---- tests in the body that leave the loop ------------------------------------------------------------------------
def leave(m: Machine, frame: Frame, flow: Flow, test: TensorBool, sides: list[Way]) -> Any:
    """One side continues the iteration, the other leaves the loop: both end the iteration. Raises NoLoop."""
    loop: Loop = frame.loop
    regions, ends = [Region(m.builder), Region(m.builder)], []
    for way, region in zip(sides, regions, strict=True):
        if flow.place[way.pc] in loop.body:
            end = follow(m, frame, way, arrivals(flow, loop.latch), region, loop)
            if end.kind == RETURNED:
                raise NoLoop
            pass_test(flow, end, loop.latch)
        else:
            end = left(m, frame, flow, loop, way, region)
        if end.kind == RAISED:
            raise Refusal(f"one side raises an exception ({end.text})")
        ends.append(end)
    latch = next(end.pc for way, end in zip(sides, ends, strict=True) if flow.place[way.pc] in loop.body)
    for end in ends:
        end.pc = latch
    settle_truth(m, flow, ends, regions)
    return join(m, frame, test, ends, regions, needed(frame, ends))


def arrivals(flow: Flow, place: int) -> frozenset[int]:
    """The places where a path to ``place`` ends: that place or, if it is the test of a loop, the next iteration, which
    ``a`` in ``while a or b`` leads to.
    """
    next_round = flow.next_round(place)
    return flow.pcs(place) | next_round[1] if next_round else flow.pcs(place)


def pass_test(flow: Flow, end: End, place: int) -> None:
    """Treat a path that enters the next iteration past the test as if it had reached the test and the test were
    true.
    """
    next_round = flow.next_round(place)
    if next_round and end.kind == ARRIVED and end.pc in next_round[1] and end.pc not in flow.pcs(place):
        end.pc = min(flow.pcs(place))
        end.stack.append(boolean(next_round[0]))


def needed(frame: Frame, ends: list[End]) -> tuple[frozenset[str], frozenset[str]]:
    """For each of two ways the variables that are read afterwards: other ones where a loop has been left."""
    found = []
    for end in ends:
        names = live_names(frame.native, end.pc) if end.kind == ARRIVED else frozenset()
        left_ = end.locals.get(LEFT, FALSE)
        if frame.loop is not None and left_ is not FALSE:
            names = frame.loop.needed_at_exit if left_ is TRUE else names | frame.loop.needed_at_exit
        found.append(names | {LEFT})
    return found[0], found[1]


def left(m: Machine, frame: Frame, flow: Flow, loop: Loop, way: Way, region: Region) -> End:
    """Follow a way out of a loop, and end the round as if it came to the latch."""
    if flow.place[way.pc] == loop.after:
        end, elsewhere = follow(m, frame, way, frozenset({way.pc}), region, loop.outer), False
    else:
        end = follow(m, frame, way, flow.pcs(loop.exit), region, loop.outer)
        elsewhere = loop.exit != loop.after
    if end.kind == RETURNED:
        assert end.value is not None
        end.locals[RESULT], end.kind, end.stack = end.value, ARRIVED, list(way.stack)
    end.locals[LEFT] = boolean(elsewhere)
    end.stack.append(boolean(not loop.when))
    return end
