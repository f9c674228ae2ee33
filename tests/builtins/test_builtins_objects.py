"""What objects, classes, text, numbers and modules do is captured exactly, without a break."""
from __future__ import annotations

import collections
import collections.abc
import copy
import dataclasses
import enum
import functools
import os
import types
import typing
from typing import Any

import torch
from harness import Programs, caught, check
from torch import nn

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


# ---- types and attributes -----------------------------------------------------------------------------------------
class Box:
    kind = "box"

    def __init__(self, v):
        self.v = v

    def __repr__(self):
        return f"Box({self.v})"

    @property
    def double(self):
        return self.v * 2

    @double.setter
    def double(self, v):
        self.v = v // 2

    @classmethod
    def make(cls, v):
        return cls(v)

    @staticmethod
    def helper(v):
        return v + 1

    @functools.cached_property
    def slow(self):
        return self.v * 100


class Missing(Box):
    def __getattr__(self, name):
        if name == "magic":
            return 42
        raise AttributeError(f"no {name}")


@program
def attributes_by_name(x):
    b = Box(3)
    setattr(b, "w", x)
    setattr(b, "double", 10)
    r = getattr(b, "v"), getattr(b, "nope", None), hasattr(b, "double"), hasattr(b, "nope"), b.slow, vars(b)
    delattr(b, "w")
    m = Missing(1)
    return (r, hasattr(b, "w"), getattr(m, "magic", 0), getattr(m, "other", 0), hasattr(m, "magic"), hasattr(m, "q"),
            caught(lambda: m.zzz), Box.make(2).v, Box.helper(1), b.kind, Box.kind, x + 1, hasattr(x, "shape"),
            getattr(x, "nothing", "none"), b.__class__ is Box, type(b).__name__, b.__dict__)


@program
def types_and_instances(x):
    return (type(x), type(1) is int, isinstance(x, torch.Tensor), isinstance(1, (str, int)), isinstance(1, int | str),
            isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.Mapping), issubclass(bool, int),
            isinstance(x, nn.Parameter), callable(len), callable(x), callable(Box), callable(lambda: 1),
            isinstance(Box(1), Box), isinstance(None, type(None)), isinstance(True, int), type(Box(1)) is Box,
            isinstance(x, collections.abc.Iterable), isinstance((i for i in ()), collections.abc.Iterator),
            isinstance(max, types.BuiltinFunctionType), isinstance(caught, types.FunctionType), x + 1,
            isinstance(1, typing.Union[int, str]), issubclass(Missing, Box), torch.is_tensor(x), x.is_floating_point())


class Meta(type):
    def __instancecheck__(cls, obj):
        return hasattr(obj, "v")

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.meta = True
        return made


class Registered(metaclass=Meta):
    def __new__(cls, *args):
        self = super().__new__(cls)
        self.news = len(args)
        return self

    def __init__(self, a):
        self.a = a


@program
def metaclasses(x):
    r = Registered(x)
    return isinstance(Box(1), Registered), isinstance(1, Registered), r.meta, r.news, r.a + 1


class Money:
    def __init__(self, n):
        self.n = n

    def __add__(self, o):
        return Money(self.n + o.n) if isinstance(o, Money) else NotImplemented

    def __radd__(self, o):
        return Money(self.n + o)

    def __iadd__(self, o):
        self.n += o.n
        return self

    def __eq__(self, o):
        return isinstance(o, Money) and self.n == o.n

    def __hash__(self):
        return hash(self.n)

    def __lt__(self, o):
        return self.n < o.n

    def __neg__(self):
        return Money(-self.n)

    def __bool__(self):
        return self.n != 0

    def __int__(self):
        return self.n

    def __index__(self):
        return self.n

    def __mul__(self, k):
        return Money(self.n * k)

    __rmul__ = __mul__

    def __call__(self, k=1):
        return self.n + k

    def __contains__(self, k):
        return k == self.n

    def __str__(self):
        return f"${self.n}"

    def __format__(self, spec):
        return f"<{self.n}:{spec}>"

    def __abs__(self):
        return Money(abs(self.n))

    def __matmul__(self, o):
        return "matmul"


class Cents(Money):
    def __radd__(self, o):
        return "cents"


@program
def operator_overloading(x):
    a, b = Money(1), Money(2)
    c = a + b
    d = sum([a, b])
    a += b
    return (c.n, d.n, a.n, a == Money(3), a != b, a < b, b > a, (-b).n, bool(Money(0)), not a, int(b), (b * 2).n,
            (2 * b).n,
            b(), 2 in b, str(b), f"{b}|{b:x}|{b!s}", [0, 1, 2][b], sorted([b, Money(1)])[0].n, max(a, b).n, abs(-b).n,
            Money(1) + Cents(1), caught(lambda: Money(1) + "s"), caught(lambda: Money(1) - 1), b @ 1, Money(1) in [a,
            b, Money(1)],
            [Money(1)] == [Money(1)], a is b, x * int(b), caught(lambda: object() < object()), object() == object(),
            "yes" if Money(0) else "no", list(range(Money(2))), hash(Money(3)) == hash(3))


@dataclasses.dataclass(frozen=True, order=True)
class Config:
    n: int = 1
    name: str = "c"
    extra: tuple = ()


@dataclasses.dataclass
class State:
    x: Any
    items: list = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        self.total = len(self.items) + 1


