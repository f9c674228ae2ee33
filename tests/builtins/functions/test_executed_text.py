"""``exec`` and ``eval`` of known text: in dicts of the call, in dicts that existed, in the variables of a function."""
import torch
from harness import Programs, check, check_by

import sot

captured, left = Programs(), Programs()
SCOPE = {}


@captured
def in_a_dict_of_the_call(x):
    scope = {"x": x, "torch": torch}
    exec("y = torch.sin(x) * 2", scope)
    return scope["y"], eval("a + 1", {"a": 2}), list(scope)


@captured
def with_functions_and_classes(x):
    scope = {"x": x}
    exec("""
import math
def f(v, k=2):
    return v * k + math.pi + z
class C:
    n = 3
    def m(self, t):
        return t + self.n + f(t)
z = 4
del x
numbers = [f(i) for i in range(3)]
""", scope)
    return scope["f"](x), scope["C"]().m(x), scope["numbers"], scope["z"], "x" in scope, scope["C"].__module__


@captured
def with_decorators(x):
    scope = {}      # no __name__ in it: the functions are of no module
    exec("""
from functools import wraps
def twice(f):
    @wraps(f)
    def call(*args):
        return f(*args) * 2
    return call
@twice
def g(v):
    return v + 1
""", scope, scope)
    return scope["g"](x), scope["g"].__module__, scope["g"].__name__


@captured
def in_the_variables_of_the_function(x):
    k = 3
    return eval("x + k"), eval(" k * 2"), eval("k", None, {"k": 9})


@captured
def with_other_locals(x):
    found = {}
    exec("v = w + 1", {"w": x}, found)
    return found


@captured
def with_errors_that_are_caught(x):
    try:
        exec("y = = 3", {})
    except SyntaxError as e:
        first = str(e), e.lineno, e.text
    try:
        eval("nope + 1", {})
    except NameError as e:
        second = str(e)
    return first, second, x + 1


@left
def a_break_inside(x):
    scope = {"x": x, "sot": sot}
    exec("y = x + 1\nsot.graph_break()\nz = y * 2", scope)
    return scope["z"], scope["y"]


@left
def a_break_in_a_function_of_the_text(x):
    scope = {"x": x, "sot": sot}
    exec("def f(v):\n  y = v + 1\n  sot.graph_break()\n  return y * w\nw = 3", scope)
    return scope["f"](x), scope["w"]


@left
def a_variable_set(x):
    exec("k = 4")
    return x + 1


@left
def other_builtins(x):
    return eval("len(a)", {"a": [1], "__builtins__": {"len": lambda v: 7}}), x + 1


@left
def an_exception_that_leaves(x):
    y = x + 1
    eval("1 / 0", {})
    return y


def x():
    return torch.arange(6.0).reshape(2, 3)


@captured.each
def test_text_is_followed(fn):
    check(fn, x(), graphs=1, breaks=0)
    check_by("aot_eager", fn, x(), breaks=0)


@left.each
def test_what_cannot_be_resumed_is_pythons(fn):
    check(fn, x())


def test_a_dict_that_existed_gets_the_names():
    def counted(x):
        exec("n = n + 1 if 'n' in globals() else 1", SCOPE)
        return x + SCOPE["n"]
    translated = sot.to_static(counted, backend="eager")
    SCOPE.clear()
    assert [translated(torch.zeros(())).item() for _ in range(4)] == [1, 2, 3, 4]
    assert list(SCOPE) == ["__builtins__", "n"] and not [c for c in translated.captures if c.stopped]


def test_a_function_of_the_text_keeps_its_dict():
    def made(x):
        scope = {}
        exec("def f(v):\n  return v + g\ng = 2", scope)
        return scope["f"], x + 1
    translated = sot.to_static(made, backend="eager")
    for _ in range(2):
        f = translated(x())[0]
        assert torch.equal(f(x()), x() + 2)
        f.__globals__["g"] = 5
        assert torch.equal(f(x()), x() + 5)


def test_the_calling_code_hands_on_its_future_features():
    text = "from __future__ import annotations\ndef run(x):\n  s = {}\n  exec('a: nope = 1', s)\n  return x + 1, s"
    scope = {}
    exec(text, scope)
    result = sot.to_static(scope["run"], backend="eager")(torch.ones(1))
    assert result[1]["__annotations__"] == {"a": "nope"}
