"""The join of two sides: one state of the machine, and one node of the graph that yields the tensors of either
side.
"""
from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from sot.bytecode.flow import Flow, flow_of
from sot.graph import TensorRef
from sot.graph.regions import WRITTEN, Cond, Region, shares_memory
from sot.guards.assumptions import Point, RestartCapture
from sot.interpreter.control_flow import predicates, random_branches
from sot.interpreter.control_flow.merge_values import (
    CONTENTS,
    DTYPES,
    Differ,
    Merge,
    Pair,
    Undecided,
    fake_result,
    reachable,
)
from sot.interpreter.control_flow.speculate import ARRIVED, RETURNED, End, Refusal
from sot.interpreter.frame import Frame
from sot.interpreter.loop import return_value
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.torch_compat.global_state import STATE_SETTERS
from sot.values.base import ABSENT, Const, Value, boolean
from sot.values.callables import CellValue
from sot.values.objects import TupleValue
from sot.values.tensor import TensorBool, TensorValue

if TYPE_CHECKING:
    from torch import fx

    from sot.interpreter.machine import Machine


TESTING = frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "TO_BOOL", "UNARY_NOT"})
Needed = tuple[frozenset[str], frozenset[str]]


def join(m: Machine, frame: Frame, test: TensorBool, ends: list[End], regions: list[Region],
         needed: Needed) -> Any:
    """Merge two sides and continue. ``needed`` has, for each side, the variables that are read afterwards."""
    merge = Merge(m, test, regions[0].is_plain)
    try:
        state = merged_state(m, frame, merge, ends, needed)
    except Differ as e:
        raise Refusal(str(e)) from None
    cond(m, frame, test, merge.pairs, regions)
    keep_states(m, ends)
    return state.apply(m, frame)


def settle_truth(m: Machine, flow: Flow, ends: list[End], regions: list[Region]) -> None:
    """Where the sides meet at a test, only the truth of the values that they leave for it matters."""
    for end, region in zip(ends, regions, strict=True):
        if end.kind == ARRIVED and flow.ops[flow.place[end.pc]] in TESTING:
            with region:
                end.stack[-1] = as_condition(m, end.stack[-1])


def as_condition(m: Machine, value: Value) -> Value:
    known = predicates.decide(m, value)
    if not isinstance(known, (bool, TensorBool)):
        raise Refusal("a condition is an object with a __bool__")
    return known if isinstance(known, TensorBool) else boolean(known)


# ---- one state of two ---------------------------------------------------------------------------------------------
class State(NamedTuple):
    """The state after a branch."""

    end: End
    locals: dict[str, Any]
    stack: list[Value]
    contents: list[tuple[Any, Any]]
    value: Value | None

    def as_end(self) -> End:
        """The state as the end of one side."""
        return self.end.holding(self.locals, self.stack, {id(c): contents for c, contents in self.contents})

    def apply(self, m: Machine, frame: Frame) -> Any:
        """Continue with this state. Returns what the handler of the instruction has to return."""
        for container, contents in self.contents:
            CONTENTS[type(container)].write(m, container, contents)
        if self.value is not None:
            return return_value(m, self.value)
        frame.locals, frame.stack, frame.cells = self.locals, self.stack, dict(self.end.cells)
        frame.pc = self.end.pc
        return None


def merged_state(m: Machine, frame: Frame, merge: Merge, ends: list[End], needed: Needed) -> State:
    """The state after both sides. Raises Differ."""
    a, b = ends
    point: Point = frame.native, frame.last
    value, locals_, stack = None, {}, []
    if a.kind == RETURNED:
        value = merge.value(a.value, b.value, "the value returned")
    else:
        if len(a.stack) != len(b.stack) or a.cells.keys() != b.cells.keys():
            raise Differ("the sides differ in their unfinished expressions")
        stack = [merge.value(x, y, "the value of the expression") for x, y in zip(a.stack, b.stack, strict=True)]
        locals_ = merged_locals(merge, a.locals, b.locals, needed, point)
        if any(a.cells[name] is not b.cells[name] for name in a.cells):
            raise Differ("a variable of an inner function is made anew")
    return State(a, locals_, stack, merged_contents(m, frame, merge, ends), value)


