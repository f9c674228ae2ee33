"""Methods of builtin types that are called with too few or too many arguments: Python's exception, which is caught."""
import copy

import pytest
import torch
from harness import same

import sot

VALUES = ["a%s{}b", b"ab", 5, 2.5, 1j, [3, 1, 2], (3, 1), {"a": 1}, {1, 2}, frozenset({1})]
SUBCLASSES = [type(f"Of{type(v).__name__}", (type(v),), {})(v) for v in VALUES]
SPECIAL = ("__len__", "__iter__", "__getitem__", "__contains__", "__eq__", "__add__", "__str__", "__repr__", "__hash__")


def methods_of(value):
    base = next(c for c in type(value).__mro__ if c.__module__ == "builtins")
    return [n for n in dir(base) if callable(getattr(base, n)) and (n[:2] != "__" or n in SPECIAL)]


@pytest.mark.parametrize("value", VALUES + SUBCLASSES, ids=lambda v: type(v).__name__)
def test_wrong_numbers_of_arguments(value):
    for name in methods_of(value):
        for args in ((), ("a",), (1, 2), ("a", "b", "c", "d"), ([1],) * 5):
            def program(x, v, name=name, args=args):
                y = x + 1
                try:
                    found = getattr(v, name)(*args)
                except Exception as e:  # noqa: BLE001 - whatever the method raises
                    return y, type(e), str(e), v
                return y, type(found), v
            want = program(torch.ones(1), copy.copy(value))
            got = sot.to_static(program, backend="eager")(torch.ones(1), copy.copy(value))
            assert not same(got, want), (name, args, got, want)


def keywords(x, v):
    found = []
    for call in (lambda: v.sort(reverse=True, down=1), lambda: v.append(object=1), lambda: v.index(value=1),
                 lambda: sorted(v, kye=abs), lambda: sum(v, begin=2), lambda: len(obj=v)):
        try:
            found.append(call())
        except TypeError as e:
            found.append(str(e))
    return x + 1, found, v


def test_unknown_keywords():
    want, got = keywords(torch.ones(1), [3, 1]), sot.to_static(keywords, backend="eager")(torch.ones(1), [3, 1])
    assert not same(got, want)
