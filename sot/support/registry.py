"""The tables of callables that capture has rules for because they have no Python code to inline.

``handles(f, ...)`` registers a handler: ``handler(m, args, kwargs) -> Value`` computes the call over Values.
``polyfills(f, ...)`` registers plain Python that says the same as ``f``; it is followed like user code.
A method is registered by its descriptor (``list.append``), and its handler gets the object as ``args[0]``;
a class by itself (``enumerate``), and its handler makes the instance.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Container
from types import CodeType, FunctionType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable)

Handler = Callable[..., Any]


class Registry(dict[K, V]):
    """A table to which modules add rows as they are imported. A key is set once; aliases may set the same row again."""

    def __init__(self, what: str, rows: dict[K, V] | None = None) -> None:
        super().__init__()
        self.what = what
        self.places: dict[K, str] = {}
        for key, row in (rows or {}).items():
            self[key] = row

    def __setitem__(self, key: K, row: V) -> None:
        place = _caller()
        if self.get(key, row) is not row:
            raise ValueError(f"{self.what} for {key!r} is registered at {place}, and was at {self.places[key]}")
        self.places.setdefault(key, place)
        super().__setitem__(key, row)

    def add(self, *keys: K) -> Callable[[F], F]:
        """A decorator: the function is the row of these keys."""
        def register(function: F) -> F:
            for key in keys:
                self[key] = function    # type: ignore[assignment]
            return function
        return register

    def find(self, key: Any) -> V | None:
        """The row of a key that may be unhashable, or None."""
        try:
            return self.get(key)
        except TypeError:
            return None


def is_among(table: Container[Any], key: Any) -> bool:
    """``key in table``; an unhashable key is in none."""
    try:
        return key in table
    except TypeError:
        return False


def _caller() -> str:
    """The file and line outside of this file that adds a row."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


HANDLERS: Registry[Any, Handler] = Registry("a handler")
POLYFILLS: Registry[Any, FunctionType] = Registry("a polyfill")
# handler(m, function, args, kwargs) of the closures of a library's function
BY_CODE: Registry[CodeType, Handler] = Registry("a handler of closures")

handles = HANDLERS.add
polyfills = POLYFILLS.add