def merged_locals(merge: Merge, a: dict, b: dict, needed: Needed, point: Point) -> dict[str, Any]:
    """The variables that either side needs. A variable that only one side needs may differ."""
    merged: dict[str, Any] = {}
    for name in [*a, *(n for n in b if n not in a)]:
        if not any(name in names for names in needed):
            continue
        x, y, pairs = a.get(name, ABSENT), b.get(name, ABSENT), len(merge.pairs)
        try:
            try:
                merged[name] = merge.value(x, y, f"`{name}`")
            except Differ:
                if name in needed[0] and name in needed[1]:
                    raise
                del merge.pairs[pairs:]
                which = 0 if name in needed[0] else 1
                merged[name] = merge.alone((x, y)[which], which, f"`{name}`")
        except Differ as e:
            del merge.pairs[pairs:]
            merged[name] = Undecided(point, f"{e}, and is used")
    return merged


def at(point: Point) -> str:
    """A description of a branch: its source, line and function."""
    code, pc = point
    line = flow_of(code).instrs[pc].pos[0] or code.co_firstlineno
    return f"the branch `{linecache.getline(code.co_filename, line).strip()}` (line {line} in {code.co_name})"


def merged_contents(m: Machine, frame: Frame, merge: Merge, ends: list[End]) -> list[tuple[Any, Any]]:
    """The contents of containers that existed before and that at least one side has changed."""
    touched = {**ends[0].touched, **ends[1].touched}
    if not touched:
        return []
    after = reachable([*(f for f in m.frames if f is not frame), *(part for e in ends for part in (
        (e.value,) if e.kind == RETURNED else (e.locals, e.stack, e.cells)))])
    found = []
    for key, touch in touched.items():
        container = touch.value
        if container.real is ABSENT and key not in after:
            continue
        if container.real is not ABSENT or type(container) not in CONTENTS:
            raise Differ(f"{touch.where} changes {container}, which was there before the branch")
        read = CONTENTS[type(container)].read
        what = f"`{container.name}`" if isinstance(container, CellValue) else f"{container} (changed at {touch.where})"
        x, y = (e.contents.get(key, read(container)) for e in ends)
        found.append((container, merge.contents(type(container), x, y, what)))
    return found


def keep_states(m: Machine, ends: list[End]) -> None:
    """Restore torch's global state if the graph fails inside a subgraph."""
    for setter, _, undo in (entry for end in ends for entry in end.states):
        if setter in STATE_SETTERS:
            m.state_log.append((setter, undo[1], undo))
            m.undoable(m.state_log.pop)


# ---- the node -----------------------------------------------------------------------------------------------------
def cond(m: Machine, frame: Frame, test: TensorBool, pairs: list[Pair], regions: list[Region],
         is_written: bool = False) -> None:
    """One ``torch.cond`` that yields what the pairs stand for. ``is_written``: it is the program's own, so its
    gradients are those of ``torch.cond``, not those of an ``if``.
    """
    if not pairs and not any(region.operations for region in regions):
        return
    point: Point = frame.native, frame.last
    outputs = [given(m, region, pairs, i, test, point) for i, region in enumerate(regions)]
    passed_on = [ref for region, outs in zip(regions, outputs, strict=True) for ref in outs
                 if not region.is_inside(ref)]
    operands = list({id(ref): ref for ref in (*(r for region in regions for r in region.used()), *passed_on)}.values())
    names = [region.close(outs, operands, kind)
             for region, outs, kind in zip(regions, outputs, ("if_true", "if_false"), strict=True)]
    modules = [m.builder.subgraph(name) for name in names]
    results = [pair.ref for pair in pairs]
    if regions[0].is_plain:
        node = random_branches.record(m, test, modules, operands, results, regions)
        for i, (pair, ref) in enumerate(zip(pairs, results, strict=True)):
            ref.node = m.builder.item(node, i, ref.fake)
            ref.node.meta["of_constants"] = not any(isinstance(side, TensorRef) for side in pair[:2])
        return
    if is_written and needs_gradients(*operands):
        for ref in results:
            if can_require_grad(ref) and not ref.fake.requires_grad:
                ref.fake = fake_result(m, ref.fake, True)
    node = m.builder.record("call_function", Cond, (test.ref, *modules, tuple(operands)), {},
                            tuple(ref.fake for ref in results), m.stack_trace())
    if is_written:
        node.meta[WRITTEN] = True
    take_results(m, node, results, operands)


