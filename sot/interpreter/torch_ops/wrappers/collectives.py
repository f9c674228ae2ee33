"""Collectives that change tensors, and questions about process groups.

A collective is two nodes: one that starts it, and one where the program waits. If the program does not wait before the
graph ends, Python calls the collective: other processes may not take part in it before this one goes on. Sending and
receiving are such nodes, too, if the backend runs its graph as it is: capture follows torch's Python code up to the
method of the process group.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from sot.bytecode.resume_origin import source
from sot.guards.assumptions import RestartCapture
from sot.guards.guards import IsGuard
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.wrappers.library_functions import whole_node
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS
from sot.torch_compat.operators.overlaps import is_expanded
from sot.torch_compat.subclasses.collectives import (
    BACKEND,
    WORK,
    finish,
    finished_work,
    fits,
    message_nodes,
    methods_of_groups,
    started,
)
from sot.values.base import ABSENT, FALSE, NONE, TRUE, Const, Value
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue, has_own_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


class Work(Value):
    """What ``async_op=True`` returns. ``end`` waits; it takes ``operands``."""

    pytype = WORK

    def __init__(self, place: Any, end: Callable[..., None], operands: list[Value]) -> None:
        self.place, self.end, self.operands = place, end, operands

    def load_attr(self, m: Any, name: str) -> Value:
        if name != "wait":
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of {self}")
        return Wait(self)

    def truth(self, m: Any) -> bool | None:
        return True

    def start(self, m: Machine) -> None:
        before, m.started = m.started, [*m.started, self]
        m.undoable(lambda: setattr(m, "started", before))

    def finish(self, m: Machine) -> None:
        if self in m.started:
            torch_call(m, "call_function", self.end, self.operands, {})
            before, m.started = m.started, [work for work in m.started if work is not self]
            m.undoable(lambda: setattr(m, "started", before))

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(finished_work)}()")

    def __str__(self) -> str:
        return "the work of a collective"


class Wait(Value):
    """The method ``wait`` of such an object."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) + len(kwargs) > 1:
            raise Break(Reason.BAD_CALL, "wait")
        self.work.finish(m)
        return TRUE

    def __str__(self) -> str:
        return f"wait of {self.work}"


