"""Read-only dicts: those of classes, and those that the program makes; protocols that objects of the call fit."""
from __future__ import annotations

import types
import typing

import pytest
import torch
from harness import Programs, check

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


class Layer:
    scale = 2

    def __init__(self, width):
        self.width = width

    @property
    def area(self):
        return self.width ** 2

    @staticmethod
    def double(x):
        return x * 2


class Narrow(Layer):
    pass


@program
def members_of_classes(x):
    m = Layer(3)
    held = Layer.__dict__
    return (x * held["area"].__get__(m), held["double"].__func__(x), "area" in Narrow.__dict__, "area" in vars(Layer),
            held.get("no", 7), [k for k in held if not k.startswith("_")], type(held["double"]))


@program
def members_that_are_missing(x):
    try:
        Narrow.__dict__["scale"]
    except KeyError as e:
        return x + 1, e.args


@program
def members_that_were_set(x):
    Narrow.extra = 5
    try:
        return x * Narrow.__dict__["extra"], "extra" in Layer.__dict__
    finally:
        del Narrow.extra
        assert "extra" not in vars(Narrow)


@program
def members_of_a_class_of_the_call(x):
    class Local:
        a = 1

        def f(self):
            return 2
    return x * Local.__dict__["a"], Local.__dict__["f"](None), sorted(k for k in vars(Local) if k[0] != "_")


@program
def views_of_a_dict(x):
    d = {"a": x, "b": 2}
    p = types.MappingProxyType(d)
    d["c"] = 3
    try:
        p["z"] = 1
    except TypeError as e:
        text = str(e)
    return (p["a"] * 2, [*p], len(p), "c" in p, p.get("q", 9), text, dict(p)["b"], {**p}["c"], (p | {"d": 4})["d"],
            [*reversed(p)], p.copy() is d, bool(p), p == d, [*p.items()][1])


@program
def returned(x):
    d = {"a": 1}
    p = types.MappingProxyType(d)
    d["b"] = 2
    return x + 1, p, d


@typing.runtime_checkable
class Runs(typing.Protocol):
    name: str

    def run(self, x): ...


@typing.runtime_checkable
class Steps(typing.Protocol):
    def step(self): ...


class Plain(typing.Protocol):
    name: str


class Runner:
    def run(self, x):
        return x


class Blocked(Runner):
    run = None


@program
def protocols_that_objects_fit(x):
    a, b = Runner(), Runner()
    a.name, b.run, c = "a", None, Blocked()
    c.name = "c"
    d = Runner()
    d.step = len
    found = [isinstance(v, k) for v in (a, b, c, d, Layer(1), x, 3) for k in (Runs, Steps)]
    try:
        isinstance(a, Plain)
    except TypeError as e:
        return x + 1, found, str(e)


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


class Hooked:
    def __getattr__(self, name):
        return name


class Computed:
    name = property(lambda self: print("asked"))

    def run(self, x):
        return x


@pytest.mark.parametrize("kind", [Hooked, Computed])
def test_protocols_that_ask_code_of_the_program(kind):
    def fn(x):
        return x * 2, isinstance(kind(), Runs)
    check(fn, X)


def test_a_member_that_changes():
    def fn(x):
        return x * Layer.__dict__["scale"], "other" in Layer.__dict__
    translated = sot.to_static(fn, backend="eager")
    try:
        for Layer.scale in (2, 3, 4):
            assert torch.equal(translated(X)[0], X * Layer.scale)
        Layer.other = 1
        assert translated(X)[1]
        del Layer.other
        assert not translated(X)[1]
    finally:
        Layer.scale = 2
