"""Groups of exceptions. CPython's C code checks the arguments, on stand-ins; the rest is plain Python."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins import iteration
from sot.interpreter.builtins.common import hosts, throw_like
from sot.interpreter.loop import evaluate
from sot.polyfills import exceptions
from sot.support.errors import Break, Reason
from sot.support.registry import handles, polyfills
from sot.values.base import ABSENT, NONE, Const, Value, boolean
from sot.values.callables import known_function
from sot.values.objects import ExceptionValue, ListValue, TupleValue
from sot.values.objects.exceptions import GroupValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(BaseExceptionGroup.__new__)
def new_group(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, *given = args
    members = members_of(m, given[1]) if len(given) == 2 else None
    shown = [stand_in(m, v) for v in given[:1]] + [
        stand_in(m, v) if members is None else [stand_in(m, e) for e in members] for v in given[1:]]
    try:
        real: Any = BaseExceptionGroup.__new__(cls.constant(), *shown)
    except Exception as e:
        return throw_like(m, e)
    if members is None:
        raise Break(Reason.UNSUPPORTED, f"an exception group of {given[1]}")
    return GroupValue(type(real), given, TupleValue(list(members)))


def members_of(m: Machine, sequence: Value) -> list[Value] | None:
    """What a list or tuple holds. C code asks other sequences for their ``repr``, some when a group is made."""
    return iteration.known_items(m, sequence) if issubclass(sequence.pytype, (list, tuple)) else None


def stand_in(m: Machine, value: Value) -> Any:
    """What C code checks in place of a value. Of an exception it reads the class."""
    if isinstance(value, ExceptionValue):
        return Exception() if issubclass(value.pytype, Exception) else BaseException()
    found = hosts(m, [value])
    if found is None:
        raise Break(Reason.UNSUPPORTED, f"an exception group of {value}")
    return found[0]


@handles(BaseExceptionGroup.__init__)
def init_group(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_: Any = args[0]
    if kwargs or not isinstance(self_, GroupValue):
        raise Break(Reason.BAD_CALL, "BaseExceptionGroup.__init__()")
    if args[1:] != self_.args:
        m.touch(self_)
        self_.args = args[1:]
    return NONE


polyfills(BaseExceptionGroup.derive)(exceptions.derive)
polyfills(BaseExceptionGroup.split)(exceptions.split)
polyfills(BaseExceptionGroup.subgroup)(exceptions.subgroup)


@handles(BaseExceptionGroup.__str__)
def str_of_group(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_ = args[0]
    if not isinstance(self_, GroupValue):
        raise Break(Reason.UNSUPPORTED, f"str of {self_}")
    count = len(self_.members.items)
    return Const(f"{self_.args[0].constant()} ({count} sub-exception{'s' * (count != 1)})")


if "__repr__" in vars(BaseExceptionGroup):      # of its own: it shows the members, whatever became of the list of them
    @handles(BaseExceptionGroup.__repr__)
    def repr_of_group(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self_ = args[0]
        if not isinstance(self_, GroupValue) or len(self_.args) != 2:
            raise Break(Reason.UNSUPPORTED, f"repr of {self_}")
        is_list = issubclass(self_.args[1].pytype, list)
        return m.enter(exceptions.group_representation, [
            Const(self_.pytype.__name__), self_.new_args[0],
            ListValue(list(self_.members.items)) if is_list else self_.members])


@handles(exceptions.copy_origin)
def copy_origin(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    group, made = made_here(args)
    m.touch(made)
    made.trace, made.cause, made.context, made.suppress = group.trace, group.cause, group.context, True
    return NONE


@handles(exceptions.same_origin)
def same_origin(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, b = made_here(args)
    return boolean(a.trace == b.trace and a.cause is b.cause and a.context is b.context)


def made_here(values: list[Value]) -> list[Any]:
    if not all(isinstance(v, ExceptionValue) and v.real is ABSENT for v in values):
        raise Break(Reason.UNSUPPORTED, "a group of exceptions that existed before")
    return values


# ---- except* ----------------------------------------------------------------------------------------------------
def star_match(m: Machine, error: Value, wanted: Value) -> tuple[Value, Value]:
    """What ``except* wanted`` leaves of an exception, and what it handles."""
    found = evaluate(m, known_function(m, exceptions.star_match), [error, wanted], raises=True)
    rest, handled = found.items_list(m)  # type: ignore[misc]
    return rest, handled


def to_reraise(m: Machine, error: Value, raised: Value) -> Value:
    return evaluate(m, known_function(m, exceptions.to_reraise), [error, raised], raises=True)
