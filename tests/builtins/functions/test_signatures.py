"""``inspect.signature`` of functions that the call makes."""
from __future__ import annotations

import functools
import inspect

import torch
from harness import Programs, check

X = torch.arange(1.0, 5.0)
program = Programs()


@program
def every_kind_of_parameter(x):
    def made(a, b: int = 2, /, c=(1, 2), *rest, d=3, e, **more) -> float:
        return a
    s = inspect.signature(made)
    bound = s.bind(x, 5, e=7, z=8)
    bound.apply_defaults()
    return (str(s), list(s.parameters), s.parameters["b"].default, s.parameters["d"].kind.name,
            s.parameters["e"].default is inspect.Parameter.empty, s.return_annotation, bound.arguments["c"],
            made(*bound.args, **bound.kwargs) + 1)


@program
def a_decorator_that_chooses_keywords(x):
    def choosing(f):
        names = list(inspect.signature(f).parameters)

        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            return f(*args, **{k: v for k, v in kwargs.items() if k in names})
        return wrapper

    @choosing
    def made(x, y=1, *, z=None):
        return x * y
    return made(x, y=3, q=4), str(inspect.signature(made))


@program
def methods_and_cells(x):
    class Made:
        def method(self, a, b=2):
            return a + x
    made = lambda a, *, b=1: a + x     # noqa: E731 - its name is part of the test
    made.__kwdefaults__["b"] = 7
    return [str(inspect.signature(f)) for f in (Made().method, Made.method, made)], x + 1


@program.each
def test_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


def test_a_default_that_is_a_tensor():
    def fn(x):
        def made(a, b=x):
            return a
        return inspect.signature(made).parameters["b"].default is x, x + 1
    check(fn, X, again=False)


def test_a_default_that_differs_from_call_to_call():
    def fn(x, n):
        def made(a, b=n):
            return a
        return inspect.signature(made).parameters["b"].default, x + n
    for n in range(4):
        check(fn, X, n)
