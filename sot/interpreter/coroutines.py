"""Coroutines that the captured program itself drives: by ``send``, by ``await`` in another, by ``asyncio.run``.

Such a coroutine runs like a generator whose ``yield`` is an ``await``. One that the program only makes and hands
on is made in emitted code.
"""
from __future__ import annotations

import asyncio
import inspect
import types
from typing import TYPE_CHECKING, Any

from sot.bytecode.suspensions import at_once
from sot.guards.assumptions import RestartCapture
from sot.guards.library_functions import FlagGuard
from sot.guards.origin import known
from sot.interpreter.builtins.common import refuse
from sot.interpreter.builtins.iteration import generator_close, generator_send, generator_throw
from sot.interpreter.loop import evaluate
from sot.interpreter.objects import attributes
from sot.interpreter.torch_ops.deferred_scalars import here
from sot.polyfills.running import coroutines as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import FALSE, TRUE, Value
from sot.values.callables import known_function
from sot.values.iterators import CoroutineValue, GeneratorValue
from sot.values.objects import TupleValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

COROUTINE: Any = types.CoroutineType


def started(m: Machine, value: Value) -> GeneratorValue:
    """What runs a coroutine that capture drives from now on."""
    if not isinstance(value, CoroutineValue) or value.pytype is not COROUTINE:
        raise Break(Reason.SUSPENDS, str(value))
    if not value.made.started and value.made not in m.generators:
        m.generators.append(value.made)
        m.undoable(m.generators.pop)
    return value.made


def not_awaitable() -> str:
    """CPython's message for ``await 0``, which differs between versions."""
    async def wait() -> None:
        await 0     # type: ignore[misc]
    try:
        wait().send(None)
    except TypeError as e:
        return str(e)
    raise AssertionError


NOT_AWAITABLE = not_awaitable()


def awaitable(m: Machine, value: Value) -> Value:
    """What ``await value`` steps."""
    if isinstance(value, CoroutineValue) and value.pytype is COROUTINE:
        made = started(m, value)
        if made.frame is None:
            m.throw(RuntimeError, "cannot reuse already awaited coroutine")
        if made.started:
            m.throw(RuntimeError, "coroutine is being awaited already")
        return made
    if isinstance(value, GeneratorValue) and value.frame is not None and (
            value.frame.native.co_flags & inspect.CO_ITERABLE_COROUTINE):
        return value
    method = attributes.special(m, value, "__await__")
    if method is None:
        m.throw(TypeError, NOT_AWAITABLE.replace("int", value.pytype.__name__))
    return method.call(m, [], {})   # type: ignore[union-attr]


def _driven_by(method: Any, drive: Any) -> None:
    @handles(method)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        coroutine = args[0]
        made = started(m, coroutine)
        if made.frame is None and method is not COROUTINE.close:
            m.throw(RuntimeError, "cannot reuse already awaited coroutine")
        if not made.started and method is COROUTINE.send and args[1:] and args[1].pytype is not type(None):
            m.throw(TypeError, "can't send non-None value to a just-started coroutine")
        return drive(m, [made, *args[1:]], kwargs)


for _method, _drive in ((COROUTINE.send, generator_send), (COROUTINE.throw, generator_throw),
                        (COROUTINE.close, generator_close)):
    _driven_by(_method, _drive)


@handles(asyncio.run)
def run(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A coroutine that never waits for the loop runs to its end at once. Then Python runs an empty one, because a run
    leaves its traces in asyncio.
    """
    main, = args if len(args) == 1 and not kwargs else (None,)
    if not isinstance(main, CoroutineValue):
        raise Break(Reason.SIDE_EFFECT, "run()")
    if asyncio._get_running_loop() is not None:
        raise Break(Reason.SIDE_EFFECT, "run() in a running loop")
    m.guard(FlagGuard(known(asyncio._get_running_loop, "asyncio.get_running_loop"), None))
    m.effect(lambda e: e.line(f"{e.const(asyncio.run)}({e.const(polyfill.nothing)}())"))
    try:
        return evaluate(m, known_function(m, polyfill.run), [main], raises=True)
    except Break:       # Python runs the loop as a whole
        raise Break(Reason.SIDE_EFFECT, "run()") from None


@handles(at_once)
def awaited_at_once(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A coroutine that a piece of a translated coroutine awaits is a part of the piece if it does not suspend."""
    awaited, = args
    if not isinstance(awaited, CoroutineValue) or awaited.pytype is not COROUTINE or here(m) in m.assumptions.waits:
        return TupleValue([FALSE, awaited])
    awaitable(m, awaited)
    try:
        result = evaluate(m, known_function(m, polyfill.to_end_at_once), [awaited], raises=True)
    except Break:
        raise RestartCapture("a coroutine suspends", waits=frozenset({here(m)})) from None
    return TupleValue([TRUE, result])


HANDLERS[polyfill.waits] = refuse(Reason.SIDE_EFFECT, "a coroutine that waits")
