"""Disabled progress bars of tqdm: ``tqdm(items, disable=True)``.

Such a bar shows nothing and its finalizer does nothing, so it is an object like others, with two exceptions. It gets a
position among the bars of the process, which capture does not know. The first bar of a class starts a thread that
watches bars, and makes a lock; emitted code makes a bar of its own if that has not happened.

Of the constructor, capture executes what a disabled bar does there. Other bars are left to Python.
"""
from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.interpreter.objects.lookup import lookup
from sot.polyfills.output import fill_disabled
from sot.support.errors import Break, Reason
from sot.values.base import NONE, Const, Value
from sot.values.callables import known_function
from sot.values.objects import DictValue, ObjectValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

MODULE, MAKE, FILL = "tqdm.std", "tqdm.__new__", "tqdm.__init__"
MODULES = (MODULE, "tqdm.asyncio")      # of classes whose constructor does nothing else
# What the constructor and the finalizer call.
CALLED = "__new__", "__init__", "__del__", "close", "get_lock", "_get_free_pos"
KEPT = "iterable", "total", "disable", "initial", "leave"
DISABLE, POSITION = "disable", "pos"


def make_disabled(cls: Any) -> Any:
    """The object of the program, with its position. Its other attributes are written later."""
    return cls(disable=True)


class DisabledBar(ObjectValue):
    """A new bar whose constructor is to get a true ``disable``."""

    def __init__(self, pytype: type) -> None:
        super().__init__(pytype)
        self._attrs = BarDict(self)

    def rebuild(self, e: Emitter) -> str:
        name = e.variable(self, f"{e.const(MAKE_DISABLED)}({e.const(self.pytype)})")
        e.fill_attrs(name, self)
        return name


class BarDict(DictValue):
    """The ``__dict__`` of such a bar."""

    def __init__(self, bar: DisabledBar) -> None:
        super().__init__(dict)
        self.owner = bar

    def set(self, m: Any, key: Any, value: Value, key_value: Value | None = None) -> None:
        if key == DISABLE and DISABLE in self.overlay:
            raise Break(Reason.SIDE_EFFECT, "enabling a progress bar")
        super().set(m, key, value, key_value)

    def get(self, m: Any, key: Any) -> Value | Any:
        if key == POSITION:
            raise Break(Reason.SIDE_EFFECT, "the position of a progress bar")
        return super().get(m, key)

    def keys(self, m: Any) -> list[Any]:
        if m is not None:
            raise Break(Reason.SIDE_EFFECT, "the attributes of a progress bar")
        return super().keys(m)


def start(cls: Any) -> None:
    """What the first bar of a class does in Python: it makes the lock, and starts the thread."""
    if not hasattr(cls, "_lock") or cls.monitor_interval and (cls.monitor is None or not cls.monitor.report()):
        cls(disable=True)


START, MAKE_DISABLED = _hook.plain(start), _hook.plain(make_disabled)


def called(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A call of the ``__new__`` or ``__init__`` of a disabled bar; None for another function, and for other bars."""
    if function.__module__ != MODULE or not args:
        return None
    if function.__qualname__ == MAKE:
        return new_bar(m, args, kwargs)
    if function.__qualname__ == FILL and isinstance(args[0], DisabledBar):
        given = bound(function, args, kwargs)
        return m.enter(known_function(m, fill_disabled), [args[0], *(given[name] for name in KEPT)])
    return None


def new_bar(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    cls = args[0].constant()
    if lookup(m, cls, "__setattr__")[1] is not object or any(
            lookup(m, cls, name)[1].__module__ not in MODULES for name in CALLED):
        return None
    filler: Any = next(vars(base)["__init__"] for base in cls.__mro__ if base.__module__ == MODULE)
    named = kwargs
    if isinstance(filler, functools.partialmethod):     # its arguments are settings of the environment
        filler, named = filler.func, {**{name: Const(held) for name, held in filler.keywords.items()}, **kwargs}
    try:
        given = bound(filler, args, named)
    except TypeError:
        return None
    if given[DISABLE] is NONE or given[DISABLE].truth(m) is not True:
        return None
    m.effect(lambda e: e.line(f"{e.const(START)}({e.const(cls)})"))
    return DisabledBar(cls)


def bound(function: Any, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Any]:
    """The arguments by the names of the parameters. Raises TypeError."""
    given = inspect.signature(function).bind(*args, **kwargs)
    defaults = {name: Const(each.default) if each.default is not None else NONE
                for name, each in given.signature.parameters.items() if each.default is not each.empty}
    return {**defaults, **given.arguments}
