"""Collectives that change tensors, in the functional form that compilers know; see ``process_groups`` for others.

A collective is two nodes: one that starts it, and one where the program waits. If the program does not wait before the
graph ends, Python calls the collective: other processes may not take part in it before this one goes on.
"""
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from sot.bytecode.resume_origin import source
from sot.guards.assumptions import RestartCapture
from sot.interpreter.control_flow.failures import catches
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.wrappers.library_functions import whole_node
from sot.support.errors import Break, Reason
from sot.torch_compat.fake_tensors import has_constant
from sot.torch_compat.operators.overlaps import is_expanded
from sot.torch_compat.subclasses.collectives import (
    WORK,
    finish,
    finished_work,
    fits,
    started,
)
from sot.values.base import FALSE, NONE, TRUE, Const, Value
from sot.values.constants import is_library
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue, has_own_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


class Work(Value):
    """What ``async_op=True`` returns. ``end(m, timeout)`` records the node that waits."""

    pytype = WORK

    def __init__(self, place: Any, end: Callable[[Machine, Value], None]) -> None:
        self.place, self.end = place, end

    def load_attr(self, m: Any, name: str) -> Value:
        if name == "wait":
            return Method(self, self.wait)
        if name in ("is_completed", "is_success") and self not in m.started:
            return Method(self, lambda m: TRUE)
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of {self}")

    def truth(self, m: Any) -> bool | None:
        return True

    def start(self, m: Machine) -> None:
        before, m.started = m.started, [*m.started, self]
        m.undoable(lambda: setattr(m, "started", before))

    def wait(self, m: Machine, timeout: Value = NONE) -> Value:
        if self in m.started:
            if is_caught(m):
                raise RestartCapture("the program catches the exception of a wait", unfinished=frozenset({self.place}))
            self.end(m, timeout)
            before, m.started = m.started, [work for work in m.started if work is not self]
            m.undoable(lambda: setattr(m, "started", before))
        return TRUE

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(finished_work)}()")

    def __str__(self) -> str:
        return "the work of a collective"


class Method(Value):
    """A method of such an object."""

    def __init__(self, work: Work, function: Callable[..., Value]) -> None:
        self.work, self.function = work, function

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            given = inspect.signature(self.function).bind(m, *args, **kwargs)
        except TypeError as error:
            raise Break(Reason.BAD_CALL, str(self)) from error
        return self.function(*given.args)

    def __str__(self) -> str:
        return f"a method of {self.work}"


def called(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call of a collective as nodes; None for another function, and for a call that is no such node."""
    operation = started(function)
    if operation is None or m.modes or m.builder.region is not None or not dist.is_initialized() or (
            m.assumptions.interprets):
        return None
    place = caller(m)
    if place in m.assumptions.timed:
        return None
    refuse_seen(m, operation.__name__, place)
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
    outputs = [*tensors_in(m, [written])]
    if not outputs or any(has_constant(v.fake) or not is_sent_as_it_is(v, v in outputs) for v in tensors) or not fits(
            operation, [plain(m, value) for value in args], {name: plain(m, v) for name, v in kwargs.items()}):
        return None
    try:
        result = whole_node(m, operation, args, kwargs)
    except Break as stop:
        if stop.reason is Reason.OPAQUE_VALUE:      # not a group that this process is in
            return None
        raise

    def end(m: Machine, timeout: Value) -> None:
        if not is_none(timeout):
            raise RestartCapture("the functional form of a collective takes no timeout", timed=frozenset({place}))
        torch_call(m, "call_function", finish, [result, *outputs], {})
    work = Work(place, end)
    work.start(m)
    if is_async.constant():
        return work
    work.wait(m)
    return NONE


def refuse_seen(m: Machine, name: str, place: Any) -> None:
    """Break before a communication that the program does not finish, or whose exception it catches: what has been sent
    is not sent again, so an exception of the graph leaves the function.
    """
    if place in m.assumptions.unfinished:
        raise Break(Reason.SIDE_EFFECT, f"{name}, for whose end another piece of the program waits,")
    if is_caught(m):
        raise Break(Reason.SIDE_EFFECT, f"{name}, which may raise, where the program catches exceptions,")


def is_caught(m: Machine) -> bool:
    """Whether the program would see an exception before it leaves the function."""
    return bool(m.handled) or any(
        catches(frame) for frame in m.frames if not is_library(frame.namespace.get("__name__")))


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
            yield from tensors_in(m, m.settle(value.items))


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.constant() is None


def is_sent_as_it_is(value: TensorValue, is_written: bool) -> bool:
    """Whether nodes take this tensor as the collective does: autograd does not see either. A change of a tensor that
    autograd has saved may show in its version, which the backend of a group raises or not.
    """
    fake = value.fake
    recorded = fake.requires_grad and (torch.is_grad_enabled() or is_written and not fake.is_leaf)
    return not (has_own_code(value.pytype) or recorded or fake.is_complex() or is_expanded(fake)) and (
        fake.is_contiguous())
