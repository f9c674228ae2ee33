"""Classes and the data model of Python's language reference."""
from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import itertools
import weakref
from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch

from .program import Group

# ---- data model ----
model = Group("data model")


class Vector:
    """A value with all of the operators."""

    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    def __radd__(self, other):
        return Vector(other + self.t)

    def __iadd__(self, other):
        self.t = self.t + other
        return self

    def __mul__(self, k):
        return NotImplemented if isinstance(k, str) else Vector(self.t * k)

    def __neg__(self):
        return Vector(-self.t)

    def __matmul__(self, other):
        return self.t @ other.t.T

    def __getitem__(self, i):
        return Vector(self.t[i])

    def __setitem__(self, i, value):
        self.t[i] = value

    def __len__(self):
        return self.t.shape[0]

    def __iter__(self):
        return (Vector(row) for row in self.t)

    def __contains__(self, value):
        return value < len(self)

    def __call__(self, k):
        return self.t * k

    def __bool__(self):
        return len(self) > 2

    def __eq__(self, other):
        return isinstance(other, Vector) and self.t.shape == other.t.shape

    def __hash__(self):
        return 7

    def __lt__(self, other):
        return len(self) < len(other)

    def __repr__(self):
        return f"Vector{tuple(self.t.shape)}"

    def __format__(self, spec):
        return f"<{spec}>"

    def __index__(self):
        return 2

    def __float__(self):
        return 2.5


@model
def arithmetic_methods(x):
    v = Vector(x)
    w = v + v
    w += 1
    return (w * 2).t, (1 + v).t, (-v).t, v @ v


@model
def container_methods(x):
    v = Vector(x)
    v[0] = 5.0
    return v[1].t, len(v), 2 in v, [r.t.sum() for r in v], bool(v[:1]), v(3)


@model
def conversion_methods(x):
    v = Vector(x)
    return repr(v), f"{v:abc}", str(v), float(v), "abc"[v], [1, 2, 3][v], range(5)[v], x * 2


@model
def comparison_methods(x):
    v, w = Vector(x), Vector(x[:2])
    return v == w, v != w, w < v, sorted([v, w])[0].t, {v: 1}[Vector(x * 2)], max(v, w).t


@model
def operators_refused(x):
    try:
        Vector(x) - 1
    except TypeError as e:
        return str(e), x + 1


@model
def sequences_repeated(x):
    return Vector(x) * "ab", [1] * Vector(x), x * 2


class Dynamic:
    def __init__(self, **kw):
        self.__dict__.update(kw)

    def __getattr__(self, name):
        if name.startswith("get_"):
            return lambda: self.__dict__[name[4:]]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2 if isinstance(value, int) else value)

    def __delattr__(self, name):
        super().__delattr__(name)

    def __dir__(self):
        return ["a"]


@model
def attribute_methods(x):
    d = Dynamic(k=3)
    d.n = 4
    y = x * d.get_k() + d.n
    del d.n
    return y, hasattr(d, "n"), getattr(d, "other", None), dir(d), vars(d)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@model
def slots(x):
    s = Slotted(x)
    try:
        s.c = 1
    except AttributeError:
        s.b = 2
    return s.a * s.b, hasattr(s, "__dict__"), Slotted.__slots__


class Iterated:
    def __init__(self, x):
        self.x, self.i = x, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i == len(self.x):
            raise StopIteration
        self.i += 1
        return self.x[self.i - 1]

    def __length_hint__(self):
        return 3


@model
def iterators(x):
    it = Iterated(x)
    first = next(it)
    return first, list(it), next(it, None), list(zip(Iterated(x), itertools.count())), list(iter([1, 2].pop, 1))


@model
def containers_of_the_library(x):
    counter, grouped = collections.Counter("abca"), collections.defaultdict(list)
    for i, row in enumerate(x):
        grouped[i % 2].append(row)
    return (
        counter.most_common(1), grouped, collections.ChainMap({"a": 1}, {"b": 2})["b"], collections.OrderedDict(a=x),
        collections.deque(x, maxlen=2))


@model
def copies_of_objects(x):
    v = Vector(x)
    w, u = copy.copy(v), copy.deepcopy(v)
    w.t.add_(1)
    return v.t, u.t, w.t is v.t


@model
def identity(x):
    a, b = object(), object()
    return (
        a is b, id(x) == id(x), type(a) is object, x is x, isinstance(True, int), issubclass(bool, int), callable(x),
        x * 2)


