"""Calls of a translated generator function, coroutine function or async generator function.

Python's own generator or coroutine runs one of the drivers below. A driver calls the pieces of the function
(``sot/bytecode/suspensions.py``), each as a captured function, and suspends between them. So ``send``, ``throw``,
``close`` and ``await`` are Python's.
"""
from __future__ import annotations

import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from types import FunctionType, MethodType
from typing import Any, TypeGuard

from sot import _hook
from sot._hook import Direct, Tail
from sot.bytecode.frame_layout import GENERATORS
from sot.bytecode.suspensions import DELEGATES, STEPS, YIELDS, NoPieces, Point, at_once, pieces_of

State = tuple[Any, ...]


def is_suspending(fn: object) -> TypeGuard[FunctionType | MethodType]:
    """Whether it is a Python function or method whose calls suspend."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return isinstance(fn, FunctionType | MethodType) and code is not None and bool(code.co_flags & GENERATORS)


def can_be_cut(fn: FunctionType | MethodType) -> bool:
    """Whether a suspending function can be captured in pieces."""
    try:
        pieces_of(getattr(fn, "__func__", fn).__code__)
    except NoPieces:
        return False
    return True


class SuspendingCall:
    """Calls a suspending function with its pieces captured. Raises NoPieces if it cannot be cut."""

    def __init__(self, fn: FunctionType | MethodType, callback: Any) -> None:
        self.fn = fn
        self.function: FunctionType = fn.__func__ if isinstance(fn, MethodType) else fn  # type: ignore[assignment]
        self.own = (fn.__self__,) if isinstance(fn, MethodType) else ()
        pieces, function = pieces_of(self.function.__code__), self.function
        first = FunctionType(pieces.code, function.__globals__, function.__name__, function.__defaults__,
                             function.__closure__)
        first.__kwdefaults__ = function.__kwdefaults__
        self.points, self.first, self.call = pieces.points, first, Direct(_hook.run, callback)
        self.driver = next(driver for flag, driver in DRIVERS if function.__code__.co_flags & flag)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        unused = self.fn(*args, **kwargs)       # raises what Python raises for arguments that do not fit
        if hasattr(unused, "close"):
            unused.close()
        made = self.driver(self, [*self.own, *args], kwargs)
        made.__name__, made.__qualname__ = unused.__name__, unused.__qualname__
        return made

    def begin(self, args: list[Any], kwargs: dict[str, Any]) -> State:
        return self.call(_called, self.first, args, kwargs) if kwargs else self.call(_handed, self.first, args)

    def go_on(self, point: Point, kept: list[Any], thrown: BaseException | None) -> State:
        """Run the piece after a point. ``kept`` has its closure, its variables and what was sent."""
        rest = FunctionType(point.rest, self.function.__globals__, self.function.__name__, None, kept.pop(0))
        kept.append(thrown)
        if thrown is not None:      # Python handles it, and captures go on at the next suspension
            return _hook.run(_handed, _hook.plain(rest), kept)
        return self.call(_handed, rest, kept)


def _called(function: Callable[..., State], args: list[Any], kwargs: dict[str, Any]) -> State:
    return function(*args, **kwargs)


def _handed(function: Callable[..., State], values: list[Any]) -> Tail:
    """The call of a function with these values, which only its frame keeps alive."""
    args = tuple(values)
    values.clear()
    return Tail(function, args)


_hook.skip(_handed.__code__)
_hook.skip(_called.__code__)
_hook.skip(at_once.__code__)


class Progress:
    """How far a call has come: the point at which it is suspended, or None at its end, and the value that it hands
    over there. It keeps no value that the program's own frame would not keep.
    """

    def __init__(self, call: SuspendingCall, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.call = call
        self.thrown: BaseException | None = None
        self.note(call.begin(args, kwargs))

    def note(self, state: State) -> None:
        place, self.handed_over, *self.kept = state
        self.point: Point | None = None if place is None else self.call.points[place]

    def take(self) -> Any:
        """What the call hands over, once."""
        value, self.handed_over = self.handed_over, None
        return value

    def go_on(self) -> None:
        """Run the next piece, which gets what was sent, the last of what is kept, or the exception that was thrown."""
        assert self.point is not None
        kept, self.kept, thrown, self.thrown = self.kept, [], self.thrown, None
        if thrown is not None:
            kept.append(None)
        self.note(self.call.go_on(self.point, kept, thrown))


def _generator(call: SuspendingCall, args: list[Any], kwargs: dict[str, Any]) -> Generator[Any, Any, Any]:
    at = Progress(call, args, kwargs)
    del kwargs
    while at.point is not None:
        try:
            at.kept.append((yield from at.take()) if at.point.does == DELEGATES else (yield at.take()))
        except BaseException as e:  # noqa: BLE001 - the program may handle any
            at.thrown = e
        at.go_on()
    return at.take()


async def _coroutine(call: SuspendingCall, args: list[Any], kwargs: dict[str, Any]) -> Any:
    at = Progress(call, args, kwargs)
    del kwargs
    while at.point is not None:
        try:
            at.kept.append(await awaitable(at))
        except BaseException as e:  # noqa: BLE001 - the program may handle any
            at.thrown = e
        at.go_on()
    return at.take()


async def _async_generator(call: SuspendingCall, args: list[Any], kwargs: dict[str, Any]) -> AsyncGenerator[Any, Any]:
    at = Progress(call, args, kwargs)
    del kwargs
    while at.point is not None:
        try:
            at.kept.append((yield at.take()) if at.point.does == YIELDS else await awaitable(at))
        except BaseException as e:  # noqa: BLE001 - the program may handle any
            at.thrown = e
        at.go_on()


def awaitable(at: Progress) -> Any:
    assert at.point is not None
    return _steps(at.take()) if at.point.does == STEPS else at.take()


@types.coroutine
def _steps(iterator: Any) -> Generator[Any, Any, Any]:
    return (yield from iterator)


DRIVERS: tuple[tuple[int, Callable[..., Any]], ...] = (
    (inspect.CO_COROUTINE, _coroutine), (inspect.CO_ASYNC_GENERATOR, _async_generator), (GENERATORS, _generator))
