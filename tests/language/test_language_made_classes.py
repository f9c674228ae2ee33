"""Classes that are made by others (data classes, named tuples, enums), as the language reference has them."""
from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import gc
from typing import Any, ClassVar, NamedTuple

import torch
from harness import Programs, caught, check

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


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


# ---- classes that a library makes or completes -------------------------------------------------------------------
@program
def dataclasses_made_inside(x):
    @dataclasses.dataclass
    class A:
        a: torch.Tensor
        xs: list = dataclasses.field(default_factory=lambda: [1, x])
        n: int = 3

        def total(self):
            return self.a.sum() + len(self.xs) * self.n

    @dataclasses.dataclass(frozen=True, order=True)
    class B:
        n: int
        held: object = dataclasses.field(default=x, compare=False)

    @dataclasses.dataclass(slots=True)
    class C(A):
        z: type = A

        def total(self):
            return A.total(self) * 2
    a, b, c = A(x), B(2), C(x + 1, n=4)
    a.xs.append(2)
    try:
        b.n = 3
    except dataclasses.FrozenInstanceError as e:
        text = str(e)
    return (a.total(), c.total(), A(x).xs, b == B(2), b < B(3), hash(b) == hash(B(2)), b.held + 1, text,
            dataclasses.replace(c, n=5).n, c.z is A, [f.name for f in dataclasses.fields(c)], C.__slots__)


@program
def a_dataclass_that_is_returned(x):
    @dataclasses.dataclass
    class A:
        a: torch.Tensor
        n: int = 3
    made = A(x * 2)
    A.kind = "later"
    return dataclasses.asdict(made)["n"], [f.name for f in dataclasses.fields(A)], repr(A(1)), A.kind, A.__match_args__


@program
def an_order_that_is_completed(x):
    @functools.total_ordering
    class V:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n
    return x * (V(1) >= V(0)), V(1) > V(2), max(V(1), V(3)).n, sorted([V(2), V(1)])[0].n


@program
def a_dataclass_of_constants(x):
    made = dataclasses.make_dataclass("Made", ["a", ("n", int, 3)])
    return made(x).a * made(x).n


@program.each
def test_a_collection_leaves_the_captures(fn):
    """No guard is about the class that only capture has made, which the collector frees."""
    translated = sot.to_static(fn, backend="eager")
    translated(X)
    gc.collect()
    translated(X)
    assert [capture.name for capture in translated.captures].count(fn.__qualname__) == 1


def test_a_dataclass_that_leaves_is_another_one_at_each_call():
    def fn(x):
        @dataclasses.dataclass
        class A:
            a: torch.Tensor
            n: int = 3
        return A(x * 2)
    translated = sot.to_static(fn, backend="eager")
    one, two = translated(X), translated(X + 1)
    assert type(one) is not type(two) and one.a.equal(X * 2) and two.a.equal(X * 2 + 2)
    assert repr(one) == repr(fn(X)) and type(one)(1, 3) == type(one)(1, 3) != type(one)(1, 4)
    assert [f.type for f in dataclasses.fields(one)] == ["torch.Tensor", "int"]
    assert len(translated.captures) == 1, [c.name for c in translated.captures]


def test_a_dataclass_that_is_refused():
    def mutable(x):
        try:
            @dataclasses.dataclass
            class A:
                a: list = []    # noqa: RUF008
        except ValueError as e:
            return x * 2, str(e)

    def order(x):
        try:
            @dataclasses.dataclass
            class A:
                a: int = 1
                b: int
        except TypeError as e:
            return x * 2, str(e)

    def decorated_in_a_call_that_breaks(x):
        def complete(cls):
            made = dataclasses.dataclass(cls)
            sot.graph_break()
            return made

        @complete
        class A:
            a: int = 1
        return x * A(2).a, repr(A(2))
    for fn in (mutable, order, decorated_in_a_call_that_breaks):
        check(fn, X, again=False)