@program
def data_classes(x):
    c = Config(2)
    d = dataclasses.replace(c, name="d")
    s = State(x * 2, [1])
    s.items.append(2)

    def freeze():
        c.n = 5
    return (c, d, c == Config(2), c < d, s.total, s.items, dataclasses.asdict(State(1)), dataclasses.astuple(c), s.x,
            [f.name for f in dataclasses.fields(c)], caught(freeze), dataclasses.is_dataclass(c), repr(c))


class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def pretty(self):
        return self.name.lower()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@program
def enums(x):
    return (Color(1), Color["RED"], Color.RED.pretty, Color.BLUE.value, [c.name for c in Color], len(Color),
            Level.HIGH > 1,
            Level.LOW + 1, Color.RED == Color.RED, Color.RED in Color, Flags.A | Flags.B, bool(Flags.A & Flags.B),
            {Color.RED: 1}[Color.RED], caught(lambda: Color(7)), str(Color.RED), f"{Level.LOW}", x * Level.HIGH,
            isinstance(Color.RED, Color), max(Level))


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program
def slots(x):
    s = Slotted(x)
    s.b = 2
    s.a = s.a + 1
    return s.a, s.b, hasattr(Slotted(1), "b"), caught(lambda: setattr(s, "c", 1))


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner):
        return self if obj is None else getattr(obj, self.name, "unset")

    def __set__(self, obj, value):
        setattr(obj, self.name, value)


class Described:
    field = Descriptor()


@program
def descriptors(x):
    d = Described()
    before = d.field
    d.field = 3
    setattr(d, "field", d.field + 1)
    return before, d.field, vars(d), x + 1


class MyError(ValueError):
    def __init__(self, code, extra=None):
        super().__init__(f"code {code}")
        self.code = code
        self.extra = extra


@program
def exceptions(x):
    try:
        raise MyError(3, extra=x)
    except ValueError as e:
        got = e.code, str(e), e.args, e.extra, type(e).__name__, isinstance(e, MyError)
    try:
        try:
            raise KeyError("k")
        except KeyError as e:
            raise RuntimeError("r", 2) from e
    except RuntimeError as e:
        chain = e.args, str(e), repr(e.__cause__), str(e.__cause__)
    return (got, chain, caught(lambda: int("x")), caught(lambda: 1 / 0), caught(lambda: "a" + 1),
            caught(lambda: None.x), x + 1)


# ---- existing containers, mutated --------------------------------------------------------------------------------
def mutates(x, items, table, members, queue, box):
    items.sort()
    items += [x + 1]
    table.update(b=2)
    table.setdefault("c", []).append(x)
    del table["a"]
    members.update({7, 8})
    queue.append(4)
    box.v = [x]
    box.v.append(2)
    return items[-1], len(table), sorted(members), queue[0], [k for k in table]


def test_existing_containers_are_mutated():
    check(mutates, X, [3, 1], {"a": 1, "z": 0}, {1, 2}, collections.deque([1, 2, 3], maxlen=3), Box(1), graphs=1,
            breaks=0)


@program
def copies(x):
    d = {"a": [1, 2], "n": None}
    e, f = copy.copy(d), copy.deepcopy(d)
    f["a"].append(3)
    b = Box(1)
    b.child = [b]
    c = copy.deepcopy(b)
    s = copy.copy(b)
    return d, e["a"] is d["a"], f, c.child[0] is c, c is b, s.child is b.child, copy.copy([1]), x + 1


@program
def deep_copies_of_tensors(x):
    y = x * 2
    kept = {"best": y, "again": [y, x]}
    saved = copy.deepcopy(kept)
    y += 1
    return y, saved, saved["best"] is saved["again"][0], saved["best"] is y


@program
def calls_of_generic_aliases(x):
    counts = collections.defaultdict[str, int](int)
    counts["a"] += 2
    found = dict[str, int](a=1), list[int]((1, 2)), set[int]([3]), tuple[int, ...]("ab")
    return x * counts["a"], found, type(found[0]), caught(list[int], 3)


def test_a_method_of_c_code_is_bound_with_the_type_of_its_object(tmp_path):
    """Some of 3.13's methods, os.DirEntry's for one, crash where their ``__get__`` is not told the type."""
    (tmp_path / "folder").mkdir()

    def names(x):
        with os.scandir(tmp_path) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries]
        return found, x + 1

    check(names, X)


# ---- sequences repeated by an object ------------------------------------------------------------------------------
class Times:
    def __index__(self):
        return 2

    def __mul__(self, other):
        return NotImplemented if isinstance(other, str) else "mine"


@program
def sequences_repeated_by_an_index_of_python(x):
    t = Times()
    return x * 2, t * "ab", "ab" * t, [x] * t, (1,) * t, b"c" * t, t * [1], caught(lambda: t - [1])


# ---- facts of the process, and names with underscores ---------------------------------------------------------------
@program
def versions_and_capabilities(x):
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return x * major, minor, torch.__version__ >= "1.0", torch.get_num_interop_threads() > 0, (
        torch.backends.cpu.get_cpu_capability())


@program
def attributes_of_functions_with_underscores(x):
    def f(v):
        return v * 2
    f.__marked = 3
    f.__other__ = 4
    return f(x), f.__marked, f.__other__, f


@program
def contents_of_cells(x):
    k = 5

    def f(v):
        return v * k
    before = f.__closure__[0].cell_contents
    k = x.sum()

    def empty():
        return later
    found = f.__closure__[0].cell_contents, caught(lambda: empty.__closure__[0].cell_contents)
    later = 1
    return f(x), before, found, empty.__closure__[0].cell_contents
