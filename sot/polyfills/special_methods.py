"""Builtins that answer with what a special method returns. Python checks this: the type and, for some, the range."""
from __future__ import annotations

from operator import index


def answer(function, name, kind, result):
    """What ``function`` gives for an object of a class named ``kind`` whose special method has returned ``result``.
    Capture calls this, too, because words and conversions differ between versions of Python.
    """
    return function(type(kind, (), {name: lambda *args: result})())


def by_method(function, name, kind, method, *args):
    return answer(function, name, kind, method(*args))


def number(function, name, kind, method):
    """``int``, ``float`` or ``complex`` of an object, which may have only a method of a narrower kind of number."""
    return function(answer(function, name, kind, method()))


def truth(kind, method):
    """``bool(obj)`` by its ``__bool__``."""
    result = method()
    return result if result is True or result is False else answer(bool, "__bool__", kind, result)


def length(kind, method):
    """``len(obj)``"""
    return answer(len, "__len__", kind, index(method()))


def is_nonempty(kind, method):
    """``bool(obj)`` by its ``__len__``."""
    return length(kind, method) > 0
