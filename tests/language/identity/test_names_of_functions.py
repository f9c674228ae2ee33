"""The names and other metadata of functions that were changed."""
from __future__ import annotations

import types

import torch
from harness import same

import sot

X = torch.arange(1.0, 5.0)


def scaled(x, a=2):
    """Text."""
    return x * a


def named(**changes):
    made = types.FunctionType(scaled.__code__, scaled.__globals__, "scaled", scaled.__defaults__)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_names_of_functions_are_those_of_the_call():
    def f(x, g):
        return x + 1, g.__name__, g.__qualname__, g.__doc__, g.__module__, vars(g), g.__defaults__, repr(g)[:14]
    functions = [scaled, named(), named(__name__="other"), named(__qualname__="A.b"), named(__doc__="?"),
                 named(__module__="m"), named(extra=4), named(__defaults__=(5,))]
    for order in (functions, functions[::-1]):
        translated = sot.to_static(f, backend="eager")
        for g in order:
            assert same(translated(X, g), f(X, g)) is None


def test_the_names_of_methods_are_those_of_the_call():
    class Owner:
        def method(self):
            return 1

    def f(x, owner):
        return x + 1, owner.method.__name__, type(owner).method.__qualname__
    translated = sot.to_static(f, backend="eager")
    for name in ("method", "first", "second"):
        Owner.method.__name__ = Owner.method.__qualname__ = name
        assert same(translated(X, Owner()), f(X, Owner())) is None
