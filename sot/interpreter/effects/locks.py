"""Locks that the call has made. No other thread can hold such a lock before the frame ends, so a count replaces it.

A lock that existed before is a break: another thread may hold it.
"""
from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import take
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import FALSE, NONE, TRUE, Value, boolean

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
SECONDS = -1, -1.0      # no limit


class LockValue(Value):
    """A new lock. ``held`` says how often it was acquired."""

    def __init__(self, kind: type) -> None:
        self.pytype = kind
        self.held = 0

    def snapshot(self) -> Callable[[], None]:
        held = self.held

        def undo() -> None:
            self.held = held
        return undo

    def truth(self, m: Any) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        name = e.variable(self, f"{e.const(_thread.allocate_lock if self.pytype is LOCK else _thread.RLock)}()")
        for _ in range(self.held):
            e.line(f"{name}.acquire()")
        return name

    def __str__(self) -> str:
        return "a lock"


@handles(*{_thread.allocate_lock, threading.Lock})
def new_lock(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("allocate_lock", args, kwargs)
    return LockValue(LOCK)


@handles(_thread.RLock)
def new_reentrant_lock(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return LockValue(RLOCK)


def made(lock: Value) -> LockValue:
    if not isinstance(lock, LockValue):
        raise Break(Reason.SIDE_EFFECT, f"{lock}, a lock that others may hold,")
    return lock


def methods(*names: str) -> set[Any]:
    """The methods of these names. CPython gives some methods of a lock two names."""
    return {vars(kind)[name] for kind in (LOCK, RLOCK) for name in names if name in vars(kind)}


@handles(*methods("acquire", "acquire_lock", "__enter__"))
def acquire(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, blocking, timeout = take("acquire", args, kwargs, "self", "blocking", "timeout", required=1)
    lock = made(self_)
    waits = True if blocking is None else blocking.truth(m)
    if timeout is not None and timeout.constant() not in SECONDS or waits is None:
        raise Break(Reason.SIDE_EFFECT, "acquiring a lock for a time")
    if lock.held and lock.pytype is LOCK:
        if waits:
            raise Break(Reason.SIDE_EFFECT, "waiting for a lock that the call itself holds")
        return FALSE
    m.touch(lock)
    lock.held += 1
    return TRUE


@handles(*methods("release", "release_lock"))
def release(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    lock = made(take("release", args, kwargs, "self", required=1)[0])
    if not lock.held:
        m.throw(RuntimeError, "release unlocked lock" if lock.pytype is LOCK else "cannot release un-acquired lock")
    m.touch(lock)
    lock.held -= 1
    return NONE


@handles(*methods("__exit__"))
def leave(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return release(m, args[:1], {})


@handles(*methods("locked", "locked_lock"))
def locked(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(made(take("locked", args, kwargs, "self", required=1)[0]).held > 0)


@handles(*methods("_is_owned"))
def is_owned(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return boolean(made(args[0]).held > 0)


@handles(*methods("_release_save"))
def release_all(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.SIDE_EFFECT, "waiting for a condition")
