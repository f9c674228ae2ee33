"""The two tables of what capture knows about callables that have no Python code to follow.

``handles(f, ...)`` registers a handler: ``handler(m, args, kwargs) -> Value`` computes the call over Values.
``polyfills(f, ...)`` registers plain Python that says the same as ``f``; it is followed like user code.
A method is registered by its descriptor (``list.append``), and its handler gets the object as ``args[0]``;
a class by itself (``enumerate``), and its handler makes the instance.
"""
from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sot.execute.machine import Machine
    from sot.values.base import Value

Handler = Callable[["Machine", "list[Value]", "dict[str, Value]"], "Value"]
F = TypeVar("F", bound=Callable)

HANDLERS: dict[Any, Handler] = {}
POLYFILLS: dict[Any, FunctionType] = {}
BY_CODE: dict[CodeType, Callable] = {}      # handler(m, function, args, kwargs) of the closures of a library's function


def handles(*targets: Any) -> Callable[[F], F]:
    def register(handler: F) -> F:
        for target in targets:
            HANDLERS[target] = handler
        return handler
    return register


def polyfills(*targets: Any) -> Callable[[F], F]:
    def register(function: F) -> F:
        for target in targets:
            POLYFILLS[target] = function  # type: ignore[assignment]
        return function
    return register


def find(table: dict, target: Any) -> Any:
    """The row of a callable that may be unhashable, or None."""
    try:
        return table.get(target)
    except TypeError:
        return None
