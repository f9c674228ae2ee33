"""``locals()``: one dict for a frame before CPython 3.13, whatever the breaks; another one at each call since."""
import pytest
import torch
from harness import Programs, check

import sot

X = torch.arange(3.0)
program, with_breaks = Programs(), Programs()


@program
def called_twice(x):
    y = x + 1
    first = locals()
    z = y * 2
    names = sorted(first)
    second = locals()
    return names, sorted(first), first is second, z


@program
def written_to(x):
    y = x + 1
    locals()["q"] = 4
    first = locals()
    first["y"] = 7
    seen = first["y"], y
    del x
    return seen, sorted(locals()), first["y"], vars()["y"]


@program
def in_a_loop(x):
    found = []
    for i in range(3):
        found.append(locals())
        x = x + i
    return [(d["i"], d is found[0], "d" in d) for d in found], x


@program
def in_the_order_of_the_code(x):
    for k in range(2):
        if k:
            a = 1
        b = 2
    return [*locals()], x + a + b


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks
def after_exec(x):
    exec("d = x * 4")
    return x + 1, locals().get("d")


@with_breaks
def exec_in_it(x):
    y = x + 1
    names = locals()
    exec("d = y * 4", globals(), names)
    return y * 2, sorted(names), sorted(locals())


@with_breaks
def before_and_after_a_break(x):
    y = x + 1
    names = locals()
    names["q"] = y
    sot.graph_break()
    z = y * 2
    return sorted(locals()), sorted(names), z


def inner(x):
    y = x + 1
    exec("q = 3")
    return y, sorted(locals())


@with_breaks
def in_a_callee(x):
    return inner(x * 2), x + 1


@with_breaks
def in_a_loop_that_breaks(x):
    found = []
    for i in range(3):
        found.append(locals())
        sot.graph_break()
        x = x + i
    return [d["i"] for d in found], x


@with_breaks.each
def test_is_pythons_with_breaks(fn):
    check(fn, X)


def once(x):
    y = x + 1
    names = sorted(locals())
    sot.graph_break()
    return names, y * 2


def text_with_names(x):
    names = {}
    exec("k = 2", names)
    y = x * names["k"]
    return y + eval("k + 1", names)


@pytest.mark.parametrize("fn", [once, text_with_names])
def test_a_function_that_uses_its_dict_once_is_captured_around_breaks(fn):
    assert check(fn, X).graphs
