"""Numbers and text that are equal, and NaNs: whether they are one object is what Python says, call by call."""
from __future__ import annotations

import collections
import dataclasses
import math
import operator

import pytest
import torch
from harness import Counter, Programs

import sot

X = torch.arange(1.0, 5.0)
Point = collections.namedtuple("Point", "a b")


@dataclasses.dataclass
class Data:
    value: float


class Box:
    def __init__(self, value):
        self.value, self.items = value, [value]


def twice(make):
    """Two equal objects."""
    return make(), make()


PAIRS = {
    "int": twice(lambda: int("100000")), "float": twice(lambda: float("1.5")),
    "str": twice(lambda: "".join(["not ", "interned"])), "bytes": twice(lambda: bytes([1, 2, 3])),
    "complex": twice(lambda: complex(*[1, 2])), "tuple": twice(lambda: tuple([1, 2])),
    "nan": twice(lambda: float("nan")), "complex nan": twice(lambda: complex(*[math.nan, 1])),
    "device": twice(lambda: torch.device("cpu")), "range": twice(lambda: range(*[1000])),
}
SENTINEL = PAIRS["str"][0]
NAN = PAIRS["nan"][0]
program = Programs()


@program
def operators(x, a, b):
    return x + 1, a is b, a is not b, operator.is_(a, b), operator.is_not(a, b), any(v is a for v in (b, 3))


@program
def a_branch(x, a, b):
    return x * 2 if a is b else x * 3


@program
def pattern(x, a, b):
    match [a]:
        case [v] if v is b:
            return x * 2
        case _:
            return x * 3


@program
def closures(x, a, b):
    def f():
        return a is b

    def g(v, w=b):
        return v is w, v is a
    return x + 1, f(), g(a), g(b)


@program
def attributes_and_elements(x, a, b):
    box = Box(a)
    table = {"k": box.value}
    return x + 1, box.value is b, box.items[0] is a, table["k"] is b, (a, b)[1] is a


@program
def containers_compare(x, a, b):
    nested = ([a], {"z": (a,)}) == ([b], {"z": (b,)})
    return (x + 1, [a] == [b], (a, 1) != (b, 1), {"k": a} == {"k": b}, [[a]] == [[b]], nested,
            collections.deque([a]) == collections.deque([b]), Data(a) == Data(b), Point(a, 1) == Point(b, 1))


@program
def containers_find(x, a, b):
    return (x + 1, a in [b], a in (0, b), a in collections.deque([b]), [a, b, 3].count(a), (b, a, a).count(b),
            a in {"k": b}.values(), ("k", a) in {"k": b}.items(), operator.countOf([a], b), [a, b] in [[b, a]])


@program
def containers_change(x, a, b):
    items = [1, a, 3]
    try:
        items.remove(b)
        where = [0, a].index(b)
    except ValueError:
        where = "nowhere"
    return x + 1, items, where


@program
def tables(x, a, b):
    table = {a: 1}
    table[b] = 2
    return (x + 1, len(table), b in table, table.get(b), len({a, b}), b in {a}, len(collections.Counter([a, b])),
            next(iter(dict.fromkeys([a, b]))) is a, (a, b) in {(b, a): 1})


@program
def across_a_break(x, a, b):
    kept, made = [a], [a if x is None else b]
    torch._dynamo.graph_break()
    return x + 1, a is b, kept[0] is a, made[0] is b, kept == made, a in made


@program
def given_twice(x, a, b):
    return x + 1, [a] == [a], a in [a], [a].index(a), a is a


@program
def globals_and_defaults(x, a, b):
    def f(v=SENTINEL, n=NAN):
        return v is SENTINEL, v is a, n is NAN, n in [a], [n] == [b]
    return x + 1, f(), f(a), f(a, b), a is SENTINEL, b is NAN


@pytest.mark.parametrize("kind", PAIRS)
@program.each
def test_each_call_gives_what_python_gives(fn, kind):
    a, b = PAIRS[kind]
    for calls in ([(a, a), (a, b), (a, a), (b, b)], [(a, b), (a, a), (b, a)]):
        translated = sot.to_static(fn, backend="eager")
        for given in calls:
            want, got = fn(X, *given), translated(X, *given)
            assert str(got) == str(want), given


