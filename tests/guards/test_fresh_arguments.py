"""What a caller makes anew at each call (a config, a batch, a point) is known by what it holds: nothing is captured
again."""
import _functools
import dataclasses
import enum
import re
import threading
from collections import ChainMap, OrderedDict, UserDict, namedtuple
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from harness import Counter, check, outcome, same

import sot

X = torch.arange(6.0).reshape(2, 3) + 1


@dataclasses.dataclass
class Config:
    lr: float = 0.5
    name: str = "sgd"
    dims: list = dataclasses.field(default_factory=lambda: [1, 2])


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int = 3


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    k: int = 2


class Pair(NamedTuple):
    x: torch.Tensor
    k: int = 2


Point = namedtuple("Point", "x y")


class Mode(enum.Flag):
    A = 1
    B = 2


class Plain:
    def __init__(self, **held):
        self.__dict__.update(held)

    def scaled(self, x):
        return x * self.k


class Items(dict):
    """A dict whose items are its attributes, as configs are."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Node:
    def __init__(self, x, *children):
        self.x, self.children = x, children


def walk(node, seen):
    seen[node] = node.x
    return node.x + sum(walk(c, seen) for c in node.children)


def unique(nodes, x):
    seen = set()
    for node in nodes + nodes:
        if node not in seen:
            seen.add(node)
            x = x * node.k
    return x, nodes.index(nodes[1])


def changed(c, x):
    c.z = x
    del c.n["k"]
    c.n.j = 1
    return c.z * c.lr, getattr(c, "lr"), "lr" in c  # noqa: B009


def missing(c, x):
    try:
        return c.nothing
    except KeyError as e:
        return x * 2, repr(e)


PROGRAMS = {
    "dataclass": (lambda c, x: x * c.lr + len(c.dims) if c.name == "sgd" else x, lambda: (Config(), X)),
    "frozen": (lambda c, x: x * {c: 2}[c] if c == Frozen() and c < Frozen(4) else x, lambda: (Frozen(), X)),
    "slots": (lambda c: c.x * c.k, lambda: (Slotted(X),)),
    "named tuple": (lambda p: (p.x * p.k, p._replace(k=5)), lambda: (Pair(X),)),
    "points": (lambda ps: sum(p.x * p.y for p in ps), lambda: ([Point(X, j) for j in range(3)],)),
    "dict of dataclasses": (lambda d, x: [x * c.lr for c in d.values()], lambda: ({"a": Config(), "b": Config(1)}, X)),
    "objects": (lambda o, x: o.inner.scaled(x) * o.k, lambda: (Plain(k=2, inner=Plain(k=3)), X)),
    "namespace": (lambda a, x: x * a.lr * a.m.k, lambda: (SimpleNamespace(lr=0.5, m=SimpleNamespace(k=2)), X)),
    "flags": (lambda o, x: x * 2 if Mode.A in o.mode else x, lambda: (Plain(mode=Mode.A | Mode.B), X)),
    "method": (lambda f, x: f(x), lambda: (Plain(k=2).scaled, X)),
    "tree": (lambda t: (walk(t, seen := {}), len(seen)), lambda: (Node(X, Node(X), Node(X, Node(X))),)),
    "set of objects": (unique, lambda: ([Plain(k=2), Plain(k=3)], X)),
    "replace": (lambda c, x: (x * dataclasses.replace(c, lr=2).lr, dataclasses.asdict(c)), lambda: (Config(), X)),
    "mappings": (lambda u, c, x: (x * u["a"] * c["b"], dict(c)),
                 lambda: (UserDict(a=2), ChainMap({"a": 1}, {"b": 3}), X)),
    "ordered": (lambda d: [v * 2 for v in d.values()], lambda: (OrderedDict(a=X, b=X),)),
    "items as attributes": (changed, lambda: (Items(lr=0.5, n=Items(k=2)), X)),
    "items that are missing": (missing, lambda: (Items(), X)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_captured_once(name):
    fn, make = PROGRAMS[name]
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    for _ in range(4):
        want, got = outcome(fn, make(), {}), outcome(translated, make(), {})
        assert same(got.raised, want.raised) is None
        assert same(got.result, want.result) is None
        assert name == "method" or len(make()) == len(got.args[0])
        if isinstance(got.args[0][0], dict):
            assert same(got.args, want.args) is None
    captures = sot.translation_of(translated).captures
    assert len(captures) == 1 and captures[0].stopped is None, [
        (str(c.stopped), c.recompiled_because) for c in captures]


class Local(threading.local):
    def __init__(self):
        self.k = 2


def test_an_object_of_c_code_is_no_plain_object():
    def fn(local, x):
        local.seen = 3
        return x * local.k + local.seen
    local = Local()
    assert torch.equal(sot.to_static(fn)(local, X), X * 2 + 3) and local.seen == 3


def test_a_model_is_saved_and_loaded_by_python(tmp_path):
    path = tmp_path / "x.pt"

    def fn(x):
        torch.save({"x": x * 2}, path)
        return torch.load(path)["x"] + 1
    check(fn, X, graphs=2, breaks=2)


class Options:
    def __init__(self):
        self.k = 1


def set_in_the_dict(x, options, d):
    d["k"] = 5
    return x + options.k


def set_in_the_object(x, options, d):
    options.k = 5
    return x + d["k"]


def set_in_both(x, options, d):
    before = options.k
    d["k"] = 5
    bool(x.sum() > 0)
    options.k += 1
    return x + d["k"], options.k, before


@pytest.mark.parametrize("fn", [set_in_the_dict, set_in_the_object, set_in_both])
@pytest.mark.parametrize("order", ["apart last", "apart first"])
def test_an_object_and_its_dict_side_by_side(fn, order):
    def apart():
        return X, Options(), {"k": 3}

    def together():
        options = Options()
        return X, options, vars(options)
    translated = sot.to_static(fn, backend="eager")
    for make in (together, together, apart) if order == "apart last" else (apart, together, together):
        want, got = outcome(fn, make(), {}), outcome(translated, make(), {})
        assert same(got.result, want.result) is None


class OtherPartial(_functools.partial):
    """To capture an object of C code like any other."""


def test_members_of_objects_of_c_code_are_guarded():
    def parts(x, partial):
        return x + 1, partial.args, partial.args[0] is partial.args[0]

    def matched(x, match):
        return x + match.pos, match.string
    for fn, values in ((parts, [OtherPartial(print, [i]) for i in range(3)]),
                       (matched, [re.match("a", "a" * i) for i in (1, 2, 3)])):
        translated = sot.to_static(fn, backend="eager")
        for value in values:
            assert same(translated(X, value), fn(X, value)) is None


def test_equal_sets_in_another_order():
    def fn(x, numbers):
        return x + 1, list(numbers), sorted(numbers)
    one, other = {0}, {8}       # which have one place in a set's table: who comes first has it
    one.add(8)
    other.add(0)
    assert list(one) != list(other)
    translated = sot.to_static(fn, backend="eager")
    for numbers in (one, other, one):
        assert translated(X, numbers)[1:] == fn(X, numbers)[1:]
