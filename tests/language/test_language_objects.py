"""Special methods, iterators and guards on objects, as the language reference has them."""
from __future__ import annotations

import torch
from harness import Programs, caught, check
from test_language_attributes import Box, New
from test_language_made_classes import Frozen, Point

import sot

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


# ---- special methods ------------------------------------------------------------------------------------------------
class Vector:
    def __init__(self, *v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v if isinstance(other, Vector) else NotImplemented

    def __hash__(self):
        return hash(self.v)

    def __add__(self, other):
        return Vector(*[a + b for a, b in zip(self.v, other.v)]) if isinstance(other, Vector) else NotImplemented

    def __radd__(self, other):
        return ("radd", other) if isinstance(other, int) else NotImplemented

    def __mul__(self, other):
        return Vector(*[a * other for a in self.v])

    __rmul__ = __mul__

    def __neg__(self):
        return Vector(*[-a for a in self.v])

    def __lt__(self, other):
        return self.v < other.v if isinstance(other, Vector) else NotImplemented

    def __abs__(self):
        return sum(self.v)

    def __bool__(self):
        return any(self.v)

    def __repr__(self):
        return f"Vector{self.v}"

    def __getitem__(self, i):
        return self.v[i]

    def __len__(self):
        return len(self.v)

    def __iter__(self):
        return iter(self.v)

    def __contains__(self, item):
        return item in self.v

    def __call__(self, *args, **kwargs):
        return args, kwargs

    def __int__(self):
        return int(self.v[0])

    def __index__(self):
        return int(self.v[0])

    def __float__(self):
        return float(self.v[0])

    def __round__(self, digits=None):
        return ("round", digits)

    def __divmod__(self, other):
        return ("divmod", other)

    def __pow__(self, other, mod=None):
        return ("pow", other, mod)

    def __invert__(self):
        return "invert"

    def __pos__(self):
        return "pos"

    def __reversed__(self):
        return "reversed"

    def __format__(self, spec):
        return f"<{spec}>"

    def __str__(self):
        return "str"


class SubVector(Vector):
    def __radd__(self, other):
        return "subclass first"

    def __gt__(self, other):
        return "reflected of a subclass"


@program
def operators(x):
    a, b = Vector(1, 2), Vector(3, 4)
    s = SubVector(5, 6)
    return (a + b == Vector(4, 6), 5 + a, caught(lambda: a + "x"), caught(lambda: "x" + a), a * 2, 2 * a, -a, a < b,
            b > a, caught(lambda: a < 1), a != b, a == 5, a != 5, abs(b), bool(Vector(0)), not a, repr(a), str(a),
            a[0], a[-1:], len(a), [*b], 2 in a, 7 not in a, a(1, k=2), int(b), float(b), [0, 1, 2, 3][b], round(a),
            round(a, 1), divmod(a, 3), a ** 2, ~a, +a, reversed(a), f"{a:spec}{a}{a!r}", a + s, a < s,
            range(Vector(3))[-1], max(a, b), sorted([b, a]), x * 2)


class Quiet:
    def __add__(self, other):
        return NotImplemented

    def __eq__(self, other):
        return NotImplemented

    def __lt__(self, other):
        return NotImplemented

    def __iadd__(self, other):
        return NotImplemented

    def __radd__(self, other):
        return "radd"


@program
def not_implemented(x):
    q, r = Quiet(), Quiet()
    p = q
    p += Tail()
    return (caught(lambda: q + r), q == r, q == q, q != r, caught(lambda: q < r), 1 + q, p, caught(lambda: q + 1),
            caught(lambda: hash(q)), x + 1)


class Tail:
    def __radd__(self, other):
        return "tail"


@with_breaks
def equal_and_hash_in_containers(x):
    a, b, c = Vector(1), Vector(1), Vector(2)
    d = {a: "a"}
    d[b] = "b"
    d[c] = "c"
    s = {a, b, c}
    return (len(d), d[Vector(1)], Vector(2) in d, Vector(3) in d, len(s), b in s, [a].index(b), [a, c].count(b),
            [a] == [b], (a, 1) == (b, 1), {1: a} == {1: b}, d.get(Vector(5), 0), d.pop(c),
            list(d) == [a], {Frozen(1): 1}[Frozen(1)], pow(a, 2, 3), x + 1)


class Table(dict):
    def __missing__(self, key):
        self[key] = value = [key]
        return value


class Stack:
    def __init__(self):
        self.items, self.log = {}, []

    def __getitem__(self, key):
        self.log.append(("get", key))
        return self.items[key]

    def __setitem__(self, key, value):
        self.log.append(("set", key))
        self.items[key] = value

    def __delitem__(self, key):
        self.log.append(("del", key))
        del self.items[key]


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Indexed:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10


@program
def container_protocols(x):
    t, s = Table(a=1), Stack()
    t["b"].append(2)
    s["k"] = 1
    s["k"] += 5
    del s["k"]
    c = Countdown(3)
    first = next(c)
    return (t, t["a"], t.get("z"), "z" in t, s.log, caught(lambda: s["k"]), first, list(c), list(c), next(c, "end"),
            [*Indexed()], 20 in Indexed(), 5 in Indexed(), list(zip(Countdown(2), Indexed())),
            dict(enumerate(Indexed())), max(Countdown(4)), sum(Indexed()), "".join(map(str, Countdown(3))),
            [v for v in Countdown(2)], x + 1)


@with_breaks
def wrong_arguments_of_classes(x):
    return (caught(New), caught(lambda: Box(1)), caught(lambda: Vector.__add__(1)),
            caught(lambda: Point(1, nope=2)), x + 1)


# ---- iterators across a break ---------------------------------------------------------------------------------------
@with_breaks
def dict_iterators_across_a_break(x):
    d, out = {"a": 1, "b": 2, "c": 3}, []
    for k, v in d.items():
        out.append((k, v, float(x.sum())))
        d["c"] = d[k] * 10
    it = iter(d.values())
    out.append((next(it), float(x.sum())))
    d["b"] = "changed"
    out += [*it, *it]
    it = iter(d)
    out.append((next(it), float(x.sum())))
    d["new"] = 1
    return out, caught(next, it), d, x + 1


def test_an_iterator_over_a_dict_argument_across_a_break():
    def f(x, d):
        d["first"] = x + 1
        it = iter(d.items())
        out = [next(it), float(x.sum())]
        d["b"] = 5
        return out, list(it), list(d)
    check(f, X, {"a": 1, "b": 2})


@with_breaks
def list_iterators_across_a_break(x):
    a = [1, 2, 3]
    it, both = iter(a), zip(a, enumerate(a))
    out = [next(it), next(both), float(x.sum())]
    a.append(4)
    a[1] = "changed"
    return out, [*it], [*both], [*it], x + 1


@with_breaks
def two_objects_with_one_dict(x):
    a, b = Box(), Box()
    a.n = 1
    b.__dict__ = a.__dict__
    b.later = 9
    a.n += 1
    return a.later, b.n, vars(a) is vars(b), x * a.n


@with_breaks
def an_object_with_the_dict_of_another(x):
    a, b = Box(), Box()
    held = vars(a)
    b.__dict__ = held
    held["n"] = 3
    b.m = 4
    return a.n, a.m, held is vars(b), x * b.n


# ---- guards ---------------------------------------------------------------------------------------------------------
class Loud:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        raise RuntimeError("repr was called")


def test_a_miss_is_explained_without_the_users_repr():
    def f(x, loud):
        return x + loud.n
    translated = sot.to_static(f, backend="eager")
    for given in (Loud(1), Box(), Loud(2)):
        given.n = given.n if isinstance(given, Loud) else 5
        assert torch.equal(translated(X, given), X + given.n)
    assert torch.equal(sot.to_static(lambda x, items: x + len(items), backend="eager")(X, [Loud(1)]), X + 1)
