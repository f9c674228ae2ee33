"""Builtins on existing objects, on results that leave the function, and where a break happens in the middle."""
from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import os
import string
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pytest
import torch
from harness import check
from torch import nn
from torch.nn import functional as F

X = torch.arange(1.0, 5.0)
WHOLE: list = []
BROKEN: list = []


def whole(*args):
    """A function of a tensor and these arguments that is captured as one graph."""
    def register(fn):
        WHOLE.append((fn, args))
        return fn
    return register


def broken(*args):
    """A function that breaks somewhere, and must still do what Python does."""
    def register(fn):
        BROKEN.append((fn, args))
        return fn
    return register


@pytest.mark.parametrize("fn, args", WHOLE, ids=lambda v: getattr(v, "__name__", ""))
def test_is_captured_whole(fn, args):
    check(fn, X, *args, graphs=1, breaks=0)


@pytest.mark.parametrize("fn, args", BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_is_right_with_breaks(fn, args):
    check(fn, X, *args, again=fn not in (in_special_methods, hashes_of_objects, randomness_and_time))


# ---- existing objects as arguments -----------------------------------------------------------------------------
class Pair(NamedTuple):
    left: Any
    right: int


class Table(dict):
    def __missing__(self, key):
        return key * 2

    def total(self):
        return sum(self.values())


class Items(list):
    pass


@dataclasses.dataclass
class Config:
    n: int = 2
    names: list = dataclasses.field(default_factory=lambda: ["a"])
    inner: Any = None


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Plain:
    shared = [1, 2]

    def __init__(self, **kw):
        self.__dict__.update(kw)

    def method(self, x):
        return x * self.k


@whole(Pair(torch.ones(4), 3))
def reads_named_tuple(x, p):
    left, right = p
    return x + p.left * p.right, p._replace(right=5), left.shape, p[1], p == p, [*p][1]


@whole(Table(a=1, b=2))
def uses_dict_subclass(x, t):
    t["c"] = 3
    return x * t["b"], t[10], t.total(), len(t), "a" in t, t.get("zz"), sorted(t), [k for k in t.items()]


@whole(Items([1, 2]))
def uses_list_subclass(x, items):
    items.append(x)
    items[0] = 9
    return items[1], len(items), items[:1], type(items[:1]), x + 1


@whole(collections.OrderedDict(a=1, b=2, c=3), collections.defaultdict(list, a=[1]), collections.Counter("aab"))
def uses_collections(x, o, d, c):
    o.move_to_end("a")
    o["d"] = 4
    del o["b"]
    d["new"].append(x)
    d["a"] += [2]
    c.update("b")
    c["z"] = 1
    return list(o.items()), len(d), c.most_common(1), x + 1


@whole(collections.OrderedDict(a=1, b=2))
def reorders_to_the_front(x, o):
    o.move_to_end("b", last=False)
    o.pop("a")
    return x + 1, list(o)


@whole(Config(), Mode.FAST, frozenset([1, 2]), {3, 1})
def uses_config(x, c, mode, frozen, members):
    c.n += 1
    c.names.append("b")
    c.inner = Config(5)
    if mode is Mode.FAST and 1 in frozen and 3 in members:
        x = x * c.n
    return x, {Mode.FAST: 1, Mode.SLOW: 2}[mode], c.inner.n, mode.value, sorted(members), dataclasses.replace(c, n=0)


part, item, attr = functools.partial(torch.add, alpha=3), operator.itemgetter(1), operator.attrgetter("shape")


@whole()
def uses_callables(x):
    return part(x, x), item([1, x]), attr(x), part.keywords, part.func is torch.add


@whole(Plain(k=2, items=[1], table={"a": [1]}))
def changes_attributes(x, p):
    p.items.append(2)
    p.table["a"].append(3)
    p.table["b"] = p.items
    p.k += 1
    p.new = (1, x)
    del p.items
    f = p.method
    return (f(x), vars(p).keys() == {"k", "table", "new"}, hasattr(p, "items"), p.shared[0], getattr(p, "k"),
            p.__dict__["k"])


@whole([[1, 2], [3]], {"x": {"y": [0]}})
def changes_nested(x, rows, tree):
    rows[0][1] = x
    rows.append([*rows[1], 4])
    tree["x"]["y"] += [5]
    tree["x"]["z"] = rows
    rows[1], rows[2] = rows[2], rows[1]
    return x + 1, [len(r) for r in rows]


@whole(collections.deque([1, 2, 3], maxlen=3))
def changes_deque(x, d):
    d.append(7)
    d.rotate(1)
    d.appendleft("l")
    return x + 1, len(d), d.maxlen, d[0]


@whole((1, (2, 3), {"k": (4,)}))
def matches(x, data):
    match data:
        case (a, (b, *c), {"k": (d,)}):
            x = x + a + b + d + c[0]
    match Config(3):
        case Config(n=k) if k > 2:
            x = x * k
    match {"op": "add", "v": 1, "w": 2}:
        case {"op": "mul"}:
            x = x * 0
        case {"op": "add", **rest}:
            x = x + rest["w"]
    match Mode.SLOW:
        case Mode.FAST | Mode.SLOW as which:
            return x, which


# ---- what leaves the function ------------------------------------------------------------------------------------
@whole()
def returns_objects(x):
    made = Plain(k=3, t=x)
    made.me = made
    d = collections.OrderedDict(a=made)
    t = Table(q=1)
    t["r"] = x * 2
    return {"d": d, "t": t, "items": Items([1, x]), "pair": Pair(x, 1), "set": {1, 2}, "frozen": frozenset([3]),
            "deque": collections.deque([9], maxlen=2), "config": Config(1, ["z"]), "counter": collections.Counter("aa"),
            "default": collections.defaultdict(list, k=[x]), "slice": slice(1, None), "range": range(3),
            "mode": Mode.FAST,
            "dtype": x.dtype, "size": x.shape, "ellipsis": ..., "type": Plain, "exception": ValueError("v", 1)}, x + 1


def consume(iterators):
    return [list(i) for i in iterators]


def test_iterators_leave_the_function():
    def fn(x):
        a = iter([1, 2, 3])
        next(a)
        return (a, zip([1, 2], "ab"), enumerate((x, 2), 1), iter({"a": 1}.items()), reversed([1, 2]), iter(range(3)),
                map(lambda v: v + 1, [1, 2]), filter(None, (v for v in [0, 1])), zip([1], (v for v in [2])),
                itertools.chain("a", [1]), itertools.islice([1, 2, 3], 1, None), itertools.starmap(pow, [(2, 3)]),
                x + 1)

    import sot
    *got, y = sot.to_static(fn, backend="eager")(X)
    *want, _ = fn(X)
    assert str(consume(got)) == str(consume(want)) and torch.equal(y, X + 1)
    assert [type(i) for i in got[:3] + got[4:]] == [type(i) for i in want[:3] + want[4:]]


def test_callables_leave_the_function():
    def fn(x):
        p = functools.partial(torch.add, x)
        q = Plain(k=2)
        return p, q.method, lambda v: v + x, operator.itemgetter(0), [].append, x + 1

    import sot
    p, method, f, item, append, _ = sot.to_static(fn, backend="eager")(X)
    assert torch.equal(p(X), X + X) and torch.equal(method(X), X * 2) and torch.equal(f(X), X + X)
    assert item([7]) == 7 and append(1) is None and append.__self__ == [1]


@whole()
def generators_are_consumed_in_parts(x):
    def gen():
        for i in range(5):
            yield x * i
    g = gen()
    a = next(g)
    b = list(itertools.islice(g, 2))
    (c, d), e = [next(g), next(g)], next(g, "end")
    return a, b, c, d, e


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


# ---- strings and odd corners ----------------------------------------------------------------------------------------
class Named:
    def __repr__(self):
        return "<named>"


@whole()
def more_text(x):
    return (str([Named()]), f"{(Named(), 1)}", repr({"k": Named()}), str(Named()), f"{Named()!r:>10}",
            string.ascii_letters[:3],
            "a,b;c".replace(";", ",").split(","), "%(a)s" % {"a": 1},
            f"{x.shape}", f"{x.dtype}", f"{list(x.shape)}", f"{3:03d}{2.5:e}", "ab"[::-1], "tEsT".title().swapcase(),
            " ".join(["%d" % i for i in range(3)]), str(ValueError("m")), repr(ValueError("m", 1)), x + 1)


@whole()
def scoping(x):
    def local_names(a, b=2):
        c = a + b
        return sorted(locals())
    global_names = "X" in globals()
    return local_names(1), global_names, x + 1


@whole()
def starred_everything(x):
    def f(a, *rest, k=1, **more):
        return a, rest, k, more
    d = {"k": 3, "z": 4}
    a, *b = range(4)
    *c, e = "abc"
    return f(*[1, 2], *(3,), **d), f(*"ab", k=0), [*range(2), *{"a": 1}], {**d, "k": 5}, (a, b, c, e), f(1, **{}), x + 1


@whole()
def comprehension_corners(x):
    return ([[i * j for j in range(2)] for i in range(2)], {(i,
            j) for i in range(2) for j in range(2) if i != j} == {(0, 1), (1, 0)},
            [y := 3, y + 1], {k: [v for v in range(k)] for k in range(3)}, list(a + b for a in "ab" for b in "cd"),
            [f(x) for f in (torch.sin, torch.cos, F.relu)], sum([i for i in range(5) if i % 2]))


@whole()
def loops_with_else(x):
    found = []
    for i in range(3):
        if i == 5:
            break
    else:
        found.append("no break")
    n = 0
    while n < 3:
        n += 1
        if n == 2:
            continue
        found.append(n)
    for i in range(10):
        if i == 2:
            break
    return found, i, x + n


class Registry(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({f"l{i}": nn.Linear(4, 4) for i in range(2)})
        self.order = ["l1", "l0"]
        self.cache = {}
        self.act = {"relu": F.relu, "gelu": F.gelu}
        self.w = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
        self.config = Config(2)

    @property
    def depth(self):
        return len(self.layers)

    def forward(self, x, act="relu", **kwargs):
        kwargs.setdefault("scale", 2)
        for name in self.order:
            x = self.act[act](self.layers[name](x))
            self.cache[name] = x.shape
        outs = {k: v(x) for k, v in self.layers.items()}
        if not self.training and getattr(self.config, "inner", None) is None:
            x = x * kwargs["scale"] / self.depth
        return x + self.w["a"], outs, self.cache, [n for n, _ in self.layers.named_children()]


def test_module_with_tables():
    torch.manual_seed(0)
    check(lambda m, x: m(x, act="gelu"), Registry().eval(), X, graphs=1, breaks=0)


def signature_of_me(a, b=2, *rest, k):
    return a


@whole(Plain(k=2))
def asks_for_signatures(x, p):
    s = inspect.signature(signature_of_me)
    return list(s.parameters), "x" in inspect.signature(p.method).parameters, s.parameters["b"].default, x + 1
