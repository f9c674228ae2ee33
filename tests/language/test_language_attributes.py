"""Attributes and inheritance, as the language reference has them."""
from __future__ import annotations

import abc
import functools
from typing import ClassVar

import torch
from harness import Programs, caught, check
from test_language_made_classes import Colour

import sot

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


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
