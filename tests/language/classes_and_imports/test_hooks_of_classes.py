"""Classes whose making calls code of the program: ``__init_subclass__``, ``__set_name__``, metaclasses."""
from __future__ import annotations

import abc
import functools

import pytest
import torch
from harness import Programs, check

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


class Base(abc.ABC):
    found: dict = {}
    scale = 2

    def __init_subclass__(cls, tag=None, **keywords):
        super().__init_subclass__(**keywords)
        Base.found[cls.__name__] = tag
        print("hook of", cls.__name__)

    @abc.abstractmethod
    def run(self, x): ...


class Left(Base, tag=1):
    def run(self, x):
        return x * self.scale


class Layer(torch.nn.Module):
    made: dict = {}

    def __init_subclass__(cls, **keywords):
        Layer.made[cls.__name__] = keywords


class Typed:
    def __init__(self, kind, default=None):
        self.kind, self.default = kind, default

    def __set_name__(self, owner, name):
        self.key, self.owner = "_" + name, owner
        print("named", name, owner.__name__)

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.key, self.default)

    def __set__(self, obj, value):
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.key[1:]} must be {self.kind.__name__}")
        setattr(obj, self.key, value)

    def __delete__(self, obj):
        delattr(obj, self.key)


SHARED = Typed(int, 9)


class Meta(type):
    items: dict = {}

    def __prepare__(name, bases, **keywords):
        return {"prepared": 5}

    def __new__(mcs, name, bases, space, **keywords):
        space["added"] = len(bases)
        cls = super().__new__(mcs, name, bases, space)
        mcs.items[name] = keywords
        return cls

    def __init__(cls, name, bases, space, **keywords):
        super().__init__(name, bases, space)
        cls.complete = True

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.extra = 1
        return made

    def __getitem__(cls, key):
        return key * 2

    def __iter__(cls):
        return iter([1, 2])


class Made(metaclass=Meta):
    pass


@program
def below_a_hook(x):
    class Local(Left, tag="t"):
        factor = 4

        def run(self, v):
            return super().run(v) * self.factor
    return Local().run(x), Local.__mro__[1:], Local.__qualname__, isinstance(Local(), Base), {**Base.found}


@program
def made_by_type(x):
    scaled = type("Scaled", (Left,), {"scale": 7, "extra": lambda self, v: v - 1})
    return scaled().run(x), scaled().extra(x), Base.found["Scaled"]


@program
def hooks_of_the_call(x):
    class Root:
        found: list = []

        def __init_subclass__(cls, /, tag=None, **keywords):
            super().__init_subclass__(**keywords)
            cls.found.append((cls.__name__, tag))
            cls.tag = tag

    class One(Root, tag="a"):
        pass

    class Two(One):
        k = 2
    return x * Two.k, Root.found, One.tag, Two.tag


@program
def layers_of_the_call(x):
    class Local(Layer):
        def forward(self, v):
            return v * 2
    return Local()(x), {**Layer.made}


@program
def named_descriptors(x):
    class Local:
        n = Typed(int, 1)
        t = Typed(torch.Tensor)
        shared = SHARED

    c = Local()
    c.t, c.n = x, 4
    try:
        c.n = "a"
    except TypeError as e:
        text = str(e)
    found = c.t * c.n
    del c.n
    return found, c.n, text, Local.n.key, Local.t.owner is Local, c.shared, SHARED.key


@program
def descriptors_of_the_call(x):
    class Doubled:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, owner=None):
            return self if obj is None else obj.__dict__[self.name] * 2

        def __set__(self, obj, value):
            obj.__dict__[self.name] = value

    class Local:
        a = Doubled()

        def __init__(self, v):
            self.a = v
    return Local(x).a, Local.a.name


@program
def partial_methods(x):
    class Local:
        def f(self, a, b):
            return a * b
        twice = functools.partialmethod(f, 2)
        by_name = functools.partialmethod(f, b=3)
    return Local().twice(x), Local().by_name(x)


