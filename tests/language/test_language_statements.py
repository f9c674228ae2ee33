"""Generators, exceptions, match, unpacking, scopes and loops, statement by statement."""

from __future__ import annotations

import pytest
import torch
from harness import check

X = torch.arange(1.0, 4.0)


class Sl:
    __slots__ = ("a", "b")

    def __init__(s, a):
        s.a = a


def gen(x):
    try:
        r = yield x
        while True:
            r = yield r * 2
    except GeneratorExit:
        LOGG.append("closed")
        raise
    except ValueError as e:
        yield str(e)
    finally:
        LOGG.append("fin")


LOGG = []


def gen_(x):
    LOGG.clear()
    g = gen(x)
    a = next(g)
    b = g.send(x + 1)
    c = g.throw(ValueError("v"))
    try:
        next(g)
    except StopIteration as e:
        d = e.value
    g2 = gen(x)
    next(g2)
    g2.close()
    return a, b, c, d, list(LOGG)


def sub(n):
    for i in range(n):
        got = yield i
    return "ret"


def deleg(x):
    r = yield from sub(2)
    yield x * 2
    yield r
    yield from [5, 6]


def yield_from(x):
    return list(deleg(x))


def gen_expr(x):
    g = (x * i for i in range(4) if i % 2)
    return sum(g), next(g, None)


def gen_return(x):
    def g():
        yield x
        return 3

    it = g()
    next(it)
    try:
        next(it)
    except StopIteration as e:
        return e.value, x + 1


def exc_group(x):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError("t"), ExceptionGroup("h", [ValueError(2)])])
    except* ValueError as eg:
        out.append([str(e) for e in eg.exceptions][0])
    except* TypeError as eg:
        out.append(len(eg.exceptions))
    return x + 1, out


def exc_chain(x):
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise ValueError("v") from e
    except ValueError as e:
        c = type(e.__cause__), e.__suppress_context__
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise RuntimeError("r")
    except RuntimeError as e:
        d = type(e.__context__), e.__cause__
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise OSError from None
    except OSError as e:
        f = e.__suppress_context__, type(e.__context__)
    return x + 1, c, d, f


class MyErr(Exception):
    def __init__(s, a, b=2):
        super().__init__(a)
        s.b = b

    def __str__(s):
        return f"my{s.b}"


def exc_custom(x):
    try:
        raise MyErr(1, b=5)
    except (KeyError, MyErr) as e:
        e.add_note("n")
        return x + 1, str(e), e.args, e.b, e.__notes__, repr(e)


def finally_(x):
    def f():
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    return i
            finally:
                L.append(i)

    L = []
    r = f()
    return x + r, L


def try_else(x):
    L = []
    for i in range(3):
        try:
            if i == 1:
                raise ValueError
        except ValueError:
            L.append("e")
        else:
            L.append("o")
        finally:
            L.append("f")
    else:
        L.append("le")
    return x + 1, L


def match_(x):
    def m(v):
        match v:
            case 0 | 1:
                return "small"
            case int(n) if n > 100:
                return f"big{n}"
            case [a, *rest, b]:
                return (a, rest, b)
            case {"k": k, **o}:
                return (k, o)
            case str() as s:
                return s.upper()
            case Sl(a=q):
                return q
            case p:
                return type(p).__name__

    return x + 1, [m(v) for v in (0, 500, [1, 2, 3, 4], {"k": 1, "z": 2}, "ab", Sl(9), 2.5, None, True)]


class Pt:
    __match_args__ = ("x", "y")

    def __init__(s, x, y):
        s.x, s.y = x, y


def match_class(x):
    match Pt(x, 3):
        case Pt(a, 3) if a.shape[0] == 3:
            return a * 2
        case Pt(_, _):
            return 0


def star_(x):
    a, *b, c = range(5)
    (d, (e, *f)), g = (1, (2, 3, 4)), 5

    def h(p, /, q, *r, s=1, **t):
        return (p, q, r, s, t)

    return (
        x + 1,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h(1, 2, 3, s=4, u=5),
        h(*[1, 2], **{"s": 3}),
        [*b, *"ab"],
        {**{"a": 1}, "b": 2},
        (*b,),
        {*b},
    )


def posonly_error(x):
    def h(p, /):
        return p

    try:
        h(p=1)
    except TypeError as e:
        return x + 1, str(e)


G = 0


def global_(x):
    global G
    G += 1
    n = 0

    def inc():
        nonlocal n
        n += 1
        return n

    inc()
    inc()
    G -= 1
    return x + n, G


def del_(x):
    d = {"a": 1, "b": 2}
    del d["a"]
    l = [1, 2, 3, 4]
    del l[1:3]
    y = 1
    del y
    try:
        y  # noqa: F821
    except UnboundLocalError as e:
        m = str(e)
    return x + 1, d, l, m


def walrus(x):
    if (n := x.shape[0]) > 2 and (m := n * 2):
        x = x + m
    return x, [y for i in range(5) if (y := i * i) > 3], y


def comprehension(x):
    return (
        {i: x * i for i in range(3)},
        {i % 2 for i in range(5)},
        [[i * j for j in range(2)] for i in range(2)],
        [(i, j) for i in range(3) for j in range(i)],
    )


def lambda_default(x):
    fs = [lambda v, i=i: v * i for i in range(3)]
    gs = [lambda: i for i in range(3)]
    return [f(x) for f in fs], [g() for g in gs]


def chained_cmp(x):
    n = x.shape[0]
    return x + 1, 1 < n <= 3 != 4, not n == 3 or n, n if n else 0, n and "a" or "b"


def while_else(x):
    i = 0
    while i < 5:
        i += 1
        if i == 9:
            break
    else:
        i = 100
    return x + i


@pytest.mark.parametrize(
    "fn",
    [gen_, yield_from, gen_expr, gen_return, exc_custom, finally_, try_else, match_, match_class, star_, global_,
     del_, walrus, comprehension, lambda_default, chained_cmp, while_else],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize(
    "fn",
    [exc_group, exc_chain, posonly_error],
    ids=lambda fn: fn.__name__,
)
def test_with_breaks(fn):
    check(fn, X, again=False)
