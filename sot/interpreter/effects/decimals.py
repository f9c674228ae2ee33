"""``decimal.localcontext``: capture computes with decimals in the same context.

Nothing of it is left once the program has left it, so it is no effect. Emitted code does not enter one, so a break
inside is one before it.
"""
from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

from sot.bytecode.resume_origin import source
from sot.guards.assumptions import RestartCapture
from sot.interpreter.builtins.common import is_none, take
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import ANSWERS, NONE, Const, Value
from sot.values.objects.hosted import FIELDS_OF_CONTEXT, DecimalContext, current_context
from sot.values.wrapping import COMPUTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.guards.assumptions import Point
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

MANAGER = type(decimal.localcontext())


class LocalContext(Value):
    """``decimal.localcontext(...)``"""

    pytype: Any = MANAGER

    def __init__(self, context: DecimalContext, point: Point) -> None:
        self.context, self.point = context, point
        self.is_entered = False

    def snapshot(self) -> Callable[[], None]:
        before = self.is_entered

        def undo() -> None:
            self.is_entered = before
        return undo

    def truth(self, m: Any) -> bool | None:
        return True

    def rebuild(self, e: Emitter) -> str:
        raise RestartCapture("a break inside of a decimal.localcontext", read_at_once=frozenset((self.point,)))


@COMPUTED.add(decimal.Decimal)
def computed(m: Machine, real: decimal.Decimal) -> Value:
    return Const(real)


@handles(decimal.localcontext)
def localcontext(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given, = take("localcontext", args, {k: v for k, v in kwargs.items() if k not in FIELDS_OF_CONTEXT}, "ctx")
    point = source(m.frames[-1].native, m.frames[-1].last)
    if point in m.assumptions.read_at_once or not is_none(given) and not isinstance(given, DecimalContext):
        raise Break(Reason.SIDE_EFFECT, "decimal.localcontext()")
    made = DecimalContext((given.hosted if isinstance(given, DecimalContext) else current_context(m)).copy())
    for name, value in kwargs.items():
        if name != "ctx":
            set_field(m, made, name, value)
    m.entered.has_decimals = True
    return LocalContext(made, point)


@handles(decimal.getcontext)
def getcontext(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not m.entered.decimals:
        raise Break(Reason.SIDE_EFFECT, "decimal.getcontext()")
    return m.entered.decimals[-1]


@handles(vars(MANAGER)["__enter__"])
def enter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    manager = args[0]
    if not isinstance(manager, LocalContext) or manager.is_entered:
        raise Break(Reason.SIDE_EFFECT, "entering a decimal.localcontext again, or one that existed before")
    m.touch(manager)
    manager.is_entered = True
    m.entered.decimals.append(manager.context)
    m.undoable(m.entered.decimals.pop)
    return manager.context


@handles(vars(MANAGER)["__exit__"])
def leave(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    manager = args[0]
    if not isinstance(manager, LocalContext) or not m.entered.decimals or m.entered.decimals[-1] is not manager.context:
        raise Break(Reason.SIDE_EFFECT, "leaving a decimal.localcontext that was not entered last")
    m.entered.decimals.pop()
    m.undoable(lambda: m.entered.decimals.append(manager.context))
    return NONE


@ANSWERS.add((DecimalContext, "set_attr"))
def set_field(m: Machine, context: DecimalContext, name: str, value: Value | None) -> None:
    if name not in FIELDS_OF_CONTEXT or name == "capitals" or not isinstance(value, Const):     # output comes later
        raise Break(Reason.UNSUPPORTED, f"setting {name} of a context of decimal")
    m.touch(context)
    try:
        setattr(context.hosted, name, value.real)
    except (TypeError, ValueError) as e:
        m.throw(type(e), *e.args)


@handles(decimal.setcontext)
def setcontext(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.SIDE_EFFECT, "decimal.setcontext()")