def given(m: Machine, region: Region, pairs: list[Pair], which: int, test: TensorBool, point: Point) -> list[TensorRef]:
    """What a subgraph returns for each pair: new tensors, no two of which share memory."""
    refuse_symbols(m)
    with region:
        found: list[TensorRef] = []
        for pair in pairs:
            ref = pair[which]
            if not isinstance(ref, TensorRef):
                ref = zeros(m, pair.ref.fake) if ref is None else constant(m, ref, test)
            shared = [*region.sharing(ref), *(() if region.is_inside(ref) else (ref,))]
            shared += [p.ref for p, r in zip(pairs, found, strict=False) if shares_memory(r.fake, ref.fake)]
            if shared:
                m.builder.tie([*shared, pair.ref], point)
            if not region.is_plain and (shared or ref.fake.stride() != pair.ref.fake.stride()):
                ref = copied(m, ref)
            found.append(ref)
        if not found:       # a subgraph must return something
            found.append(constant(m, True, test))
        return found


def refuse_symbols(m: Machine) -> None:
    """Subgraphs hold only for the sizes and numbers of this call. In a file torch.export makes them for any sizes."""
    if m.has_symbols and not m.assumptions.of_file:
        raise RestartCapture("a branch or loop on a tensor is part of the graph", static=True)


def constant(m: Machine, value: float, like: TensorBool) -> TensorRef:
    """A number as a 0-d tensor, on the device of the branch."""
    return made(m, "call_function", torch.full_like, [TensorValue(like.ref), Const(value)],
                dtype=Const(DTYPES[type(value)]))


def zeros(m: Machine, like: torch.Tensor) -> TensorRef:
    """A tensor of the right kind, where the value does not matter."""
    if not like.is_contiguous():
        raise Refusal("a tensor that is not contiguous is set on one side only")
    sizes = TupleValue([Const(n) for n in like.shape])
    return made(m, "call_function", torch.zeros, [sizes], dtype=Const(like.dtype), device=Const(like.device))


def copied(m: Machine, ref: TensorRef) -> TensorRef:
    return made(m, "call_method", "clone", [TensorValue(ref)])


def made(m: Machine, kind: str, target: Any, args: list[Value], **kwargs: Value) -> TensorRef:
    value = torch_call(m, kind, target, args, kwargs)
    assert isinstance(value, TensorValue)
    return value.ref


def with_grad(m: Machine, initial: list[TensorRef], parameters: Sequence[TensorRef],
              operands: Sequence[TensorRef]) -> list[TensorRef]:
    """The initial values of a loop. A value gets requires_grad if later iterations give it a gradient, because torch
    passes no gradient through a carried value that does not require grad at first. A ``where`` that never selects its
    other operand gives it a history.
    """
    sources = [r for r in (*operands, *initial) if isinstance(r.fake, torch.Tensor) and r.fake.requires_grad
               and r.fake.numel()]
    found = []
    for ref, parameter in zip(initial, parameters, strict=True):
        if parameter.fake.requires_grad and not ref.fake.requires_grad and sources:
            every = made(m, "call_function", torch.ones_like, [TensorValue(ref)], dtype=Const(torch.bool))
            flat = made(m, "call_method", "flatten", [TensorValue(sources[0])])
            one = made(m, "call_method", "select", [TensorValue(flat), Const(0), Const(0)])
            other = made(m, "call_method", "to", [TensorValue(one), Const(ref.fake.dtype)])
            ref = made(m, "call_function", torch.where, [TensorValue(every), TensorValue(ref), TensorValue(other)])
        found.append(ref)
    return found


def needs_gradients(*refs: TensorRef) -> bool:
    return torch.is_grad_enabled() and any(isinstance(r.fake, torch.Tensor) and r.fake.requires_grad for r in refs)


def can_require_grad(ref: TensorRef) -> bool:
    return ref.fake.is_floating_point() or ref.fake.is_complex()


def take_results(m: Machine, node: fx.Node, results: Sequence[TensorRef], operands: Sequence[TensorRef]) -> None:
    """Make references stand for the results of a node. If an operand requires grad, the node marks all floating
    results as requiring grad. A result that is not computed from such an operand is detached, unless the program has
    written the operator.
    """
    grad = needs_gradients(*operands)
    for i, ref in enumerate(results):
        ref.node = m.builder.item(node, i, ref.fake)
        if grad and not ref.fake.requires_grad and can_require_grad(ref):
            ref.node = m.builder.record("call_method", "detach", (TensorRef(ref.fake, ref.node),), {}, ref.fake,
                                        m.stack_trace())
