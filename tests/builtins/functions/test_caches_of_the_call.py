"""Cached functions and functions by type that the captured function makes itself."""
from __future__ import annotations

import collections.abc
import functools

import torch
from harness import Programs, check

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


@program
def calls_that_are_cached(x):
    calls = []

    @functools.cache
    def f(n):
        calls.append(n)
        return x * n
    return f(3) + f(3) + f(4), f(3) is f(3), calls, f.cache_info(), f.__name__, f.cache_parameters()


@program
def recursive(x):
    @functools.lru_cache(maxsize=None)
    def power(n):
        return 1 if n == 0 else 2 * power(n - 1)
    return x * power(5), power(3), power.cache_info()


@program
def few_results(x):
    @functools.lru_cache(maxsize=2)
    def f(a, *, b=1):
        seen.append((a, b))
        return a + b
    seen = []
    found = [f(1), f(2), f(1), f(3), f(2), f(1, b=2), f(1), f(1, b=2)]
    info = f.cache_info()
    f.cache_clear()
    return x + sum(found), info, f.cache_info(), f.__wrapped__(5), seen


@program
def keys(x):
    def counted(f):
        def inner(*args, **kw):
            calls.append((args, [*kw.items()]))
            return len(calls)
        return f(inner)
    calls = []
    plain, typed = counted(functools.lru_cache(16)), counted(functools.lru_cache(16, typed=True))
    none, direct = counted(functools.lru_cache(0)), counted(functools.lru_cache)
    found = [f(*args, **kw) for f in (plain, typed, none, direct) for args, kw in (
        ((3,), {}), ((3.0,), {}), ((True,), {}), ((3,), {}), ((1, 2), {}), ((1,), {"b": 2}), ((1, 2.0), {}), ((x,), {}),
        ((x,), {}), ((), {"b": 2, "a": 1}), ((), {"a": 1, "b": 2}), (("a",), {}), ((("a",),), {}))]
    try:
        plain([])
    except TypeError as e:
        return x + 1, found, str(e), plain.cache_info(), typed.cache_info(), none.cache_info()


@program
def exceptions_are_not_cached(x):
    @functools.cache
    def f(n):
        calls.append(n)
        raise ValueError(n)
    calls = []
    for _ in range(2):
        try:
            f(1)
        except ValueError:
            pass
    return x + 1, calls, f.cache_info()


@program
def methods_of_a_class_of_the_call(x):
    class Local:
        @functools.lru_cache(None)  # noqa: B019
        def twice(self, v):
            calls.append(v)
            return v * 2
    calls = []
    c = Local()
    return x * c.twice(2), c.twice(2), calls, Local.twice.cache_info()


@program
def by_type(x):
    @functools.singledispatch
    def show(v, k=1):
        return "other"

    @show.register
    def _(v: int, k=1):
        return v + k

    @show.register(list)
    @show.register(tuple)
    def _(v, k=1):
        return [show(i) for i in v]

    @show.register
    def _(v: collections.abc.Mapping | set, k=1):
        return "mapping"
    show.register(torch.Tensor, lambda v, k=1: v * 2)
    try:
        show.register(3)
    except TypeError as e:
        text = str(e)
    try:
        show()
    except TypeError as e:
        return (show(x), show([1, "a", x]), show(True, 3), show({}), show(set()),
                show.dispatch(bool) is show.dispatch(int), [*show.registry][:3], text, str(e))


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


def makes(x):
    @functools.lru_cache(maxsize=8)
    def f(n):
        return n * 2

    @functools.singledispatch
    def show(v):
        return "other"
    show.register(int, lambda v: v + 1)
    return x + 1, f, show


def makes_and_calls(x):
    @functools.cache
    def f(n):
        return n * 2
    return x + f(2), f


def test_what_leaves_the_function():
    translated = sot.to_static(makes, backend="eager")
    for _ in range(2):
        _, f, show = translated(X)
        assert f(3) == 6 and f.cache_info() == (0, 1, 8, 1)
        assert f.__name__ == "f" and f.cache_parameters()["maxsize"] == 8
        assert (show(1), show("a"), show(True)) == (2, "other", 2)
        show.register(str, len)
        assert show("abc") == 3 and show._clear_cache() is None
    assert not [c for c in translated.captures if c.stopped]
    translated = sot.to_static(makes_and_calls, backend="eager")
    for _ in range(2):
        assert translated(X)[1].cache_info() == makes_and_calls(X)[1].cache_info()
