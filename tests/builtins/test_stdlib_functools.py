"""functools and operator: caches, dispatch, partial application, orders."""

from __future__ import annotations

import functools
import operator
import re

import pytest
import torch
from harness import Counter, check, same
from torch import nn

import sot

X = torch.arange(1.0, 4.0)


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def lru_(x):
    return x * fib(10), fib.cache_info().currsize > 0


@functools.cache
def tbl(n):
    return [i * i for i in range(n)]


def cache_list(x):
    t = tbl(4)
    return x + sum(t), tbl(4) is t


def local_lru(x):
    @functools.lru_cache
    def g(n):
        return n * 2

    return x + g(3) + g(3), g.cache_info().hits


@functools.singledispatch
def sd(a):
    return "obj"


@sd.register
def _(a: int):
    return "int"


@sd.register(list)
def _(a):
    return "list"


@sd.register
def _(a: torch.Tensor):
    return a * 2


def singledispatch(x):
    return sd(x), sd(1), sd([1]), sd("s"), sd(True)


class SDM:
    @functools.singledispatchmethod
    def f(self, a):
        return "o"

    @f.register
    def _(self, a: int):
        return a + 1

    @f.register
    def _(self, a: torch.Tensor):
        return a + 1


def singledispatchmethod(x):
    s = SDM()
    return s.f(x), s.f(2), s.f("a")


class CP:
    def __init__(s, x):
        s.x = x
        s.n = 0

    @functools.cached_property
    def v(s):
        s.n += 1
        return s.x * 2

    @property
    def w(s):
        return s.x + 1

    @w.setter
    def w(s, v):
        s.x = v

    def base(s, a, b=2, *, c=3):
        return s.x * a + b + c

    half = functools.partialmethod(base, 0.5)
    other = functools.partialmethod(base, b=1, c=1)


def cached_property(x):
    c = CP(x)
    return c.v + c.v, c.n, "v" in c.__dict__


def partialmethod(x):
    c = CP(x)
    return c.half(), c.other(2), c.half(c=9)


def property_set_(x):
    c = CP(x)
    c.w = x * 3
    return c.w, c.x


@functools.total_ordering
class Ver:
    def __init__(s, *p):
        s.p = p

    def __eq__(s, o):
        return s.p == o.p

    def __lt__(s, o):
        return s.p < o.p


def total_ordering(x):
    return x + 1, Ver(1, 2) > Ver(1, 1), Ver(1) >= Ver(2), Ver(1) <= Ver(1), max([Ver(1), Ver(3), Ver(2)]).p


def reduce_(x):
    return functools.reduce(operator.add, [x, x * 2, x * 3]), functools.reduce(lambda a, b: a * b, [1, 2, 3], 1)


def deco(f):
    @functools.wraps(f)
    def w(*a, **k):
        return f(*a, **k) * 2

    return w


@deco
def dd(x):
    "doc"
    return x + 1


def wraps_(x):
    return dd(x), dd.__name__, dd.__doc__, dd.__wrapped__(x)


def local_wraps(x):
    @deco
    def h(x):
        return x - 1

    return h(x), h.__name__


def partial_(x):
    f = functools.partial(torch.add, x, alpha=2)
    g = functools.partial(f, x)
    return g(), g.args[0].shape, g.keywords, g.func is torch.add


@pytest.mark.parametrize(
    "fn",
    [
        cache_list,
        singledispatch,
        cached_property,
        partialmethod,
        property_set_,
        total_ordering,
        reduce_,
        wraps_,
        local_wraps,
        partial_,
    ],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [lru_, local_lru, singledispatchmethod], ids=lambda fn: fn.__name__)
def test_with_breaks(fn):
    check(fn, X, again=False)


# ---- caches: the program gets the object that the cache has, and the body runs once
IMAGE = torch.arange(6.0).reshape(2, 3)


@functools.cache
def noise(size):
    print("noise", size)
    return torch.rand(size)


@functools.lru_cache(maxsize=4, typed=True)
def scale_of(x, *, factor=1):
    print("scale", factor)
    return x * factor


SETTINGS = {"scale": 1}


@functools.cache
def current_settings():
    return dict(SETTINGS)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1

    @functools.lru_cache  # noqa: B019
    def mask(self, size):
        print("mask", size)
        return torch.rand(size)

    @functools.lru_cache  # noqa: B019
    def first_factor(self):
        return self.factor

    def forward(self, x):
        self.factor += 1
        mask = self.mask(3)
        mask += 1
        return x * mask * self.first_factor(), mask is self.mask(3)


def prints_and_draws_before(x):
    print("before")
    return x + torch.rand(3) + noise(3)


def by_name(x):
    return scale_of(x, factor=2), scale_of(x, factor=2) is scale_of(x, factor=2), scale_of(x)


def several_calls(fn, backend, count=4):
    made = sot.to_static(fn, backend=backend) if backend else fn
    return [made(x) for x in [IMAGE] * count]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [Layer, lambda: prints_and_draws_before, lambda: by_name])
