"""Integers that differ from call to call, where an operation needs their values: torch takes some only as constants.

The first such value is a constant of the trace. When the number differs once more, the operation is a break, so no
graph is compiled for each value.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.guards.assumptions import RestartCapture
from sot.guards.guards import RelationGuard
from sot.guards.origin import Origin, TensorPart
from sot.guards.terms import leaves, term_text
from sot.interpreter.torch_ops.data_sizes.float_arguments import may_be_floats, with_floats
from sot.interpreter.torch_ops.data_sizes.graph_numbers import here
from sot.support.errors import Break, Reason
from sot.values.base import Value
from sot.values.numbers import DynamicNumber
from sot.values.objects import ListValue, TupleValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def read(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of an operation. If an earlier capture has found that it needs the integers among them, these are
    floats, which may vary, or become constants. Break if one has been a constant before.
    """
    if m.assumptions.reads_numbers and here(m) in m.assumptions.reads_numbers:
        args, kwargs = with_floats(m, target, args, kwargs)
        _read(m, [*args, *kwargs.values()])
    return args, kwargs


def _read(m: Machine, values: list[Value]) -> None:
    for value in values:
        if isinstance(value, (ListValue, TupleValue)):
            _read(m, m.settle(value.items))
        elif isinstance(value, DynamicNumber) and value.pytype is int:
            if value.was_constant and not value.is_size:
                raise Break(Reason.VARYING_NUMBER, str(value))
            value.real  # noqa: B018 - guards it


def may_read(m: Machine) -> bool:
    """Whether an operation that failed on symbols may do with constants."""
    return bool(m.varying_numbers) and here(m) not in m.assumptions.reads_numbers


def read_first(m: Machine, why: str) -> RestartCapture:
    """What starts the capture again, with the integers that are given to this operation read before it."""
    return RestartCapture(why, reads_numbers=frozenset({here(m)}))


def check(m: Machine, name: str, target: Any, args: list[Value], kwargs: dict[str, Value],
          assumptions: list[RelationGuard]) -> None:
    """Restart the capture if an operation has made an integer a constant that was one before or that may be a float."""
    fixed, is_read = [guard for guard in assumptions if fixes(guard)], here(m) in m.assumptions.reads_numbers
    again = next((guard for guard in fixed if fixes_again(m, guard)), None)
    if again is not None and is_read:       # it is the size of an argument, and not an argument
        raise Break(Reason.VARYING_NUMBER, term_text(again.left))
    if again is not None or fixed and not is_read and may_be_floats(target, args, kwargs):
        raise read_first(m, f"{name} needs the value of an integer")


def fixes(guard: RelationGuard) -> bool:
    return guard.symbol == "==" and guard.outcome and not isinstance(guard.right, (Origin, tuple))


def fixes_again(m: Machine, guard: RelationGuard) -> bool:
    """Whether it makes an integer a constant that was one before, and is no size. As a size, an integer is a constant
    when it is 0 or 1, and needs no more captures than these two.
    """
    fixed = {*leaves(guard.left)}
    return guard.right not in (0, 1) and not fixed.isdisjoint(m.varies.specialized) and not any(
        isinstance(o, TensorPart) for o in fixed)
