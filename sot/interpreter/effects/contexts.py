"""Context variables: ``get`` reads the current context under a guard; ``set`` and ``reset`` are deferred in order.

Emitted code runs in the context of the call, so the deferred calls change what the program would have changed.
"""
from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any

from sot.guards.guards import IsGuard
from sot.guards.origin import InContext, known
from sot.interpreter.builtins.common import take
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Const, Value
from sot.values.objects import ExceptionValue
from sot.values.objects.contexts import ContextVarValue, LocalValue, TokenValue
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

MISSING = contextvars.Token.MISSING
NO_VALUE = Const(MISSING)


def variable(value: Value) -> ContextVarValue:
    if not isinstance(value, ContextVarValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return value


def held_by(m: Machine, var: ContextVarValue) -> Value:
    """What the context holds for a variable; NO_VALUE without a value."""
    if var.held is None:
        origin, real = InContext(var.origin), var.real.get(MISSING)
        if real is MISSING:
            m.guard(IsGuard(origin, MISSING))
            var.held = NO_VALUE
        else:
            var.held = wrap(m, real, origin)
    return var.held


@handles(contextvars.ContextVar.get)
def get(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, default = take("get", args, kwargs, "self", "default", required=1)
    var = variable(self_)
    held = held_by(m, var)
    if held is not NO_VALUE:
        return held
    if default is not None:
        return default
    m.guard(IsGuard(var.origin, var.real))
    try:
        own: Any = contextvars.Context().run(var.real.get)
    except LookupError:
        raise PyRaise(ExceptionValue(LookupError, [var])) from None
    return wrap(m, own, known(own, f"the default of {var}"))


@handles(contextvars.ContextVar.set)
def set_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, value = take("set", args, kwargs, "self", "value", required=2)
    var = variable(self_)
    token = TokenValue(var, held_by(m, var))
    m.touch(var)
    var.held = value

    def write(e: Emitter) -> None:
        e.variable(token, f"{e.value(var)}.set({e.value(value)})")
    m.effect(write)
    return token


@handles(contextvars.ContextVar.reset)
def reset(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, token = take("reset", args, kwargs, "self", "token", required=2)
    var = variable(self_)
    if not isinstance(token, TokenValue) or token.used or token.variable is not var:
        raise Break(Reason.SIDE_EFFECT, f"resetting {var} by {token}")
    m.touch(var)
    m.touch(token)
    var.held, token.used = token.before, True
    m.effect(lambda e: e.line(f"{e.value(var)}.reset({e.value(token)})"))
    return NONE


@handles(threading.local.__new__)
def new_local(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs or args[0].constant() is not threading.local:
        raise Break(Reason.UNSUPPORTED, "an instance of a subclass of threading.local")
    return LocalValue(threading.local)
