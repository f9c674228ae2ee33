"""Assertions, contexts, closures, iteration by protocol, code made of text, and errors of the system."""

from __future__ import annotations

import contextlib

import pytest
import torch
from harness import check

X = torch.arange(1.0, 4.0)


def assert_(x):
    assert x.shape[0] == 3, "bad"
    try:
        assert 0, f"m{x.dim()}"
    except AssertionError as e:
        return x + 1, str(e)


def with_multi(x):
    L = []

    @contextlib.contextmanager
    def c(n):
        L.append(n)
        yield n
        L.append(-n)

    with c(1) as a, c(2) as b, c(3):
        L.append(a + b)
    return x + 1, L


def closure_cells(x):
    def mk():
        v = [0]

        def g():
            v[0] += 1
            return v[0]

        return g

    g = mk()
    g()
    return x * g(), g.__closure__[0].cell_contents, g.__code__.co_freevars


def func_attrs(x):
    def f(a: int = 1) -> str:
        "doc"

    f.k = 3
    return x * f.k, f.__name__, f.__doc__, f.__defaults__, f.__annotations__, f.__qualname__


class It:
    def __init__(s, n):
        s.n = n

    def __iter__(s):
        return s

    def __next__(s):
        if s.n == 0:
            raise StopIteration
        s.n -= 1
        return s.n


def iter_class(x):
    return (
        x + sum(It(4)),
        list(It(3)),
        max(It(3)),
        dict(zip(It(2), "ab")),
        [*map(str, It(2))],
        sorted(It(3)),
        any(It(2)),
        1 in It(3),
        tuple(enumerate(It(2), 1)),
        list(filter(None, It(3))),
    )


class Seq:
    def __getitem__(s, i):
        if i > 2:
            raise IndexError
        return i * 10

    def __len__(s):
        return 3


def seq_(x):
    s = Seq()
    return x + sum(s), list(s), 10 in s, list(reversed(s)), [a for a in s]


def iter_sentinel(x):
    it = iter([1, 2, 0, 3])
    return x + sum(iter(lambda: next(it), 0)), next(it)


def slice_obj(x):
    s = slice(0, 2)
    return x[s], s.start, s.indices(10), [1, 2, 3][s], x[slice(None)], x[[0, 2]], x[..., None].shape


def async_(x):
    async def f():
        return 1

    c = f()
    c.close()
    return x + 1


def locals_(x):
    y = 2
    d = locals()
    return x + 1, sorted(d), d["y"]


def exec_(x):
    ns = {}
    exec("a=1+1", ns)
    return x * ns["a"], eval("2*3")


def nested_func_recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return x * fact(5)


def unpack_dict_call(x):
    def f(*, a, b=1):
        return a * b

    return f(**{"a": x, "b": 2})


def print_kw(x):
    print(*map(str, range(3)), sep="")
    return x + 1


def type_alias_ann(x):
    y: int = 3
    return x * y


def os1(x):
    try:
        raise FileNotFoundError("gone")
    except OSError as e:
        return x + 1, str(e), e.args, repr(e), e.errno, e.filename, e.strerror


def os2(x):
    try:
        raise OSError(2, "gone", "f")
    except FileNotFoundError as e:
        return x + 1, str(e), e.errno


def os3(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise OSError from None
    except OSError as e:
        return x + 1, e.__suppress_context__, type(e.__context__), str(e)


class IOE(OSError):
    def __init__(s, a):
        super().__init__(a)
        s.a = a


def os4(x):
    try:
        raise IOE(4)
    except OSError as e:
        return x + 1, e.a, e.args, str(e)


def note_(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        e.add_note("n")
        e.add_note("m")
        try:
            e.add_note(3)
        except TypeError as t:
            u = str(t)
        return x + 1, e.__notes__, u


def note_uncaught(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        e.add_note("n")
        raise


@pytest.mark.parametrize(
    "fn",
    [assert_, with_multi, func_attrs, iter_class, seq_, iter_sentinel, slice_obj, locals_, nested_func_recursion,
     unpack_dict_call, print_kw, type_alias_ann, os3, note_],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize(
    "fn",
    [closure_cells, async_, exec_, os1, os2, os4, note_uncaught],
    ids=lambda fn: fn.__name__,
)
def test_with_breaks(fn):
    check(fn, X, again=False)
