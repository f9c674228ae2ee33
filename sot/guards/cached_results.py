"""Results of functions that ``functools.lru_cache`` caches: read by a call, if the cache has the result.

A call that finds its result runs no code of the program, so guards may make it. C code keeps the cache and makes its
keys; ``Cache`` makes the same keys. It is found among the objects that the function refers to, and compared with what
``cache_info`` says.
"""
from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

from sot.guards.origin import Emit, Inputs, Origin, immutable

CACHED: Any = type(functools.lru_cache(len))


class NotCached:
    """Stands for a result that the cache does not have."""

    def __repr__(self) -> str:
        return "not in the cache"


NOT_CACHED = NotCached()


class Cache:
    """The cache of a function. ``results`` has its keys; ``mark`` is in a key before arguments by name."""

    def __init__(self, function: Any) -> None:
        parts = gc.get_referents(function)
        if parts and parts[-1] is function.__dict__:
            parts.pop()
        results, _, self.mark, *_ = parts[-5:]
        if type(results) is not dict or len(results) != function.cache_info().currsize:
            raise LookupError("the cache of this function is kept in an unknown way")
        self.results: dict[Any, Any] = results
        self.typed: bool = function.cache_parameters()["typed"]

    def has(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        key: Any = args
        if kwargs or self.typed:
            key = (*args, *((self.mark, *(part for item in kwargs.items() for part in item)) if kwargs else ()))
            if self.typed:
                key += (*map(type, args), *map(type, kwargs.values()))
        elif len(args) == 1 and type(args[0]) in (int, str):
            key = args[0]
        return key in self.results


CACHES: weakref.WeakKeyDictionary[Any, Cache] = weakref.WeakKeyDictionary()


def cache_of(function: Any) -> Cache:
    """Raises LookupError if it cannot be found."""
    found = CACHES.get(function)
    if found is None:
        found = CACHES[function] = Cache(function)
    return found


def result_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result that the cache has for these arguments; NOT_CACHED without one."""
    return function(*args, **kwargs) if cache_of(function).has(args, kwargs) else NOT_CACHED


@immutable
class CachedResult(Origin):
    """What a cached function returns for arguments of these origins, if the cache has it; else NOT_CACHED. ``names``
    are those of the last arguments.
    """

    function: Origin
    arguments: tuple[Origin, ...]
    names: tuple[str, ...]
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.const(result_of)}({emit.ref(self.function)}{self._written(map(emit.ref, self.arguments))})"

    def read(self, inputs: Inputs) -> object:
        given = [argument.read(inputs) for argument in self.arguments]
        count = len(given) - len(self.names)
        return result_of(self.function.read(inputs), *given[:count],    # type: ignore[arg-type]
                         **dict(zip(self.names, given[count:], strict=True)))

    def _written(self, arguments: Any) -> str:
        given, count = [*arguments], len(self.arguments) - len(self.names)
        return "".join([f", {v}" for v in given[:count]] + [
            f", {name}={v}" for name, v in zip(self.names, given[count:], strict=True)])

    def __str__(self) -> str:
        return f"{self.function}({self._written(map(str, self.arguments)).removeprefix(', ')})"
