"""functools and operator: caches, dispatch, partial application, orders."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
from harness import check

X = torch.arange(1.0, 4.0)


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def lru_(x):
    return x * fib(10), fib.cache_info().currsize > 0


@functools.cache
def tbl(n):
    return [i * i for i in range(n)]


def cache_list(x):
    t = tbl(4)
    return x + sum(t), tbl(4) is t


def local_lru(x):
    @functools.lru_cache
    def g(n):
        return n * 2

    return x + g(3) + g(3), g.cache_info().hits


@functools.singledispatch
def sd(a):
    return "obj"


@sd.register
def _(a: int):
    return "int"


@sd.register(list)
def _(a):
    return "list"


@sd.register
def _(a: torch.Tensor):
    return a * 2


def singledispatch(x):
    return sd(x), sd(1), sd([1]), sd("s"), sd(True)


class SDM:
    @functools.singledispatchmethod
    def f(self, a):
        return "o"

    @f.register
    def _(self, a: int):
        return a + 1

    @f.register
    def _(self, a: torch.Tensor):
        return a + 1


def singledispatchmethod(x):
    s = SDM()
    return s.f(x), s.f(2), s.f("a")


class CP:
    def __init__(s, x):
        s.x = x
        s.n = 0

    @functools.cached_property
    def v(s):
        s.n += 1
        return s.x * 2

    @property
    def w(s):
        return s.x + 1

    @w.setter
    def w(s, v):
        s.x = v

    def base(s, a, b=2, *, c=3):
        return s.x * a + b + c

    half = functools.partialmethod(base, 0.5)
    other = functools.partialmethod(base, b=1, c=1)


def cached_property(x):
    c = CP(x)
    return c.v + c.v, c.n, "v" in c.__dict__


def partialmethod(x):
    c = CP(x)
    return c.half(), c.other(2), c.half(c=9)


def property_set_(x):
    c = CP(x)
    c.w = x * 3
    return c.w, c.x


@functools.total_ordering
class Ver:
    def __init__(s, *p):
        s.p = p

    def __eq__(s, o):
        return s.p == o.p

    def __lt__(s, o):
        return s.p < o.p


def total_ordering(x):
    return x + 1, Ver(1, 2) > Ver(1, 1), Ver(1) >= Ver(2), Ver(1) <= Ver(1), max([Ver(1), Ver(3), Ver(2)]).p


def reduce_(x):
    return functools.reduce(operator.add, [x, x * 2, x * 3]), functools.reduce(lambda a, b: a * b, [1, 2, 3], 1)


def deco(f):
    @functools.wraps(f)
    def w(*a, **k):
        return f(*a, **k) * 2

    return w


@deco
def dd(x):
    "doc"
    return x + 1


def wraps_(x):
    return dd(x), dd.__name__, dd.__doc__, dd.__wrapped__(x)


def local_wraps(x):
    @deco
    def h(x):
        return x - 1

    return h(x), h.__name__


def partial_(x):
    f = functools.partial(torch.add, x, alpha=2)
    g = functools.partial(f, x)
    return g(), g.args[0].shape, g.keywords, g.func is torch.add


@pytest.mark.parametrize(
    "fn",
    [
        cache_list,
        singledispatch,
        cached_property,
        partialmethod,
        property_set_,
        total_ordering,
        reduce_,
        wraps_,
        local_wraps,
        partial_,
    ],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [lru_, local_lru, singledispatchmethod], ids=lambda fn: fn.__name__)
def test_with_breaks(fn):
    check(fn, X, again=False)
