"""Classes that are made by others (data classes, named tuples, enums), as the language reference has them."""
from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any, ClassVar, NamedTuple

import torch
from harness import Programs, caught, check

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