# ---- enums and named tuples of class statements ------------------------------------------------------------------
@program
def enums_made_inside(x):
    k = 3

    class Op(enum.Enum):
        ADD = k
        MUL = k + 1
        TIMES = 4

        def apply(self, a, b):
            return a + b if self is Op.ADD else a * b

        @classmethod
        def default(cls):
            return cls.ADD

        @property
        def twice(self):
            return self.value * 2

    class Name(str, enum.Enum):
        SIN = "sin"
        COS = "cos"

    class Level(enum.IntEnum):
        LOW = enum.auto()
        HIGH = enum.auto()
    held = {Op.ADD: x, Op.MUL: x * 2}
    match Op.MUL:
        case Op.ADD:
            y = x
        case Op.MUL:
            y = x * 3
    return (Op.MUL.apply(x, 2) + Op.default().apply(x, 1) + y, Op.MUL.twice, Op.TIMES is Op.MUL, held[Op.MUL],
            [n.value for n in Name], getattr(x, Name("cos").value)(), Name.SIN == "sin", x * Level.HIGH,
            Level.LOW < Level.HIGH, len(Op), Op["ADD"].name, repr(Op.ADD), str(Level.HIGH), caught(Op, 9))


@program
def flags_made_inside(x):
    class Part(enum.Flag):
        A = enum.auto()
        B = enum.auto()
        C = enum.auto()
    some = Part.A | Part.C
    return x * some.value, Part.B in some, bool(some & Part.C), (some ^ Part.A).name


@program
def named_tuples_of_a_class_statement(x):
    class Pair(NamedTuple):
        a: torch.Tensor
        b: int = 2

        def product(self):
            return self.a * self.b

        @property
        def next(self):
            return self.b + 1
    p = Pair(x)
    q = p._replace(b=5)
    a, b = q
    return p.product() + q.product() * b, p.next, Pair._fields, Pair._field_defaults, p[1], isinstance(p, tuple), len(q)


def test_members_that_leave_are_of_the_class_of_the_call():
    def fn(x):
        class Op(enum.Flag):
            A = 1
            B = 2

        class Pair(NamedTuple):
            a: torch.Tensor
            b: int = 2
        return x * 2, Op, Op.A, Op.A | Op.B, [Op.B], {Op.A: 1}, Pair(x)
    translated = sot.to_static(fn, backend="eager")
    for x in (X, X + 1):
        y, op, a, both, items, held, pair = translated(x)
        assert y.equal(x * 2) and a is op.A and both == op.A | op.B and items[0] is op.B and held[op.A] == 1
        assert pair.a is x and pair.b == 2 and repr(type(pair)) == repr(type(fn(x)[-1])) and repr(op) == repr(fn(x)[1])
    assert translated(X)[1] is not op
    assert len(translated.captures) == 1, [c.name for c in translated.captures]


def test_enums_that_call_code_of_the_program_are_left_to_python():
    made = []

    class Base(enum.Enum):
        def __init__(self, n):
            made.append(n)

    class Number(int):
        def __new__(cls, n):
            made.append(-n)
            return int.__new__(cls, n)

    def with_init(x):
        class Op(enum.Enum):
            A = (1, 2)

            def __init__(self, n, m):
                made.append((n, m))
        return x * Op.A.value[1], len(made)

    def below_a_base(x):
        class Op(Base):
            A = 4
        return x * Op.A.value, len(made)

    def of_a_type(x):
        class Op(Number, enum.Enum):
            A = 4
        return x * Op.A, len(made)

    def of_a_tensor(x):
        class Op(enum.Enum):
            A = x
        return Op.A.value * 2

    def changed(x):
        class Op(enum.Enum):
            A = 1
        return x * 2, caught(setattr, Op, "A", 3)

    def at_a_break(x):
        class Op(enum.Enum):
            A = 1
        held = {Op.A: x}
        sot.graph_break()
        return held[Op.A] * Op.A.value
    for fn in (with_init, below_a_base, of_a_type, of_a_tensor, changed, at_a_break):
        counts = []
        for f in (fn, sot.to_static(fn, backend="eager")):
            made.clear()
            counts.append(repr([f(X), f(X + 1)]))
        assert counts[0] == counts[1], fn.__name__
