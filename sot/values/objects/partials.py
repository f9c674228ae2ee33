"""Objects that functools makes of functions during capture: a partial, a cached function, a key of cmp_to_key."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sot.guards.cached_results import CACHED
from sot.polyfills.functional import comparable
from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import Value
from sot.values.objects import DictValue, ObjectValue, TupleValue

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine


class PartialValue(ObjectValue):
    """``partial(func, *args, **keywords)``. Its parts are in ``slots``, as in C."""

    def rebuild(self, e: Emitter) -> str:
        args, keywords = self.slots["args"], self.slots["keywords"]
        assert isinstance(args, TupleValue) and isinstance(keywords, DictValue)
        given = "".join(f", {e.value(v)}" for v in args.items)
        named = "".join(f", {e.key(k)}: {e.value(keywords.overlay[k])}" for k in keywords.keys(None))[2:]
        made = e.variable(self, f"{e.const(self.pytype)}({e.value(self.slots['func'])}{given}, **{{{named}}})")
        if self.has_attrs:
            attrs = self.attrs

            def fill() -> None:
                for k in attrs.keys(None):
                    e.line(f"{made}.{k} = {e.value(attrs.overlay[k])}")
            e.later(fill)
        return made


class CachedFunction(ObjectValue):
    """A function with a cache that the trace has made. ``cache`` is its state, an object of a polyfill's class.

    Arguments:
        given: what ``lru_cache`` made it of: the function, the size, whether types differ, and what the cache tells.
    """

    def __init__(self, given: list[Value], cache: ObjectValue) -> None:
        super().__init__(CACHED)
        self.given, self.cache = given, cache

    def rebuild(self, e: Emitter) -> str:
        if self.cache.attrs.overlay["misses"].real != 0:
            raise NotRebuildable("a cached function of the call, which has been called,")
        made = e.variable(self, f"{e.const(CACHED)}({', '.join(map(e.value, self.given))})")
        e.fill_attrs(made, self)
        return made


class KeyValue(Value):
    """The result of ``functools.cmp_to_key``."""

    pytype: Any = type(functools.cmp_to_key(max))

    def __init__(self, compare: Value) -> None:
        self.compare = compare

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) + len(kwargs) != 1 or {*kwargs} - {"obj"}:
            raise Break(Reason.BAD_CALL, "a key of cmp_to_key()")
        return m.enter(comparable, [self.compare, *args, *kwargs.values()])

    def truth(self, m: Machine) -> bool | None:
        return True

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(functools.cmp_to_key)}({e.value(self.compare)})")
