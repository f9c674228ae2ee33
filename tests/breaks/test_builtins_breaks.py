"""Builtins where a break happens in the middle of them, and what they tell about classes."""
from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import os
from typing import Protocol, runtime_checkable

import torch
from harness import Calls, Plain, check

X = torch.arange(1.0, 5.0)
whole, broken = Calls(), Calls()


@whole.each
def test_is_captured_whole(fn, args):
    check(fn, X, *args, graphs=1, breaks=0)


@broken.each
def test_is_right_with_breaks(fn, args):
    check(fn, X, *args, again=fn not in (in_special_methods, hashes_of_objects, randomness_and_time))


# ---- breaks in the middle of what builtins do ----------------------------------------------------------------------
def breaking(x, k):
    return float((x * k).sum())


@broken()
def in_a_key_function(x):
    return sorted([1, -3, 2], key=lambda k: breaking(x, k)), max([1, 2], key=lambda k: -breaking(x, k)), x + 1


@broken()
def in_a_mapped_function(x):
    return [v for v in map(lambda k: breaking(x, k), [1, 2, 3])], sum(breaking(x, k) for k in range(3)), x + 1


@broken()
def in_a_loop_over_iterators(x):
    total, seen = 0, []
    for i, (a, b) in enumerate(zip([1, 2, 3], (x, x + 1, x + 2))):
        total = total + b * breaking(x, a)
        seen.append(i)
    for k, v in {"a": 1, "b": 2}.items():
        seen.append((k, breaking(x, v)))
    for a in itertools.chain([1], [2, 3]):
        seen.append(breaking(x, a))
    for a in reversed([1, 2]):
        seen.append(breaking(x, a))
    return total, seen


@broken()
def in_special_methods(x):
    class Breaker:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return breaking(x, self.v) + other

        def __eq__(self, other):
            return breaking(x, self.v) == other

        def __getattr__(self, name):
            if name == "gone":
                raise AttributeError(name)
            return breaking(x, self.v)

        def __len__(self):
            return int(breaking(x, 1))

        def __getitem__(self, i):
            return breaking(x, i)

        def __enter__(self):
            return breaking(x, 2)

        def __exit__(self, *exc):
            self.left = breaking(x, 3)

    b = Breaker(1)
    with b as entered:
        y = x + 1
    return b + 1, b == 10, len(b), b[2], b.other, getattr(b, "gone", 0), hasattr(b, "gone"), entered, b.left, y, bool(b)


@broken()
def in_generators(x):
    def gen(n):
        for i in range(n):
            got = yield breaking(x, i)
            if got:
                yield got
    g = gen(4)
    a = next(g)
    b = g.send("sent")
    return a, b, list(g), [*gen(2)], dict(zip("ab", gen(2))), any(v > 5 for v in gen(3)), x + 1


@broken()
def in_a_context_manager(x):
    log = []

    @contextlib.contextmanager
    def managed(k):
        log.append(breaking(x, k))
        try:
            yield k
        except ValueError as e:
            log.append(str(e))
        finally:
            log.append("left")

    with managed(1) as k:
        y = x * k
    with managed(2):
        raise ValueError("swallowed")
    with contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
        stack.callback(log.append, "callback")
        {}["k"]
    return y, log


@broken([3, 1, 2], {"a": 1})
def with_mutations_around(x, items, table):
    items.sort()
    n = breaking(x, 1)
    items.append(n)
    table["n"] = n
    m = breaking(x, 2)
    table.pop("a")
    items[0] = m
    return x + len(items), items, table


@broken()
def hashes_of_objects(x):
    @dataclasses.dataclass(frozen=True)
    class Key:
        n: int
    d = {Key(1): "a", Key(2): "b"}
    return d[Key(2)], Key(1) in d, len({Key(1), Key(1)}), hash(Key(1)) == hash(Key(1)), id(d) == id(d), x + 1


@broken()
def randomness_and_time(x):
    import random
    import time
    random.seed(3)
    a = random.random(), random.randint(1, 10), random.choice([1, 2, 3])
    t = time.perf_counter() > 0
    return a, t, x + 1


@whole()
def the_environment(x):
    return (os.environ.get("SOT_NO_SUCH", "default"), "HOME" in os.environ, os.getenv("SOT_NO_SUCH"),
            os.environ["PATH"], os.path.join("a", "b"), os.path.basename("/a/b.c"), os.path.splitext("b.c"), x + 1)


# ---- classes ------------------------------------------------------------------------------------------------------
class Shape(abc.ABC):
    registry: dict = {}

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        Shape.registry[cls.__name__] = cls

    @abc.abstractmethod
    def area(self):
        ...

    @property
    @abc.abstractmethod
    def name(self):
        ...


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side

    @property
    def name(self):
        return "square"


class Loud:
    def speak(self):
        return "LOUD " + super().speak()


class Base:
    def speak(self):
        return "base"


class Both(Loud, Base):
    def __init__(self):
        super().__init__()
        self.tag = type(self).__name__


@runtime_checkable
class HasArea(Protocol):
    def area(self):
        ...


@whole()
def abstract_classes(x):
    s = Shape.registry["Square"](x)
    try:
        Shape()
    except TypeError as e:
        message = str(e)
    return s.area(), s.name, isinstance(s, Shape), message, Both().speak(), Both().tag, Both.__mro__[1].__name__


class Lazy:
    def __init__(self):
        self.made = 0

    @functools.cached_property
    def value(self):
        self.made += 1
        return [self.made]

    @functools.wraps(len)
    def wrapped(self):
        return 1

    @functools.singledispatchmethod
    def kind(self, v):
        return "object"

    @kind.register
    def _(self, v: int):
        return "int"


@functools.singledispatch
def describe(v):
    return "object"


@describe.register
def _(v: list):
    return "list"


@whole()
def lazies(x):
    lazy = Lazy()
    lazy.value.append(2)
    return lazy.value, lazy.made, lazy.value is lazy.value, "value" in lazy.__dict__, lazy.wrapped(), x + 1


@broken()
def dispatches(x):
    return describe([]), describe(1), Lazy().kind(1), Lazy().kind("a"), x + 1


class Proxy:
    def __init__(self, target):
        object.__setattr__(self, "_target", target)

    def __getattr__(self, name):
        return getattr(self._target, name)

    def __setattr__(self, name, value):
        setattr(self._target, name, value)

    def __delattr__(self, name):
        delattr(self._target, name)

    def __call__(self, *args, **kw):
        return self._target(*args, **kw)


class Logged:
    def __getattribute__(self, name):
        if name == "secret":
            return "intercepted"
        return object.__getattribute__(self, name)


@whole()
def proxies(x):
    inner = Plain(k=2)
    p = Proxy(inner)
    p.k = 5
    p.z = x
    del p.z
    logged = Logged()
    logged.v = 3
    return p.k, inner.k, p.method(x), hasattr(p, "z"), Proxy(len)([1]), logged.secret, logged.v, x + 1
