"""Functions whose code the program exchanges, as decorators of torch 2.15 do to name their frames."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, check

import sot

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


def renamed(f, name):
    f.__code__ = f.__code__.replace(co_name=name, co_qualname=name)
    return f


@program
def code_with_another_name(x):
    def inner(y, k=3):
        return y * k
    f = renamed(inner, "other")
    return f(x), f.__name__, f.__qualname__, f.__code__.co_name


@program
def code_of_another_function(x):
    a = 3

    def inner(y):
        return y * a

    def other(y):
        return y + a
    before = inner(x)
    inner.__code__ = other.__code__
    return before, inner(x)


@with_breaks
def code_with_other_variables(x):
    a = 3

    def inner(y):
        return y * a
    try:
        inner.__code__ = (lambda y: y).__code__
    except ValueError as e:
        return str(e), inner(x)


@with_breaks
def other_code_before_a_break(x):
    def inner(y):
        return y * 2
    inner.__code__ = (lambda y: y + 2).__code__
    if x.sum().item() > 3:
        x = x * 2
    return inner(x)


@program
def a_decorator_of_torch(x):
    @torch.no_grad()
    def inner(y):
        return y * 2
    return inner(x), inner.__name__


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function_with_other_code_is_returned(backend):
    def make(x):
        a = x.shape[0]

        def inner(y, *, k=3):
            return y * k + a

        @torch.no_grad()
        def quiet(y):
            return y * a
        return renamed(inner, "other"), quiet, x + 1
    names = []
    for run in (make, sot.to_static(make, backend=backend)):
        functions = run(X)[:2]
        names.append([(f.__name__, f.__qualname__, f.__code__.co_name, f.__code__.co_qualname, f(X).tolist())
                      for f in functions])
    assert names[0] == names[1]


def test_the_name_of_other_code_is_in_tracebacks():
    def fails(x):
        def inner(y):
            return y[x.shape[0]]
        return renamed(inner, "other")(x)
    frames = []
    for run in (fails, sot.to_static(fails)):
        with pytest.raises(IndexError) as found:
            run(X)
        frames.append([entry.name for entry in found.traceback[1:]])
    assert frames[0] == frames[1] == ["fails", "other"]
