"""Closures, comprehensions and descriptors of Python's language reference."""
from __future__ import annotations

import functools
import itertools
import types

import torch

from .program import Group

# ---- descriptors ----
descriptors = Group("descriptors")


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name)

    def __set__(self, obj, value):
        if value <= 0:
            raise ValueError("must be positive")
        setattr(obj, self.name, value)

    def __delete__(self, obj):
        delattr(obj, self.name)


class Layer:
    width = Positive()

    def __init__(self, width):
        self.width = width
        self.reads = 0

    @property
    def area(self):
        return self.width ** 2

    @area.setter
    def area(self, value):
        self.width = int(value ** 0.5)

    @area.deleter
    def area(self):
        self.width = 1

    @functools.cached_property
    def table(self):
        self.reads += 1
        return torch.arange(4.0) * self.width

    def scaled(self, x, k=2):
        return x * k * self.width

    tripled = functools.partialmethod(scaled, k=3)


@descriptors
def properties(x):
    m = Layer(2)
    y = x * m.area
    m.area = 16
    z = x * m.width
    del m.area
    return y, z, m.width


@descriptors
def cached_properties(x):
    m = Layer(2)
    return x * m.table, x + m.table, m.reads, "table" in vars(m)


@descriptors
def descriptors_of_data(x):
    m = Layer(3)
    try:
        m.width = -1
    except ValueError as e:
        message = str(e)
    return x * m.width, message, type(Layer.width).__name__


@descriptors
def partial_methods(x):
    return Layer(2).tripled(x), functools.partial(Layer(3).scaled, k=5)(x)


@descriptors
def bound_methods(x):
    m = Layer(2)
    f = m.scaled
    return f(x), f.__self__ is m, Layer.scaled(m, x), types.MethodType(lambda self, v: v + self.width, m)(x), f.__name__


@descriptors
def descriptors_called_by_hand(x):
    m = Layer(4)
    return x * Layer.__dict__["area"].__get__(m), Layer.scaled.__get__(m)(x), Layer.area.fget(m)


class Lazy:
    def __init__(self, f):
        self.f = f

    def __get__(self, obj, owner):
        return self.f(owner if obj is None else obj)


class Uses:
    k = 3
    by_class = Lazy(lambda o: o.k * 2)
    many = classmethod(lambda cls, x: x * cls.k)


@descriptors
def descriptors_without_data(x):
    u = Uses()
    before = x * u.by_class
    u.__dict__["by_class"] = 1
    return before, u.by_class, Uses.by_class, Uses.many(x)


class Dispatched:
    @functools.singledispatchmethod
    def show(self, v):
        return "other"

    @show.register
    def _(self, v: int):
        return v + 1

    @show.register
    def _(self, v: torch.Tensor):
        return v * 2


@descriptors
def methods_dispatched(x):
    d = Dispatched()
    return d.show(x), d.show(1), d.show("a")


# ---- closures ----
closures = Group("closures")


@closures
def counters(x):
    n = 0

    def step(v):
        nonlocal n
        n += 1
        return v * n
    return step(step(x)), n


@closures
def functions_that_make_functions(x):
    def scale(k):
        def f(v):
            return v * k
        return f
    return [scale(k)(x) for k in (1, 2)], [f(x) for f in [lambda v, k=k: v + k for k in range(2)]]


@closures
def late_binding(x):
    fs = [lambda v: v * i for i in range(3)]
    return [f(x) for f in fs]


def logged(f):
    @functools.wraps(f)
    def wrapper(*args, **kw):
        wrapper.calls += 1
        return f(*args, **kw)
    wrapper.calls = 0
    return wrapper


@closures
def decorators(x):
    @logged
    def double(v):
        "Twice."
        return v * 2
    return double(double(x)), double.calls, double.__name__, double.__doc__


@closures
def caches(x):
    @functools.lru_cache(maxsize=None)
    def power(n):
        return 1 if n == 0 else 2 * power(n - 1)
    return x * power(5), power(3)


@closures
def recursion(x):
    def walk(tree):
        if isinstance(tree, (list, tuple)):
            return [walk(t) for t in tree]
        return tree * 2
    return walk([x, (1, [x + 1])])


@closures
def partial_application(x):
    add = functools.partial(torch.add, alpha=2)
    return add(x, x), functools.reduce(lambda a, b: a * b, [x, 2, 3]), add.keywords, add.func is torch.add


@closures
def single_dispatch(x):
    @functools.singledispatch
    def show(v):
        return "other"

    @show.register(int)
    def _(v):
        return v + 1

    @show.register(torch.Tensor)
    def _(v):
        return v * 2
    return show(x), show(1), show(None)


@closures
def attributes_of_functions(x):
    def f(a, b=2, *, c: int = 3):
        return a * b * c
    f.note = "n"
    return f(x), f.__defaults__, f.__kwdefaults__, f.note, f.__code__.co_argcount, f.__annotations__


@closures
def cells_read(x):
    k = 5

    def f(v):
        return v * k
    return f(x), f.__closure__[0].cell_contents


# ---- comprehensions ----
comprehensions = Group("comprehensions")


@comprehensions
def lists(x):
    return [row * i for i, row in enumerate(x) if i % 2 == 0], [[a * b for b in range(2)] for a in range(2)]


@comprehensions
def dicts_and_sets(x):
    d = {name: getattr(x, name)() for name in ("sin", "cos")}
    return d, {n % 2 for n in range(5)}, {v: k for k, v in {"a": 1}.items()}


@comprehensions
def several_loops(x):
    return torch.stack([a * b for a in x[0] for b in x[1] if b is not a]), [(i, j) for i in range(3) for j in range(i)]


@comprehensions
def generator_expressions(x):
    return (
        sum(row.sum() for row in x), max(i * 2 for i in range(3)), tuple(n for n in "ab"),
        torch.stack(tuple(r * 2 for r in x)))


@comprehensions
def scopes(x):
    i = 10
    ys = [x * i for i in range(2)]
    return ys, i, [(lambda: j)() for j in range(2)]


@comprehensions
def chained_iterators(x):
    rows = zip(x, reversed(range(3)), strict=True)
    return [r * n for r, n in rows], list(itertools.chain(*[[1], [2]])), list(map(lambda a, b: a + b, x, x)), (
        list(filter(None, [0, 1, 2])), list(itertools.product("ab", repeat=2))[:2])


@comprehensions
def itertools_used(x):
    pairs = list(itertools.pairwise(x))
    return (
        [a + b for a, b in pairs], list(itertools.accumulate([1, 2, 3])),
        list(itertools.islice(itertools.cycle("ab"), 3)), [ (k, len(list(g))) for k, g in itertools.groupby("aab")],
        list(itertools.starmap(pow, [(2, 3)])))


@comprehensions
def sorted_by_keys(x):
    rows = sorted(enumerate(x), key=lambda p: -p[0])
    return [r for _, r in rows], sorted("bca", reverse=True), min([(2, "b"), (1, "c")]), max("abc", key=ord)


@comprehensions
def star_expressions(x):
    return (
        [*(r * 2 for r in x)], {**{k: x[i] for i, k in enumerate("ab")}}, (*[1], *"a"),
        print(*[i for i in range(3)], sep="-"))
