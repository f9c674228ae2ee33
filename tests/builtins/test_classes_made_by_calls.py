"""Named tuples, and classes by ``type``, that the program makes itself: another class at every call."""
from __future__ import annotations

import collections

import torch
from harness import Programs, check

import sot

program = Programs()


@program
def fields(x):
    P = collections.namedtuple("P", "a b")
    p = P(x, 2)
    a, b = p
    return p.a * p.b + len(p), p._replace(b=3).b, a + b, p[1], P._fields


@program
def defaults_and_methods(x):
    P = collections.namedtuple("P", ["a", "b"], defaults=(4,))
    return P(x).b + x, P._make([x, 1]).a, P(1)._asdict(), repr(P(1)), P(1) == P(1, 4), isinstance(P(x), tuple)


@program
def a_base(x):
    class P(collections.namedtuple("P", "a b")):
        def total(self):
            return self.a + self.b
    return P(x, 2).total(), P._field_defaults, P.__bases__[0].__name__


@program
def by_type(x):
    T = type("T", (Base,), {"k": 3, "f": lambda self, y: y * self.k, "p": property(lambda self: self.k + 1)})
    t = T(x)
    return t.f(t.x) + t.p, T.__name__, T.__module__, isinstance(t, Base), T.__mro__[1] is Base, T.__qualname__


class Base:
    def __init__(self, x):
        self.x = x


@program.each
def test_one_graph(fn):
    check(fn, torch.randn(4, 3), graphs=1, breaks=0)


def test_the_class_leaves_the_function():
    def made(x):
        P = collections.namedtuple("P", "a b")
        return P(x + 1, 2), P, P(1, 2)._replace
    translated = sot.to_static(made)
    seen = set()
    for _ in range(2):
        p, cls, replace = translated(torch.ones(2))
        assert type(p) is cls and cls.__module__ == __name__ and cls.__name__ == "P" and p.b == 2
        assert torch.equal(p.a, torch.full((2,), 2.)) and type(replace(a=3)) is cls and replace(a=3) == (3, 2)
        assert cls not in seen
        seen.add(cls)


def test_what_python_refuses():
    def refused(x):
        return collections.namedtuple("P", "a a")(x, x)
    check(refused, torch.ones(2))
