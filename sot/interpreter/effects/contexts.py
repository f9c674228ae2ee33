"""Context variables: ``get`` reads the current context under a guard; ``set`` and ``reset`` are deferred in order.

Emitted code runs in the context of the call, so the deferred calls change what the program would have changed. Emitted
code copies a context where the program does. What the program sets while it runs in the copy, is set in the copy.
"""
from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any

from sot.guards.guards import IsGuard
from sot.guards.origin import InContext, known
from sot.interpreter.builtins.common import take
from sot.polyfills.running import contexts as polyfill
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Const, Value, boolean
from sot.values.objects import DictValue, ExceptionValue, TupleValue
from sot.values.objects.contexts import ContextValue, ContextVarValue, LocalValue, MadeContextVar, TokenValue
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
        var.held = initial(m, var)
    return var.held


def initial(m: Machine, var: ContextVarValue) -> Value:
    """What the context of the call holds."""
    if isinstance(var, MadeContextVar):
        return NO_VALUE
    origin, real = InContext(var.origin), var.real.get(MISSING)
    if real is MISSING:
        m.guard(IsGuard(origin, MISSING))
        return NO_VALUE
    return wrap(m, real, origin)


@handles(contextvars.ContextVar)
def new_variable(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name, = take("ContextVar", args, {k: v for k, v in kwargs.items() if k != "default"}, "name", required=1)
    if name.pytype is not str:
        raise Break(Reason.BAD_CALL, "ContextVar()")
    made = MadeContextVar(name, kwargs.get("default"), NO_VALUE)
    m.by_id[id(made)] = (made, made)
    return made


@handles(contextvars.ContextVar.get)
def get(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, default = take("get", args, kwargs, "self", "default", required=1)
    var = variable(self_)
    held = held_by(m, var)
    if held is not NO_VALUE:
        return held
    if default is not None:
        return default
    if isinstance(var, MadeContextVar):
        if var.default is None:
            raise PyRaise(ExceptionValue(LookupError, [var]))
        return var.default
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
    within = m.entered.contexts[-1] if m.entered.contexts else None
    token = TokenValue(var, held_by(m, var), within)
    m.touch(var)
    var.held = value

    def write(e: Emitter) -> None:
        e.variable(token, called_within(e, within, f"{e.value(var)}.set", value))
    m.effect(write)
    return token


def called_within(e: Emitter, context: ContextValue | None, method: str, value: Value) -> str:
    """The call of a method of a variable in a context; None is that of the call."""
    return f"{method}({e.value(value)})" if context is None else f"{e.value(context)}.run({method}, {e.value(value)})"


@handles(contextvars.ContextVar.reset)
def reset(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, token = take("reset", args, kwargs, "self", "token", required=2)
    var = variable(self_)
    within = m.entered.contexts[-1] if m.entered.contexts else None
    if not isinstance(token, TokenValue) or token.used or token.variable is not var or token.within is not within:
        raise Break(Reason.SIDE_EFFECT, f"resetting {var} by {token}")
    m.touch(var)
    m.touch(token)
    var.held, token.used = token.before, True
    m.effect(lambda e: e.line(called_within(e, within, f"{e.value(var)}.reset", token)))
    return NONE


# ---- contexts ---------------------------------------------------------------------------------------------------
def variables(m: Machine) -> list[ContextVarValue]:
    """The variables that the trace has met."""
    return [value for _, value in m.by_id.values() if isinstance(value, ContextVarValue)]


@handles(contextvars.copy_context)
def copy_context(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("copy_context", args, kwargs)
    outer = m.entered.contexts[-1] if m.entered.contexts else None
    made = ContextValue({var: var.held for var in variables(m)})

    def copy(e: Emitter) -> None:
        call = e.const(contextvars.copy_context)
        e.variable(made, f"{call}()" if outer is None else f"{e.value(outer)}.run({call})")
    m.effect(copy)
    return made


def copied(value: Value) -> ContextValue:
    if not isinstance(value, ContextValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return value


@handles(contextvars.Context.run)
def run(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    context, function, *rest = args
    table = DictValue(dict)
    table.overlay.update(kwargs)
    return m.enter(polyfill.run_in, [copied(context), function, TupleValue(list(rest)), table])


@handles(polyfill.enter_context)
def enter_context(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    context = copied(args[0])
    if context.entered:
        raise Break(Reason.OPERATION_FAILED, "a context that is entered already")
    m.touch(context)
    outside = {var: var.held for var in variables(m)}
    swap(m, context.held)
    context.held, context.entered = outside, True
    m.entered.contexts.append(context)
    m.undoable(m.entered.contexts.pop)
    return NONE


@handles(polyfill.leave_context)
def leave_context(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    context = copied(args[0])
    m.touch(context)
    inside = {var: var.held for var in variables(m)}
    swap(m, context.held)
    context.held, context.entered = inside, False
    m.entered.contexts.pop()
    m.undoable(lambda: m.entered.contexts.append(context))
    return NONE


def swap(m: Machine, held: dict[ContextVarValue, Value | None]) -> None:
    """Let the variables hold this. What the trace has not met yet, has its value from before the trace."""
    for var in variables(m):
        m.touch(var)
        var.held = held.get(var)


def held_in(m: Machine, context: Value, variable_: Value) -> Value:
    """What a copied context holds for a variable; NO_VALUE without a value."""
    var = variable(variable_)
    if copied(context).entered:
        raise Break(Reason.UNSUPPORTED, "reading a context that is entered")
    found = context.held.get(var)  # type: ignore[attr-defined]
    return initial(m, var) if found is None else found


@handles(contextvars.Context.__getitem__)
def getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = held_in(m, *args)
    if found is NO_VALUE:
        raise PyRaise(ExceptionValue(KeyError, [args[1]]))
    return found


@handles(contextvars.Context.get)
def get_in(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = held_in(m, *args[:2])
    if found is not NO_VALUE:
        return found
    return args[2] if len(args) > 2 else NONE


@handles(contextvars.Context.__contains__)
def contains(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(held_in(m, *args) is not NO_VALUE)


@handles(threading.local.__new__)
def new_local(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs or args[0].constant() is not threading.local:
        raise Break(Reason.UNSUPPORTED, "an instance of a subclass of threading.local")
    return LocalValue(threading.local)