def called(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call of a collective as nodes; None for another function, and for a call that is no such node."""
    operation = started(function)
    if operation is None or m.modes or m.builder.region is not None or not dist.is_initialized():
        return None
    place = caller(m)
    if place in m.assumptions.unfinished:
        raise Break(Reason.SIDE_EFFECT, f"{operation.__name__}, for whose end another piece of the program waits,")
    if hasattr(function, "__deprecated__"):     # it warns, and calls another one
        return None
    names = operation.__code__.co_varnames[:operation.__code__.co_argcount]
    kwargs = dict(kwargs)
    is_async = kwargs.pop("async_op", FALSE)
    if operation.__name__ == "broadcast" and not is_none(kwargs.pop("group", NONE)):
        return None
    if len(args) == len(names) + 1 and operation.__name__ != "broadcast":
        *args, is_async = args
    if not isinstance(is_async, Const) or len(args) > len(names) or not {*kwargs} <= {*names[len(args):]}:
        return None
    tensors = [*tensors_in(m, [*args, *kwargs.values()])]
    written = args[0] if args else kwargs.get(names[0], NONE)
    outputs: list[Value] = [*tensors_in(m, [written])]
    if not outputs or not all(map(is_sent_as_it_is, tensors)) or not fits(
            operation, [plain(m, value) for value in args], {name: plain(m, v) for name, v in kwargs.items()}):
        return None
    try:
        result = whole_node(m, operation, args, kwargs)
    except Break as stop:
        if stop.reason is Reason.OPAQUE_VALUE:      # not a group that this process is in
            return None
        raise
    m.builder.changes_traceless = True      # what is sent to other processes is not sent again
    work = Work(place, finish, [result, *outputs])
    work.start(m)
    if is_async.constant():
        return work
    work.finish(m)
    return NONE


def refuse_unfinished(m: Machine) -> None:
    """Leave collectives to Python for whose end the program has not waited."""
    if m.started:
        raise RestartCapture("the program waits elsewhere for a collective",
                             unfinished=frozenset(work.place for work in m.started))


def caller(m: Machine) -> Any:
    """The place in the program that calls torch.distributed, also by way of a function that is deprecated."""
    frame = next((frame for frame in reversed(m.frames) if not str(frame.namespace.get("__name__")).startswith(
        ("torch.distributed", "typing_extensions"))), m.frames[0])
    return source(frame.native, frame.last)


def plain(m: Machine, value: Value) -> Any:
    """An argument, with the fakes of tensors."""
    if isinstance(value, TensorValue):
        return value.fake
    if isinstance(value, (ListValue, TupleValue)):
        return [plain(m, item) for item in m.settle(value.items)]
    return value.constant() if isinstance(value, Const) else value.real


def tensors_in(m: Machine, values: list[Value]) -> Iterator[TensorValue]:
    for value in values:
        if isinstance(value, TensorValue):
            yield value
        elif isinstance(value, (ListValue, TupleValue)):
            yield from (item for item in m.settle(value.items) if isinstance(item, TensorValue))


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.constant() is None


def is_sent_as_it_is(value: TensorValue) -> bool:
    """Whether the functional form takes this tensor as the collective does: autograd does not see either."""
    fake = value.fake
    recorded = fake.requires_grad and torch.is_grad_enabled()
    return not (has_own_code(value.pytype) or recorded or fake.is_complex() or is_expanded(fake)) and (
        fake.is_contiguous())


def answer(method: Any) -> Any:
    """The handler of a method of process groups whose result is a constant of the group, which is guarded."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        group = args[0]
        if len(args) != 1 or kwargs or group.real is ABSENT or group.origin is None:
            raise Break(Reason.OPAQUE_CALL, "a method of a process group")
        m.guard(IsGuard(group.origin, group.real))
        return Const(method(group.real))
    return handler


def message(name: str) -> Any:
    """The handler of a method of process groups that sends or receives a tensor."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        group, *rest = args
        place, tensors = caller(m), [*tensors_in(m, rest[:1])]
        peer, tag = (value.constant() if isinstance(value, Const) else None for value in (*rest[1:], NONE, NONE)[:2])
        if place in m.assumptions.unfinished:
            raise Break(Reason.SIDE_EFFECT, f"{name}, for whose end another piece of the program waits,")
        if len(rest) != 3 or kwargs or len(tensors) != 1 or group.origin is None or not (
                isinstance(peer, int) and isinstance(tag, int)) or (
                m.assumptions.compiles or m.modes or m.builder.region is not None
                or not is_sent_as_it_is(tensors[0])):
            raise Break(Reason.SIDE_EFFECT, f"{name} of a process group")
        m.guard(IsGuard(group.origin, group.real))
        start, end = message_nodes(name, group.real, peer, tag)
        torch_call(m, "call_function", start, [tensors[0]], {})
        m.builder.changes_traceless = True
        work = Work(place, end, [tensors[0]])
        work.start(m)
        return work
    return handler


class BackendOfGroup(Value):
    """What carries out the work of a process group on a device."""

    pytype = BACKEND

    def __init__(self, real: Any) -> None:
        self.real = real

    def load_attr(self, m: Any, name: str) -> Value:
        if name != "supports_coalescing":
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of {self}")
        return Const(self.real.supports_coalescing)

    def rebuild(self, e: Emitter) -> str:
        return e.const(self.real)

    def __str__(self) -> str:
        return "the backend of a process group"


def backend_of(method: Any) -> Any:
    """The handler of the method of process groups that returns the backend of a device."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        group, device = args if len(args) == 2 else (NONE, NONE)
        if kwargs or group.origin is None or not isinstance(device, Const):
            raise Break(Reason.OPAQUE_CALL, "a method of a process group")
        m.guard(IsGuard(group.origin, group.real))
        return BackendOfGroup(method(group.real, device.constant()))
    return handler


for _method in methods_of_groups("rank", "size"):
    HANDLERS[_method] = answer(_method)
for _name in ("send", "recv"):
    for _method in methods_of_groups(_name):
        HANDLERS[_method] = message(_name)
for _method in methods_of_groups("_get_backend"):
    HANDLERS[_method] = backend_of(_method)