@program
def metaclasses(x):
    class One(metaclass=Meta, k=1):
        def __init__(self, v):
            self.v = v

    class Two(One):
        def twice(self):
            return One.__init__(self, 3), type(self).__name__
    a = Two(x)
    found = dict(Meta.items)
    return (a.v * a.extra, Two.complete, Two.prepared, Two.added, One[3], [*One], found["One"], type(Two) is Meta,
            a.twice())


@program
def metaclasses_of_the_call(x):
    class Sized(type):
        def __len__(cls):
            return 7

    class Local(metaclass=Sized):
        pass
    return x * len(Local), type(Local).__name__


@program
def below_a_metaclass(x):
    made = Meta("Named", (Made,), {"k": 3})
    other = type("Other", (Made,), {"k": 4})
    return x * made.k, made.added, other.k, type(other) is Meta, Meta.items["Other"]


@program
def values_set_on_classes(x):
    class Local:
        count = 0

        def __init__(self):
            Local.count += 1
            type(self).last = self
    Local()
    c = Local()
    Local.extra = lambda self, v: v * self.count
    Local.items = [1, x]
    return c.extra(x), Local.last is c, Local.items[1]


@program
def wrong_keywords(x):
    class Plain:
        pass
    try:
        class Local(Plain, k=1):
            pass
    except TypeError as e:
        return x + 1, str(e)


@program
def hooks_that_raise(x):
    class Root:
        def __init_subclass__(cls):
            raise ValueError(cls.__name__)
    try:
        class Local(Root):
            pass
    except ValueError as e:
        return x + 1, str(e)


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


def returns_what_it_made(x):
    class Local(Left, tag=3):
        n = Typed(int, 1)

    class Other(metaclass=Meta):
        pass
    made = Local()
    made.n = 5
    return x + 1, made, Local, Other()


def test_classes_that_leave_the_function(capsys):
    translated = sot.to_static(returns_what_it_made, backend="eager")
    for _ in range(3):
        want = returns_what_it_made(X)
        text = capsys.readouterr().out
        _, made, cls, other = translated(X)
        assert capsys.readouterr().out == text
        assert type(made) is cls and cls.__mro__[1:] == want[2].__mro__[1:] and cls.__bases__ == (Left,)
        assert made.n == 5 and cls.n.owner is cls and [*vars(cls)] == [*vars(want[2])]
        assert torch.equal(made.run(X), X * 2)
        assert type(type(other)) is Meta and other.extra == 1 and type(other)[2] == 4 and type(other).complete
        assert [*vars(type(other))] == [*vars(type(want[3]))]
    assert not [c for c in translated.captures if c.stopped]


class Loses(type):
    """A metaclass that loses or replaces the cell of the class."""

    def __new__(cls, name, bases, namespace, cell=None):
        namespace.pop("__classcell__", None)
        if cell is not None:
            namespace["__classcell__"] = cell
        return super().__new__(cls, name, bases, namespace)


class Keeps(type):
    def __new__(cls, name, bases, namespace):
        return super().__new__(cls, name, bases, {**namespace, "factor": 3})


@pytest.mark.parametrize("cell", [None, 0])
def test_a_metaclass_that_loses_the_cell_of_the_class(cell):
    def fn(x):
        try:
            class Local(metaclass=Loses, cell=cell):
                def f(self):
                    return __class__
        except (RuntimeError, TypeError) as e:
            return x + 1, type(e).__name__
        return x - 1, ""
    assert fn(torch.ones(2))[1] == sot.to_static(fn)(torch.ones(2))[1] != ""


def test_methods_that_refer_to_their_class_below_a_metaclass():
    def fn(x):
        class Local(metaclass=Keeps):
            def f(self):
                return x * __class__.factor
        return Local().f()
    assert torch.equal(sot.to_static(fn)(torch.ones(2)), fn(torch.ones(2)))
