"""Classes: metaclasses, descriptors, slots, attribute hooks, operators, the order of methods."""

from __future__ import annotations

import pytest
import torch
from harness import check

X = torch.arange(1.0, 4.0)


class Meta(type):
    def __new__(mc, n, b, ns, **kw):
        c = super().__new__(mc, n, b, ns)
        c.reg = kw.get("tag", "none")
        return c

    def __init__(c, n, b, ns, **kw):
        super().__init__(n, b, ns)

    def __call__(c, *a, **k):
        o = super().__call__(*a, **k)
        o.made = True
        return o

    def __len__(c):
        return 7

    def __getitem__(c, i):
        return i * 2

    def __iter__(c):
        return iter([1, 2])

    def __contains__(c, v):
        return v == 3

    @property
    def prop(c):
        return c.__name__


class MC(metaclass=Meta, tag="t"):
    def __init__(s, x):
        s.x = x


def meta_(x):
    o = MC(x * 2)
    return o.x, o.made, MC.reg, len(MC), MC[4], list(MC), 3 in MC, MC.prop


class Base:
    subs = []

    def __init_subclass__(c, **k):
        super().__init_subclass__()
        c.kw = k
        Base.subs.append(c.__name__)


class Sub(Base, flag=1):
    pass


def init_subclass(x):
    return x * Sub.kw["flag"], Base.subs


class Desc:
    def __set_name__(s, o, n):
        s.n = "_" + n

    def __get__(s, o, t=None):
        return s if o is None else getattr(o, s.n, None)

    def __set__(s, o, v):
        setattr(o, s.n, v)

    def __delete__(s, o):
        delattr(o, s.n)


class HasD:
    d = Desc()

    def __init__(s, v):
        s.d = v


def desc_(x):
    h = HasD(x)
    h.d = h.d * 2
    v = h.d
    del h.d
    return v, h.d, HasD.d.n, vars(h)


class Sl:
    __slots__ = ("a", "b")

    def __init__(s, a):
        s.a = a


def slots_(x):
    s = Sl(x)
    try:
        s.b
    except AttributeError as e:
        m = str(e)
    s.b = 2
    del s.b
    try:
        s.c = 1
    except AttributeError as e:
        n = str(e)
    return s.a * 2, hasattr(s, "b"), m, n


class GA:
    def __init__(s):
        s.log = []

    def __getattr__(s, n):
        if n.startswith("dyn_"):
            return n[4:]
        raise AttributeError(n)

    def __setattr__(s, n, v):
        object.__setattr__(s, n, v if n == "log" else [v])

    def __delattr__(s, n):
        s.log.append(n)
        object.__delattr__(s, n)


def getattr_(x):
    g = GA()
    g.y = 3
    del g.y
    return x + 1, g.dyn_abc, getattr(g, "zz", 5), g.log, hasattr(g, "nope")


class GAb:
    def __getattribute__(s, n):
        if n == "v":
            return 4
        return super().__getattribute__(n)


def getattribute(x):
    return x * GAb().v, GAb().__class__.__name__


class Num:
    def __init__(s, v):
        s.v = v

    def __add__(s, o):
        return Num(s.v + (o.v if isinstance(o, Num) else o))

    __radd__ = __add__

    def __iadd__(s, o):
        s.v = s.v + o
        return s

    def __mul__(s, o):
        return NotImplemented

    def __rmul__(s, o):
        return "r"

    def __neg__(s):
        return Num(-s.v)

    def __abs__(s):
        return abs(s.v)

    def __eq__(s, o):
        return isinstance(o, Num) and s.v == o.v

    def __hash__(s):
        return hash(s.v)

    def __bool__(s):
        return s.v != 0

    def __int__(s):
        return int(s.v)

    def __float__(s):
        return float(s.v)

    def __index__(s):
        return int(s.v)

    def __call__(s, *a, **k):
        return (a, k)

    def __getitem__(s, i):
        return i

    def __len__(s):
        return 3

    def __contains__(s, i):
        return i == s.v

    def __matmul__(s, o):
        return "mm"

    def __divmod__(s, o):
        return "dm"

    def __pow__(s, o, m=None):
        return ("pow", o, m)

    def __round__(s, n=None):
        return ("round", n)

    def __reversed__(s):
        return iter("rev")

    def __lshift__(s, o):
        return "ls"

    def __invert__(s):
        return "inv"

    def __format__(s, f):
        return "F" + f

    def __complex__(s):
        return 1j

    def __trunc__(s):
        return 9


def operators(x):
    n = Num(2)
    m = n
    m += 5
    return (
        x * n.v,
        (n + 1).v,
        (1 + n).v,
        m is n,
        3 * n if False else Num.__rmul__(n, 3),
        (-n).v,
        abs(n),
        n == Num(7),
        bool(Num(0)),
        int(n),
        float(n),
        [0] * n,
        n(1, a=2),
        n[1:2],
        n[..., 1],
        len(n),
        7 in n,
        n @ 1,
        divmod(n, 2),
        pow(n, 2, 3),
        n**2,
        round(n),
        round(n, 2),
        list(reversed(n)),
        n << 1,
        ~n,
        f"{n:x}",
        complex(n),
        range(10)[n],
        {n: 1}[Num(7)],
        hex(n),
    )


def mul_error(x):
    try:
        Num(1) * 2
    except TypeError as e:
        return x + 1, str(e)


def super_multi(x):
    class A:
        def f(s, v):
            return v + 1

    class B(A):
        def f(s, v):
            return super().f(v) * 2

    class C(A):
        def f(s, v):
            return super().f(v) * 3

    class D(B, C):
        def f(s, v):
            return super().f(v) + super(B, s).f(v)

    return D().f(x), [c.__name__ for c in D.__mro__]


class Cnt:
    n = 0

    @classmethod
    def inc(c):
        c.n += 1
        return c.n

    @staticmethod
    def st(v):
        return v * 2


def classattr(x):
    r = Cnt.inc()
    Cnt.n -= 1
    return x * r, Cnt.st(3), Cnt().st(x)


@pytest.mark.parametrize(
    "fn",
    [meta_, init_subclass, desc_, slots_, getattr_, getattribute, mul_error, super_multi],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [operators, classattr], ids=lambda fn: fn.__name__)
def test_with_breaks(fn):
    check(fn, X, again=False)
