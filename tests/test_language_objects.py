"""Classes, special methods, identity, aliases and cycles, as the language reference has them."""
from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 5.0)
PROGRAMS: list = []
WITH_BREAKS: list = []


def program(fn):
    """A function of a tensor that is captured as one graph."""
    PROGRAMS.append(fn)
    return fn


def with_breaks(fn):
    """A function of a tensor that is captured in pieces."""
    WITH_BREAKS.append(fn)
    return fn


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", WITH_BREAKS, ids=lambda f: f.__name__)
def test_is_right_with_breaks(fn):
    check(fn, X)


def caught(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e).__name__, str(e)


# ---- attributes -----------------------------------------------------------------------------------------------------
class Box:
    pass


class Temperature:
    def __init__(self, degrees):
        self._degrees = degrees

    @property
    def degrees(self):
        return self._degrees

    @degrees.setter
    def degrees(self, value):
        if value < -273:
            raise ValueError("too cold")
        self._degrees = value

    @degrees.deleter
    def degrees(self):
        self._degrees = None

    @property
    def kelvin(self):
        return self.degrees + 273


@program
def properties(x):
    t = Temperature(20)
    t.degrees += 5
    a = t.degrees, t.kelvin

    def too_cold():
        t.degrees = -300

    def no_setter():
        t.kelvin = 1

    def no_deleter():
        del t.kelvin
    del t.degrees
    return (a, t.degrees, caught(too_cold), caught(no_setter), caught(no_deleter), Temperature.kelvin.fget(
        Temperature(1)), Temperature.degrees.__get__(Temperature(2)), x + 1)