@model
def weak_references(x):
    v = Vector(x)
    r = weakref.ref(v)
    y = r().t * 2
    del v
    return y, r() is None


# ---- classes ----
classes = Group("classes")


class Base(ABC):
    registry: dict = {}
    scale = 2

    def __init_subclass__(cls, **kw):
        super().__init_subclass__()
        Base.registry[cls.__name__] = kw

    @abstractmethod
    def run(self, x): ...

    @classmethod
    def make(cls, *args):
        return cls(*args)

    @staticmethod
    def double(x):
        return x * 2

    def both(self, x):
        return self.double(self.run(x))


class Left(Base, tag=1):
    def run(self, x):
        return x + self.scale


class Right(Base):
    scale = 3

    def run(self, x):
        return x * self.scale


class Diamond(Left, Right):
    def run(self, x):
        return super().run(x) + super(Left, self).run(x)


@classes
def inheritance(x):
    d = Diamond.make()
    return d.run(x), d.both(x), [c.__name__ for c in Diamond.__mro__], isinstance(d, Base)


@classes
def abstract_classes(x):
    try:
        Base()
    except TypeError as e:
        return x + 1, type(e).__name__, Base.registry["Left"]


@dataclasses.dataclass
class Config:
    rate: float = 0.5
    names: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.names.append("made")


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: Any = None


@classes
def data_classes(x):
    c = Config(rate=2.0)
    d = dataclasses.replace(c, rate=3.0)
    return x * c.rate, d, dataclasses.asdict(c), Frozen(1) < Frozen(2), [f.name for f in dataclasses.fields(c)]


@classes
def frozen_classes(x):
    f = Frozen(2)
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        return x * f.a, str(e), hash(f) == hash(Frozen(2))


class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def lower(self):
        return self.name.lower()


class Flag(enum.IntFlag):
    A = 1
    B = 2


@classes
def enumerations(x):
    return (
        x * Color.RED.value, Color("b").lower, Color["RED"] is Color.RED, [c.name for c in Color], Flag.A | Flag.B,
        Flag.A in Flag(3))


class Pair(NamedTuple):
    first: Any
    second: int = 2

    def product(self):
        return self.first * self.second


@classes
def named_tuples(x):
    p = Pair(x)
    q = p._replace(second=3)
    made = collections.namedtuple("Made", "a b", defaults=[1])(x)
    return p.product(), q.product(), p._fields, made.b, tuple(made)[0] * 2, q._asdict()["second"]


class Meta(type):
    def __new__(mcs, name, bases, space, **kw):
        space["added"] = 5
        return super().__new__(mcs, name, bases, space)

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.called = True
        return made

    def __len__(cls):
        return 3


class Made(metaclass=Meta):
    def __init__(self, x):
        self.x = x


@classes
def metaclasses(x):
    m = Made(x)
    return m.x * m.added, m.called, len(Made), type(Made).__name__


@classes
def made_in_a_function(x):
    class Local(Left):
        factor = 4

        def __init__(self, k):
            super().__init__()
            self.k = k

        def run(self, v):
            return super().run(v) * self.k * self.factor
    return Local(2).run(x), Local.__name__, Local.__qualname__.endswith("<locals>.Local")


@classes
def made_by_type(x):
    Scaled = type("Scaled", (Left,), {"scale": 7, "extra": lambda self, v: v - 1})
    return Scaled().run(x), Scaled().extra(x)


T = TypeVar("T")


class Box(Generic[T]):
    def __init__(self, item: T):
        self.item = item


@runtime_checkable
class Runs(Protocol):
    def run(self, x): ...


@classes
def generics_and_protocols(x):
    return Box[torch.Tensor](x).item * 2, isinstance(Left(), Runs), isinstance(Box(1), Runs)


class Single:
    made = None

    def __new__(cls, *args):
        if cls.made is None:
            cls.made = super().__new__(cls)
        return cls.made


@classes
def instances_by_new(x):
    a, b = Single(), Single()
    Single.made = None
    return a is b, x * 2


@classes
def attributes_of_classes(x):
    Left.scale, before = 9, Left.scale
    try:
        return Left().run(x), Left.__dict__["scale"] if "scale" in Left.__dict__ else None, Left.__subclasses__()
    finally:
        del Left.scale
        assert Left.scale == before


@classes
def containers_subclassed(x):
    class Ordered(dict):
        def __missing__(self, key):
            return key * 2
    d = Ordered(a=1)
    return x * d["a"], d["zz"], isinstance(d, dict), list(d)


