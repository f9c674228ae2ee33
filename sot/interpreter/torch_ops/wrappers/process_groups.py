"""Methods of process groups: those that communicate, as two nodes, and questions.

Capture follows torch's Python code up to the method, so the checks and warnings of that code are the program's. The
first node calls the method with the same arguments on each rank; the second waits. No backend compiles them: a graph is
compiled in pieces between them.
"""
from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from sot.guards.guards import IsGuard
from sot.interpreter.control_flow.failures import refuse_lasting
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.wrappers.collectives import (
    Work,
    caller,
    is_sent_as_it_is,
    plain,
    refuse_seen,
    tensors_in,
)
from sot.interpreter.torch_ops.wrappers.library_functions import bound, place
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS
from sot.torch_compat.subclasses.collectives import (
    BACKEND,
    METHODS,
    READ_ONLY,
    WITHOUT_WORK,
    classes_of_options,
    communication,
    methods_of_groups,
    takes,
)
from sot.values.base import ABSENT, NONE, Const, Value

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


class Options(Value):
    """The object that tells a method of process groups what to do, which torch makes for each call."""

    def __init__(self, kind: type) -> None:
        self.pytype = kind
        self.fields: dict[str, Any] = {}

    def set_attr(self, m: Any, name: str, value: Value | None) -> None:
        if value is None:
            raise Break(Reason.SIDE_EFFECT, f"del {self}.{name}")
        before, self.fields = self.fields, {**self.fields, name: setting(m, value)}
        m.undoable(lambda: setattr(self, "fields", before))

    def made(self) -> Any:
        options = self.pytype()
        for name, value in self.fields.items():
            setattr(options, name, value)
        return options

    def rebuild(self, e: Emitter) -> str:
        return e.const(self.made())


def guarded(m: Machine, args: list[Value]) -> list[Any]:
    """The process group that a method is called on, under a guard, and the other arguments."""
    group, *rest = args
    if group.real is ABSENT or group.origin is None:
        raise Break(Reason.OPAQUE_CALL, "a method of a process group")
    m.guard(IsGuard(group.origin, group.real))
    return [group.real, *rest]


def communicate(name: str) -> Any:
    """The handler of a method that communicates."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        group, *rest = guarded(m, args)
        where = caller(m)
        refuse_seen(m, name, where)
        first, others = [*tensors_in(m, rest[:1])], [*tensors_in(m, rest[1:])]
        options = [v.made() for v in (*rest, *kwargs.values()) if isinstance(v, Options)]
        if not is_carried_out(m, name, group, (first, others), options, rest):
            raise Break(Reason.SIDE_EFFECT, f"{name} of a process group")
        if not first and not others and m.effects:
            raise Break(Reason.SIDE_EFFECT, f"{name} of a process group, after output that other processes wait for,")
        tensors: list[Value] = []
        places = [given(m, value, tensors) for value in rest]
        named = {key: given(m, value, tensors) for key, value in kwargs.items()}
        start, waiting = communication(
            name, bound(getattr(group, name), places, named), () if name in READ_ONLY else range(len(first)))
        refuse_lasting(m, name)
        m.builder.changes_traceless = True      # what is sent to other processes is not sent again
        record(m, start, tensors)
        work = Work(where, lambda m, timeout: record(m, waiting(setting(m, timeout)), tensors))
        work.start(m)
        if name in WITHOUT_WORK:
            work.wait(m)
            return NONE
        return work
    return handler


def is_carried_out(m: Machine, name: str, group: Any, tensors: tuple[list, list], options: list, rest: list) -> bool:
    """Whether nodes do what the method does, and do not raise for what can be known now."""
    first, others = tensors
    is_inside = m.builder.region is not None and not m.assumptions.interprets     # a compiler would trace it
    if m.assumptions.compiles or m.modes or is_inside or not all(
            is_sent_as_it_is(v, v in first and name not in READ_ONLY) for v in (*first, *others)):
        return False
    op = next((getattr(made, "reduceOp", None) for made in options), None)
    return takes(name, [v.fake for v in first], [v.fake for v in others], group.size(), op, sizes_of_parts(m, rest))


def sizes_of_parts(m: Machine, args: list[Value]) -> list[Any]:
    """The lists of numbers among the arguments: how tensors are split among the processes."""
    lists = [plain(m, value) for value in args if value.items_list(m) is not None]
    return [numbers for numbers in lists if all(type(n) is int for n in numbers)]


def given(m: Machine, value: Value, tensors: list[Value]) -> Any:
    """What gives an argument when it gets the tensors of the call."""
    if isinstance(value, Options):
        made = value.made()
        return lambda tensors: made
    if type(value.real) is datetime.timedelta:
        limit = setting(m, value)
        return lambda tensors: limit
    return place(m, value, tensors)


def setting(m: Machine, value: Value) -> Any:
    """A constant, or a time limit."""
    if isinstance(value, Const):
        return value.constant()
    if type(value.real) is not datetime.timedelta or value.origin is None:
        raise Break(Reason.OPAQUE_VALUE, f"{value} as an argument of a collective")
    m.guard(IsGuard(value.origin, value.real))
    return value.real


def record(m: Machine, function: Any, tensors: list[Value]) -> None:
    if tensors:
        torch_call(m, "call_function", function, [*tensors], {})
    else:       # capture does not call it: it would communicate
        m.builder.record("call_function", function, (), {}, None, m.stack_trace())


def answer(method: Any) -> Any:
    """The handler of a method of process groups whose result is a constant of the group, which is guarded."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        group, *rest = guarded(m, args)
        if rest or kwargs:
            raise Break(Reason.OPAQUE_CALL, "a method of a process group")
        return Const(method(group))
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
        group, *rest = guarded(m, args)
        if kwargs or len(rest) != 1 or not isinstance(rest[0], Const):
            raise Break(Reason.OPAQUE_CALL, "a method of a process group")
        return BackendOfGroup(method(group, rest[0].constant()))
    return handler


def options_of(kind: type) -> Any:
    """The handler of a class of options."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Break(Reason.OPAQUE_CALL, kind.__name__)
        return Options(kind)
    return handler


for _kind in classes_of_options():
    HANDLERS[_kind] = options_of(_kind)
for _name, _method in methods_of_groups("rank", "size", "group_name", "bound_device_id").items():
    HANDLERS[_method] = answer(_method)
for _name, _method in methods_of_groups("_get_backend").items():
    HANDLERS[_method] = backend_of(_method)
for _name, _method in methods_of_groups(*METHODS).items():
    HANDLERS[_method] = communicate(_name)