class Logged:
    """A data descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else ("got", obj.__dict__[self.name])

    def __set__(self, obj, value):
        obj.__dict__[self.name] = value * 2

    def __delete__(self, obj):
        del obj.__dict__[self.name]


class Once:
    """A non-data descriptor."""

    def __init__(self, function):
        self.function = function

    def __get__(self, obj, owner=None):
        value = self.function(obj)
        obj.__dict__["computed"] = value
        return value


class Described:
    field = Logged()
    count = 0

    @Once
    def computed(self):
        self.count += 1
        return "computed"

    @functools.cached_property
    def cached(self):
        self.count += 10
        return [self.count]


@program
def descriptors(x):
    d = Described()
    d.field = 5
    a = d.field, vars(d), Described.field.name
    del d.field
    b = d.computed, d.computed, d.count, Described.count, d.cached is d.cached, d.cached, d.count
    d.__dict__["field"] = "hidden"
    c = caught(lambda: d.field)
    d.computed = "shadowed"
    return a, b, c, d.computed, sorted(vars(d)), x + 1


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


class SlottedWithDict(Slotted):
    pass


@program
def slots(x):
    s, t, u = Slotted(1), SlottedChild(x), SlottedWithDict(3)
    t.c = 4
    u.other = 5
    s.b = [6]
    s.b.append(7)

    def no_place():
        s.other = 1
    before = s.a
    del s.a
    found = caught(lambda: s.a), caught(no_place), hasattr(s, "a"), hasattr(t, "b"), hasattr(s, "__dict__"), vars(u)
    s.a = 2
    return before, s.a, s.b, t.c, found, t.a, s.a, x + 1


class Hooks:
    log: ClassVar[list] = []

    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(f"no {name}")
        return "made " + name

    def __setattr__(self, name, value):
        object.__setattr__(self, name, ("set", value))

    def __delattr__(self, name):
        super().__delattr__(name)
        object.__setattr__(self, "deleted", name)


class AllHooks:
    def __init__(self):
        self.seen = []
        self.value = 1

    def __getattribute__(self, name):
        if name == "secret":
            return "found"
        if name == "hidden":
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        return "fallback " + name


@program
def attribute_hooks(x):
    h = Hooks()
    h.a = 1
    a = h.a, h.b, caught(lambda: h.nothing), getattr(h, "no", 5), hasattr(h, "nope"), hasattr(h, "yes")
    del h.a
    b = h.a, h.deleted
    setattr(h, "c", 2)
    delattr(h, "c")
    g = AllHooks()
    return a, b, h.c, h.deleted, g.secret, g.hidden, g.missing, g.value, g.seen, vars(h), x + 1


class Base:
    shared: ClassVar[list] = []
    setting = "class"

    def who(self):
        return "Base", self.setting


@program
def instance_and_class_attributes(x):
    b, c = Base(), Base()
    b.setting = "instance"
    b.who = lambda: "shadow"
    first = b.who(), c.who(), b.setting, c.setting
    del b.setting, b.who

    def again():
        del b.setting
    return first, b.who(), caught(again), caught(lambda: b.nope), b.shared is c.shared, type(b).setting, x + 1


def test_class_attributes_that_change():
    class Counter:
        n = 0

    def f(x):
        return x + Counter.n, Counter().n
    translated = sot.to_static(f, backend="eager")
    for n in range(3):
        Counter.n = n
        y, m = translated(X)
        assert torch.equal(y, X + n) and m == n


def test_writing_a_class_attribute_breaks():
    class Counter:
        n = 0
        made: ClassVar[list] = []

        def __init__(self):
            type(self).n += 1
            Counter.made.append(self)

    def f(x):
        Counter()
        y = x * 2
        Counter()
        return y, Counter.n, len(Counter.made)
    translated = sot.to_static(f, backend="eager")
    for fn, want in ((f, 2), (f, 4), (translated, 6), (translated, 8)):
        y, *counts = fn(X)
        assert counts == [want, want] and torch.equal(y, X * 2)


# ---- inheritance ----------------------------------------------------------------------------------------------------
class A:
    def __init__(self, log):
        self.log = log
        log.append("A.init")

    def go(self):
        return ["A"]

    @classmethod
    def make(cls, *args):
        return cls(*args)

    @classmethod
    def name(cls):
        return "A:" + cls.__name__

    @staticmethod
    def twice(v):
        return v * 2


class B(A):
    def __init__(self, log):
        super().__init__(log)
        log.append("B.init")

    def go(self):
        return ["B", *super().go()]


class C(A):
    def __init__(self, log):
        super().__init__(log)
        log.append("C.init")

    def go(self):
        return ["C", *super(C, self).go()]

    @classmethod
    def name(cls):
        return "C:" + super().name()


class D(B, C):
    def __init__(self, log):
        super().__init__(log)
        self.size = len(log)

    def go(self):
        f = super().go
        return ["D", *f(), *A.go(self)]

    @property
    def prop(self):
        return super().go()[0]


@program
def diamonds_and_super(x):
    log = []
    d = D.make(log)
    return (d.go(), log, d.size, D.name(), d.name(), C.name(), d.twice(2), D.twice(3), d.prop, isinstance(d, (C, int)),
            issubclass(D, B), [c.__name__ for c in D.__mro__], D.__bases__ == (B, C), super(D, d).go(),
            super(B, D).name(), caught(lambda: super(D, d).nope), d.go.__self__ is d, D.go.__name__, x + 1)


class New:
    made: ClassVar[dict] = {}

    def __new__(cls, n, *args, **kwargs):
        if n < 0:
            return "not an instance"
        self = super().__new__(cls)
        self.early = n
        return self

    def __init__(self, n, extra=None):
        self.n, self.extra = n, extra


class Tuple2(tuple):
    __slots__ = ()

    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    @property
    def total(self):
        return self[0] + self[1]


@program
def new_and_init(x):
    a, b, c = New(1), New(-1), New(2, extra=x)
    t = Tuple2(3, 4)
    return (a.early, a.n, b, c.extra, t, t.total, t == (3, 4), type(t).__name__, isinstance(t, tuple),
            x + 1)


@with_breaks
def wrong_arguments_of_classes(x):
    return (caught(New), caught(lambda: Box(1)), caught(lambda: Vector.__add__(1)),
            caught(lambda: Point(1, nope=2)), x + 1)


class Registered:
    known: ClassVar[list] = []

    def __init_subclass__(cls, /, key=None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.key = key
        Registered.known.append(cls.__name__)


class Sub1(Registered, key="one"):
    pass


class Meta(type):
    def __new__(mcs, name, bases, namespace):
        namespace["made_by"] = mcs.__name__
        return super().__new__(mcs, name, bases, namespace)

    def __call__(cls, *args, **kwargs):
        obj = super().__call__(*args, **kwargs)
        obj.called = True
        return obj

    def __len__(cls):
        return 7

    def __getitem__(cls, key):
        return cls.__name__, key

    def __iter__(cls):
        return iter("meta")

    def __contains__(cls, item):
        return item == "in"

    def __instancecheck__(cls, instance):
        return instance == 5 or super().__instancecheck__(instance)

    @property
    def label(cls):
        return "label of " + cls.__name__

    def method(cls):
        return cls.__name__


class WithMeta(metaclass=Meta):
    def __class_getitem__(cls, key):
        return "never"


class Generic:
    def __class_getitem__(cls, key):
        return cls.__name__, key


class Abstract(abc.ABC):
    @abc.abstractmethod
    def must(self):
        return "base"

    @property
    @abc.abstractmethod
    def prop(self): ...


class Concrete(Abstract):
    prop = 5

    def must(self):
        return "concrete", super().must()


Abstract.register(Box)


@program
def metaclasses_and_abc(x):
    w = WithMeta()
    return (w.called, w.made_by, len(WithMeta), WithMeta["k"], [*WithMeta], "in" in WithMeta, "out" in WithMeta,
            isinstance(5, WithMeta), isinstance(6, WithMeta), isinstance(w, WithMeta), WithMeta.label,
            WithMeta.method(), Generic[int], Sub1.key, Registered.known, Concrete().must(), isinstance(Box(), Abstract),
            issubclass(Concrete, Abstract), Concrete().prop, x + 1)


@with_breaks
def abstract_classes_cannot_be_made(x):
    return caught(Abstract), x + 1


def a_class_made_inside(x):
    class Local:
        n = x.shape[0]

        def __init__(self, v):
            self.v = v

        def go(self):
            return self.v * self.n + __class__.n

    class Child(Local):
        def go(self):
            return super().go() + 1
    made = type("Made", (Local,), {"n": 2})
    return Local(x).go(), Child(x).go(), made(x).go(), Child.__mro__[1] is Local


@with_breaks
def class_dicts_and_members(x):
    return isinstance(vars(Described)["field"], Logged), "RED" in Colour.__members__, [*Colour.__members__], x + 1


def test_a_class_made_inside():
    check(a_class_made_inside, X, again=False)


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


# ---- made classes ---------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Point:
    x: Any
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=0, repr=False, compare=False)
    total: Any = dataclasses.field(init=False)
    kind: ClassVar[str] = "point"
    scale: dataclasses.InitVar[int] = 1

    def __post_init__(self, scale):
        self.total = (self.x, self.y * scale)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "b"


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Compact:
    a: Any
    b: int = 5


@dataclasses.dataclass(unsafe_hash=True)
class Child(Point):
    z: int = 3


@program
def data_classes(x):
    p, q = Point(1), Point(1, 2, hidden=5)
    p.tags.append("t")
    f = Frozen(1)

    def freeze():
        f.a = 2
    c = Compact(a=x)
    c.b += 1
    d = Child(1, 3, scale=2)
    return (p.total, p == q, p.tags, q.tags, Point(1) == q, repr(q), f < Frozen(2), f == Frozen(1), f != Frozen(2),
            caught(freeze), c.b, dataclasses.replace(f, b="c"), dataclasses.asdict(f), dataclasses.astuple(f),
            [g.name for g in dataclasses.fields(Frozen)], d.total, d.z, Point.kind, p, c.a,
            sorted([Frozen(2), f]), x + 1)


class Pair(NamedTuple):
    a: Any
    b: int = 2

    def swapped(self):
        return Pair(self.b, self.a)


OldPair = collections.namedtuple("OldPair", "p q", defaults=[5])


@program
def named_tuples(x):
    p = Pair(x)
    a, b = p
    return (a, b, p.b, p[1], p._replace(b=3), p._asdict(), p.swapped(), Pair._fields, OldPair(1), OldPair(q=1, p=2),
            OldPair._make([3, 4]), OldPair(1) == (1, 5), len(p), isinstance(p, tuple), x + 1)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

    @property
    def pretty(self):
        return self.name.title()

    @classmethod
    def default(cls):
        return cls.GREEN


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Word(str, enum.Enum):
    YES = "yes"


@program
def enums(x):
    c = Colour.RED
    both = Access.READ | Access.WRITE
    return (c.name, c.value, c is Colour.CRIMSON, Colour(2), Colour["RED"], c.pretty, Colour.default(), [*Colour],
            c in (Colour.RED,), {c: 1}[Colour.RED], both, Access.READ in both, both & Access.WRITE, ~Access.READ,
            bool(both & Access.READ), Level.HIGH > Level.LOW, Level.LOW + 1, Word.YES == "yes", Word.YES.upper(),
            caught(lambda: Colour(9)), isinstance(c, Colour), len(Colour), x + Level.HIGH)


# ---- identity -------------------------------------------------------------------------------------------------------
def test_arguments_are_returned_themselves():
    def f(x, items, table, box, none, text):
        y = x + 1
        return x, items, table, box, none, text, (items, [table]), y
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        given = torch.ones(2), [1], {"a": [2]}, Box(), None, "text"
        *results, inner, _ = translated(*given)
        assert all(a is b for a, b in zip(results, given)) and inner[0] is given[1] and inner[1][0] is given[2]


def test_arguments_that_are_one_object():
    def f(x, a, b):
        a.append(x + 1)
        return a is b, len(b), a == b, x
    translated = sot.to_static(f, backend="eager")
    one, two = [1], [1]
    assert translated(X, one, one)[:3] == (True, 2, True) and len(one) == 2
    assert translated(X, one[:1], two)[:2] == (False, 1) and len(two) == 1
    assert translated(X, two, two)[:3] == (True, 2, True) and len(two) == 2


@program
def identity(x):
    a, b, n = [], [], None
    c = a
    t = (a, b)
    box = Box()
    box.items = a
    y = x
    return (a is c, a is b, a is not b, t[0] is a, box.items is c, n is None, x is y, x is not (x + 0),
            True is not False, {"k": a}["k"] is a, Box is type(box), identity is identity, (lambda v: v)(a) is a,
            ... is Ellipsis,
            box.__class__ is Box, [v for v in (a, b)][0] is a, NotImplemented is not None, x + 1)


@with_breaks
def identity_across_a_break(x):
    a, box = [x], Box()
    box.a, table, both = a, {"a": a}, (a, a)
    box.me, y = box, x * 2

    def f():
        return a
    method, it = box.a.append, iter(a)
    n = float(y.sum())
    method(n)
    return (a is box.a, table["a"] is a, both[0] is both[1] is a, f() is a, box.me is box, a[0] is x, len(table["a"]),
            [*it] == a, y is not x, y)


@program
def aliases(x):
    a = [1]
    b, table, t = a, {"a": a}, (a,)

    def add(v):
        a.append(v)

    def default(v, into=a):
        into.append(v)
    add(2)
    b.append(3)
    table["a"].append(4)
    t[0].append(5)
    default(6)
    box = Box()
    box.a = a
    box.a += [7]
    a[0] = x
    nested = [[0] * 2] * 2
    nested[0][0] = 1
    copied = a[:]
    copied.append("copy")
    return a, b is table["a"], table, len(box.a), nested, copied, x + 1


def test_aliases_of_arguments():
    def f(x, box, items, table):
        box.items.append(1)
        items.append(2)
        table["items"].append(x * 2)
        box.child.parent = box
        table["new"] = table
        return box.items is items is table["items"], box.child.parent is box
    items = [0]

    def make():
        box, items = Box(), [0]
        box.items, box.child = items, Box()
        return box, items, {"items": items}
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        box, items, table = make()
        assert translated(X, box, items, table) == (True, True)
        assert items[:3] == [0, 1, 2] and torch.equal(items[3], X * 2) and box.items is items
        assert box.child.parent is box and table["new"] is table


@program
def dict_order(x):
    d = {"a": 1, "b": 2, "c": 3}
    del d["a"]
    d["a"] = 4
    d["b"] = 5
    e = dict(d)
    e.pop("c")
    e["c"] = 6
    e.update(b=7, d=8)
    f = {**e, "a": 9}
    f.setdefault("z", f.pop("a"))
    last = f.popitem()
    return list(d), list(e.items()), list(f), last, list(reversed(d)), d | {"q": 1}, x + 1


def test_the_order_of_an_argument_is_changed():
    def f(x, d, box):
        del d["a"]
        d["a"] = x + 1
        d["b"] += 1
        d["z"] = 0
        del d["z"]
        del box.p
        box.p = 5
        return list(d), list(vars(box))
    box = Box()
    box.p, box.q = 1, 2
    check(f, X, {"a": 1, "b": 2, "c": 3}, box, graphs=1, breaks=0)


def test_deep_mutation():
    def f(x, data):
        data["a"][0]["b"].append([x])
        data["a"][0]["b"][-1].append(2)
        data["a"][1], data["a"][0] = data["a"]
        data["c"].box.items[1]["k"] = data["a"]
        return data["c"].box.items
    box, outer = Box(), Box()
    box.items, outer.box = [1, {}], box
    check(f, X, {"a": [{"b": []}, 5], "c": outer})


def test_cycles_are_returned():
    class Node:
        def __init__(self, parent=None):
            self.parent, self.children = parent, []
            if parent is not None:
                parent.children.append(self)

    def f(x):
        a = [1]
        a.append(a)
        d = {}
        d["self"] = (d, [d])
        root = Node()
        leaf = Node(Node(root))
        leaf.value = x * 2

        def g():
            return g, a
        root.g = g
        return a, d, root, leaf
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        a, d, root, leaf = translated(X)
        assert a[1] is a and len(a) == 2 and d["self"][0] is d and d["self"][1][0] is d
        assert leaf.parent.parent is root and root.children[0].children[0] is leaf and torch.equal(leaf.value, X * 2)
        assert root.g()[0] is root.g and root.g()[1] is a


@with_breaks
def cycles_across_a_break(x):
    a = [1]
    a.append(a)
    box = Box()
    box.me = [box]
    n = float(x.sum())
    a.append(n)
    box.me.append(n)
    return a[1] is a, a[1][2], box.me[0] is box, len(box.me), x + 1


@program
def instances_are_returned(x):
    t, v, h = Temperature(5), Vector(1, 2), Hooks()
    t.extra = [t]
    h.a = v
    return t, Table(a=x), Pair(1), Colour.RED, Frozen(1), [Point(1)], {"k": v}, h, x + 1


class Model(torch.nn.Module):
    scale = 2

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.calls, self.log = 0, []

    @property
    def factor(self):
        return self.scale + self.calls

    def forward(self, x):
        self.calls += 1
        self.log.append(x.shape)
        self.last = self.lin(x) * self.factor
        return self.last


def test_attributes_of_modules_are_written():
    torch.manual_seed(0)
    model = Model()
    translated = sot.to_static(model, backend="eager")
    for n in range(1, 4):
        y = translated(X)
        assert model.calls == n and len(model.log) == n and model.last is y
        assert torch.allclose(y, model.lin(X) * (2 + n))


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
