"""The trace of a frame: everything that code generation needs of its symbolic execution, and nothing else.

``trace_of`` takes it from a machine that has reached an exit. Then the machine does not run any further, unless values
of this exit cannot be rebuilt. In that case it is rolled back to an exit in an outer frame, which has another trace.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import GraphBuilder
from sot.guards.draws import Draws
from sot.guards.guards import DistinctGuard, EqualsGuard, Guard, HasKeyGuard, IsGuard, TypeGuard
from sot.guards.origin import Arg, Attr, Inputs, Known, Origin
from sot.guards.symbols import Symbols
from sot.guards.tensor_guards import ChangeGuard
from sot.interpreter.torch_ops.wrappers import collectives
from sot.support.errors import Break
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.global_state import StateChange
from sot.torch_compat.tensors import rule_of_changes
from sot.values.base import Const, Lazy, Null, Value
from sot.values.callables import CellValue
from sot.values.classes import ClassValue, is_in_made_class, is_of_made_class
from sot.values.deferred_scalars import DeferredScalar, refuse_drawn
from sot.values.numbers import NUMBER_TYPES
from sot.values.objects import DELETED, DictValue, ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.data_sizes.graph_numbers import Guess

Line = tuple[str, int]      # a file of the user, and a line in it


@dataclass(frozen=True)
class Suspended:
    """A frame suspended at the instruction ``last``, which continues at ``pc``."""

    code: CodeType
    last: int
    pc: int
    stack: tuple[Value, ...]
    locals: Mapping[str, Value | Lazy]
    cells: Mapping[str, CellValue]
    namespace: dict
    on_return: str

    @classmethod
    def of(cls, frame: Frame) -> Suspended:
        return cls(frame.native, frame.last, frame.pc, tuple(frame.stack), dict(frame.locals), dict(frame.cells),
                   frame.namespace, frame.on_return)


@dataclass(frozen=True)
class Returned:
    """The frame returns a value."""

    value: Value


@dataclass(frozen=True)
class Broken:
    """Capture stops in the last of ``frames``, which are ordered from the outermost call inwards.

    Arguments:
        cause: the reason.
        handled: the exception that the last frame is handling.
        loop: the first instruction of the loop that Python runs as a whole, or None.
    """

    cause: Break
    frames: tuple[Suspended, ...]
    handled: Value | None
    loop: int | None


@dataclass(frozen=True)
class Trace:
    """The result of one symbolic execution.

    Arguments:
        code: the code of the frame.
        inputs: the arguments of the frame.
        exit: how the frame ends.
        line: the user's line at the exit.
        guards: the conditions for reuse, in the order in which the program needed them, each with its line.
        examples: the tensors that guards were made from.
        graph: the operations. Its outputs are the values that the exit is emitted with.
        input_origins: the origins of the graph's inputs, by the id of their references.
        symbols: the symbols of sizes and numbers that may vary, or None.
        state_log: the changes of torch's global state.
        mutated: the values of existing objects that have been changed.
        effects: the writers of the calls after the graph, in order.
        modes: the modes of ``__torch_function__`` that are active at the exit.
        made_classes: the classes that the frame makes, by the id of their stand-ins.
        tensors: the tensors that existed before.
        made_leaves: the leaves of autograd that the graph makes, by the id of their fakes.
        asserted: the exceptions that assertions of the graph stand for, by their texts.
        guesses: what assertions of the graph assume about sizes that depend on data, by their texts.
        hooked: whether the graph puts hooks on tensors.
        of_compilers: whether a part of it has the form for backends that compile.
        draws: the random numbers that are drawn before the graph.
        shows_frames: whether the program may see the variables of its frames.
    """

    code: CodeType
    inputs: Inputs
    exit: Returned | Broken
    line: Line
    guards: Mapping[Guard, Line]
    examples: Mapping[Guard, torch.Tensor]
    graph: GraphBuilder
    input_origins: Mapping[int, Origin]
    symbols: Symbols | None
    state_log: tuple[StateChange, ...]
    mutated: tuple[Value, ...]
    effects: tuple[Callable[[Any], None], ...]
    modes: tuple[Value, ...]
    made_classes: Mapping[int, ClassValue]
    tensors: tuple[TensorValue, ...]
    made_leaves: Mapping[int, TensorValue]
    asserted: Mapping[str, tuple[type, tuple]]
    guesses: Mapping[str, Guess]
    hooked: bool
    shows_frames: bool
    of_compilers: bool
    draws: Draws

    @property
    def operations(self) -> int:
        """The number of operations in the graph."""
        return self.graph.operations

    def __str__(self) -> str:
        return "\n".join(lines_of(self))


def trace_of(m: Machine, exit: Returned | Broken) -> Trace:
    """The trace up to an exit that the machine has reached."""
    collectives.refuse_unfinished(m)
    line = m.user_position()[:2]
    more = (guard for guard in (*distinct_guards(m), *change_guards(m)) if not is_of_made_class(guard, m.made_classes))
    guards = without_repeated({**m.guards, **{guard: line for guard in more if guard not in m.guards}})
    return Trace(
        m.code, m.inputs, exit, line, guards, dict(m.examples), m.builder, dict(m.input_origins),
        m.symbols if m.has_symbols else None, (*m.state_log,), (*m.mutated.values(),), (*m.effects,), m.modes,
        dict(m.made_classes), tuple(value for _, value in m.by_id.values() if isinstance(value, TensorValue)),
        {key: m.leaves[key] for key in m.made_leaves}, dict(m.asserted), dict(m.guesses), m.hooked,
        m.shows_frames, m.of_compilers, m.draws.finish())


# ---- guards -----------------------------------------------------------------------------------------------
def distinct_guards(m: Machine) -> Iterator[DistinctGuard]:
    """Two objects of one type may be the same object at the next call. That matters if one of them is changed, or was
    compared by identity.
    """
    matters = {v.pytype for v in m.mutated.values()} | m.compared
    matters |= {v.owner.pytype for v in m.mutated.values() if isinstance(v, DictValue) and v.owner is not None}
    by_type: dict[type, list[Origin]] = {}
    for _, value in m.by_id.values():
        if value.pytype in matters and value.origin is not None and not isinstance(value, TensorValue) and (
                not is_in_made_class(value.origin, m.made_classes)):
            by_type.setdefault(value.pytype, []).append(value.origin)
    for origins in by_type.values():
        if len(origins) > 1 and not all(isinstance(o, Known) for o in origins):
            if m.draws.calls:
                refuse_drawn(*origins)
            yield DistinctGuard(origins[0], tuple(origins[1:]))
    if dict in matters:
        yield from guards_of_dicts_and_owners(m)


def change_guards(m: Machine) -> Iterator[ChangeGuard]:
    """Autograd refuses changes of leaves, and of some views. The error of a graph comes before the effects of the
    function, and leaves it without leaving the regions that Python has entered.
    """
    for ref in m.builder.changed_inputs():
        origin, real = m.input_origins.get(id(ref)), ref.real
        if (origin is not None and isinstance(real, torch.Tensor) and not refused(ref.fake)
                and ref.fake.requires_grad and not ref.fake.is_leaf):
            yield ChangeGuard(origin, rule_of_changes(real))


def guards_of_dicts_and_owners(m: Machine) -> Iterator[DistinctGuard]:
    """A dict that is an argument may be the ``__dict__`` of an object at the next call."""
    origins = [v.origin for _, v in m.by_id.values() if v.pytype is dict and isinstance(v.origin, Arg)]
    owners = [o.origin for o in m.dict_owners.values()
              if o.origin is not None and not issubclass(o.pytype, torch.nn.Module)] if origins else []
    for origin in owners:
        yield DistinctGuard(Attr(origin, "__dict__"), tuple(origins))


def without_repeated(guards: Mapping[Guard, Line]) -> dict[Guard, Line]:
    """Remove guards on a type that a guard on the value repeats."""
    equal = {g.origin for g in guards if isinstance(g, EqualsGuard)}
    return {g: where for g, where in guards.items() if not (isinstance(g, TypeGuard) and g.origin in equal)}


def changed_numbers(trace: Trace) -> set[Origin]:
    """The origins of numbers that are guarded and then set to other values, such as counters."""
    constants = {g.origin: g.value for g in trace.guards
                 if isinstance(g, EqualsGuard) and type(g.value) in NUMBER_TYPES}
    found = set()
    for value in trace.mutated if constants else ():
        if isinstance(value, DictValue) and value.origin is not None:
            for key, new in value.overlay.items():
                origin = value.item_origin(key)
                if origin in constants and (isinstance(new, DeferredScalar) or (
                        isinstance(new, Const) and new.unguarded != constants[origin])):
                    found.add(origin)
    return found


def undoes_its_guards(trace: Trace) -> bool:
    """Whether the frame makes what its guards say is missing. The first step of a training program does: it makes
    gradients and the state of the optimizer. No later call is like it.
    """
    guards = trace.guards
    return any(new is not DELETED and HasKeyGuard(value.origin, key, False) in guards
               or is_made(new) and IsGuard(value.item_origin(key), None) in guards
               for value in trace.mutated if isinstance(value, DictValue) and value.origin is not None
               for key, new in value.overlay.items()) or any(
        is_made(new) and IsGuard(Attr(value.origin, name), None) in guards
        for value in trace.mutated if isinstance(value, TensorValue) and value.origin is not None
        for name, new in value.attrs.items())


def is_made(new: Value) -> bool:
    """Whether a value that is written is an object."""
    return new is not DELETED and not (isinstance(new, Const) and new.unguarded is None)


# ---- as text ----------------------------------------------------------------------------------------------
def lines_of(trace: Trace) -> Iterator[str]:
    """Inputs, mutations, output, and the exit. The operations belong to the graph, which prints itself."""
    for ref in trace.graph.inputs:
        yield f"input {ref.node.name if ref.node is not None else '-'}: {trace.input_origins[id(ref)]}"
    yield f"operations: {trace.operations}"
    for value in trace.mutated:
        yield f"changes {value}"
    if trace.effects:
        yield f"effects: {len(trace.effects)}"
    if isinstance(trace.exit, Returned):
        yield f"returns {text_of(trace.exit.value)}"
        return
    yield f"breaks: {trace.exit.cause}"
    for frame in trace.exit.frames:
        yield f"  {frame.code.co_name}, instruction {frame.pc}"
        yield from (f"    {name} = {text_of(value)}" for name, value in frame.locals.items())
        if frame.stack:
            yield f"    stack: {', '.join(map(text_of, frame.stack))}"


def text_of(value: Value | Lazy) -> str:
    """A value by its origin, its place in the graph, or its parts."""
    if value.origin is not None:
        return str(value.origin)
    if isinstance(value, TensorValue) and value.ref.node is not None:
        return value.ref.node.name
    if isinstance(value, TupleValue | ListValue):
        return f"{value.pytype.__name__}({', '.join(map(text_of, value.items))})"
    return "NULL" if isinstance(value, Null) else str(value)