@program.each
def test_numbers_that_vary(fn):
    one, other = PAIRS["nan"]
    translated = sot.to_static(fn, backend="eager")
    for given in [(1.5, 2.5), (2.5, 3.5), (3.5, 4.5), (7.5, 7.5), (one, one), (one, other), (other, other), (5.5, one)]:
        assert str(translated(X, *given)) == str(fn(X, *given)), given


def test_the_order_of_sequences_with_a_nan():
    def f(x, a, b):
        return x + 1, [a, 1] < [b, 2], sorted([(a, 2), (b, 1)])[0][1], max([(a, 1), (b, 2)])[1]
    one, other = PAIRS["nan"]
    translated = sot.to_static(f, backend="eager")
    for given in [(one, one), (one, other), (other, other), (1.5, 1.5)]:
        assert translated(X, *given)[1:] == f(X, *given)[1:]


@pytest.mark.parametrize("kind", PAIRS)
def test_what_is_returned_is_what_was_given(kind):
    def f(x, a, box):
        return x + 1, a, [a], box.value, repr(a), a == box.value
    translated = sot.to_static(f, backend="eager")
    for a in PAIRS[kind]:
        _, given, items, value, _, _ = translated(X, a, Box(a))
        assert given is a and items[0] is a and value is a


def test_numbers_that_are_computed():
    def f(x, a, s):
        b, c = a * 1, a * 1
        return x + 1, b is a, b is c, s[:] is s, [b] == [c], str(s) is s
    a, s = PAIRS["int"][0], SENTINEL
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        assert translated(X, a, s)[1:] == f(X, a, s)[1:]


def test_nans_that_are_made_here():
    def f(x, n):
        a, b = float("nan"), float("nan")
        return (x + 1, a is b, [a] == [b], [a] == [a], a in (b, n), {a: 1} == {a: 1}, {a: 1} == {b: 1},
                math.nan in [math.nan])
    translated = sot.to_static(f, backend="eager")
    for n in (*PAIRS["nan"], 1.5):
        assert translated(X, n)[1:] == f(X, n)[1:]


def test_keys_of_tables():
    def f(x, table, n):
        return x + 1, n in table, table.get(n), [k is n for k in table], [k in [n] for k in table]
    for one, other in (PAIRS["nan"], PAIRS["str"], PAIRS["int"]):
        translated = sot.to_static(f, backend="eager")
        for key, given in [(one, one), (one, other), (other, other), (other, one)]:
            assert translated(X, {key: 1}, given)[1:] == f(X, {key: 1}, given)[1:]


def test_equal_numbers_are_one_capture_unless_identity_is_asked():
    def f(x, a, box):
        if a == box.value and a in box.items and [a] == box.items and {a: 1}[box.value] and math.copysign(1, a) == 1:
            return x * a
        return x
    backend = Counter()
    translated = sot.to_static(f, backend=backend)
    (a, b), items = PAIRS["float"], [PAIRS["float"]]
    for given, held in [(a, a), (a, b), (b, a), *items]:
        translated(X, given, Box(held))
    assert len(backend.graphs) == 1


def test_new_nans_are_one_capture_unless_identity_matters():
    def f(x, fill):
        return torch.where(x > 2, x, fill) if fill != fill or math.isnan(fill) else x
    backend = Counter()
    translated = sot.to_static(f, backend=backend)
    for _ in range(3):
        translated(X, float("nan"))
    assert len(backend.graphs) == 1


def test_devices_are_made_when_they_are_read():
    def f(x):
        return x + 1, x.device is x.device, x.dtype is torch.float32, x.shape is x.shape
    assert sot.to_static(f, backend="eager")(X)[1:] == f(X)[1:]


def test_a_number_that_varies_is_no_object_of_another_class(backend):
    default = object()

    def f(x, rate):
        return x if rate is default or rate is float else x * rate

    g = sot.to_static(f, backend=backend)
    for rate in (0.5, 0.25, 0.125, 3.0, 7.5):
        assert g(torch.ones(2), rate).equal(torch.ones(2) * rate)
    assert len(backend.graphs) <= 2
