"""What users' programs did otherwise when they were captured, each with its kin."""
import collections
import math

import pytest
import torch

import sot

X = torch.arange(6.0).reshape(2, 3) / 3


def angles(x, a):
    return x + 1, math.atan2(a, -1.0), math.copysign(1, a), str(a)


def computed_angles(x, a):
    return x + 1, math.atan2(a * 2.0, -1.0), math.copysign(1, -a)


@pytest.mark.parametrize("fn", [angles, computed_angles])
def test_signs_of_zeros(fn):
    translated = sot.to_static(fn, backend="eager")
    for a in (0.0, -0.0, 0.0, 1.0, -0.0, 0.0, 2.0, -0.0):
        assert repr(translated(X, a)[1:]) == repr(fn(X, a)[1:])


@pytest.mark.parametrize("number", [complex(-0.0, 0.0), complex(0.0, -0.0), complex(1.0, math.inf), complex(0.0, 1.0)])
def test_complex_constants(number):
    def fn(x):
        return torch.view_as_real(x * number)
    ones = torch.ones(2, dtype=torch.complex64)
    found, expected = sot.to_static(fn, backend="eager")(ones), fn(ones)
    assert torch.equal(torch.signbit(found), torch.signbit(expected))
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_fromkeys_of_an_iterator(kind):
    def fn(x):
        names = {"a": x, "b": x}
        return sorted(kind.fromkeys(iter(names), x - 2)), sorted(kind.fromkeys(n for n in names))
    assert sot.to_static(fn, backend="eager")(X) == fn(X)


def test_keyword_defaults_that_a_program_changes():
    def made(x):
        def inner(*, b=2):
            return b
        inner.__kwdefaults__["b"] = 9
        return x * inner()

    def existing(x):
        before = outer()
        outer.__kwdefaults__["b"] += 1
        return x * outer() + before

    def outer(*, b=2):
        return b

    torch.testing.assert_close(sot.to_static(made, backend="eager")(X), made(X))
    translated = sot.to_static(existing, backend="eager")
    for k in range(3):
        torch.testing.assert_close(translated(X), X * (3 + k) + 2 + k)


@pytest.mark.parametrize("name", ["__set__", "__delete__"])
def test_a_descriptor_that_becomes_another_kind(name):
    class Five:
        def __get__(self, instance, owner):
            return 5

    class Holder:
        field = Five()

    def fn(x):
        return x * holder.field

    holder = Holder()
    holder.__dict__["field"] = 100
    translated = sot.to_static(fn, backend="eager")
    torch.testing.assert_close(translated(X), X * 100)
    setattr(Five, name, lambda *args: None)
    torch.testing.assert_close(translated(X), X * 5)
    delattr(Five, name)
    torch.testing.assert_close(translated(X), X * 100)