def test_calls_are_those_of_python(make, backend, capsys):
    found = []
    for used in (None, backend):
        for cached in (noise, scale_of, Layer.mask, Layer.first_factor):
            cached.cache_clear()
        torch.manual_seed(0)
        found.append((several_calls(make(), used), capsys.readouterr().out))
    assert same(*found) is None


def test_a_cached_method_is_in_the_graph():
    layer, backend = Layer(), Counter()
    layer(IMAGE)
    translated = sot.to_static(layer, backend=backend)
    translated(IMAGE)
    assert len(backend.graphs) == 1 and not sot.explain(layer)(IMAGE).breaks


PARAMETER = torch.ones(2)


@functools.cache
def words(text):
    return re.findall(r"\w+", text), PARAMETER.requires_grad


def reads_no_change(x):
    return x * len(words("b t c")[0])


def reads_a_flag(x):
    PARAMETER.requires_grad_()
    return x * 2, words("b t c")


@pytest.mark.parametrize("fn, breaks", [(reads_no_change, 0), (reads_a_flag, 1)])
def test_the_first_call_of_a_cached_function_whose_names_cannot_all_be_followed(fn, breaks):
    translated, found = sot.to_static(fn, backend=Counter()), []
    for call in fn, translated:
        words.cache_clear(), PARAMETER.requires_grad_(False)
        found.append((call(IMAGE), PARAMETER.requires_grad))
    assert same(*found) is None and sum(c.stopped is not None for c in translated.captures) == breaks


KINDS, READ = {}, {}


@functools.cache
def recipe(pattern, rank):
    return Recipe([pattern.count("a")] * rank)


class Recipe:
    def __init__(self, parts) -> None:
        self.parts = parts


@functools.cache
def reads_what_changes(pattern, rank):
    return Recipe([len(READ)] * rank)


@functools.cache
def reads_any_global(pattern, rank):
    return Recipe([len(globals()["READ"])] * rank)


def recipe_after_a_change(x):
    KINDS.setdefault(type(x), len(KINDS) + 1)
    return x * sum(recipe("aab", x.ndim).parts)


def a_change_that_is_read(x):
    READ.setdefault(type(x), len(READ) + 1)
    return x * sum(reads_what_changes("aab", x.ndim).parts)


def a_change_that_may_be_read(x):
    READ.setdefault(type(x), len(READ) + 1)
    return x * sum(reads_any_global("aab", x.ndim).parts)


@pytest.mark.parametrize("full_graph", [False, True])
def test_a_first_result_that_cannot_see_the_changes_before_it_is_in_the_graph(full_graph):
    recipe.cache_clear()
    KINDS.clear()
    made = sot.to_static(recipe_after_a_change, backend="eager", full_graph=full_graph)
    assert torch.equal(made(IMAGE), IMAGE * 4) and KINDS == {torch.Tensor: 1}
    assert len(made.graphs) == 1 and recipe.cache_info().currsize == 1


@pytest.mark.parametrize("fn", [a_change_that_is_read, a_change_that_may_be_read])
def test_a_first_result_that_may_see_the_changes_before_it_breaks_the_graph(fn):
    reads_what_changes.cache_clear()
    reads_any_global.cache_clear()
    READ.clear()
    made = sot.to_static(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(made(IMAGE), IMAGE * 2)
    assert READ == {torch.Tensor: 1}


def test_a_cleared_cache_is_noticed():
    def f(x):
        return x * current_settings()["scale"]
    made = sot.to_static(f, backend="eager")
    for scale in (1, 2, 3, 3):
        SETTINGS["scale"] = scale
        current_settings.cache_clear()
        for _ in range(2):
            assert torch.equal(made(IMAGE), IMAGE * scale)
        SETTINGS["scale"] = 7
        assert torch.equal(made(IMAGE), IMAGE * scale)


def test_new_objects_are_found_to_be_not_cached():
    class Shape:
        def __init__(self, size) -> None:
            self.size = size

        @functools.lru_cache  # noqa: B019
        def ones(self):
            return torch.ones(self.size)

    def f(x):
        return x + Shape(3).ones()
    made = sot.to_static(f, backend="eager")
    for _ in range(3):
        assert torch.equal(made(IMAGE), IMAGE + 1)
    assert Shape.ones.cache_info().misses == 3


class Scaling:
    def scaled(self, x, by=1, plus=0):
        return x * by + plus

    doubled = functools.partialmethod(scaled, by=2)
    tripled = functools.partialmethod(lambda x, by: x * by, by=3)


class Settings:
    def fill(self, x, scale=1, **others):
        self.x, self.scale, self.others = x, scale, others

    __init__ = functools.partialmethod(fill, scale=4)


def test_a_partial_method_of_a_class():
    def f(x):
        one = Scaling()
        made = Settings(x, plus=1)
        return (one.doubled(x), Scaling.doubled(one, x), Scaling.doubled(one, x, plus=3), Scaling.tripled(x),
                made.x * made.scale, made.others)
    check(f, X, graphs=1, breaks=0)
