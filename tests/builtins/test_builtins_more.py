"""Builtins on existing objects, and on results that leave the function."""
from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import string
from typing import Any, NamedTuple

import pytest
import torch
from harness import Calls, Plain, check
from torch import nn
from torch.nn import functional as F

import sot

X = torch.arange(1.0, 5.0)
whole = Calls()


@whole.each
def test_is_captured_whole(fn, args):
    check(fn, X, *args, graphs=1, breaks=0)


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

    *got, y = sot.to_static(fn, backend="eager")(X)
    *want, _ = fn(X)
    assert str(consume(got)) == str(consume(want)) and torch.equal(y, X + 1)
    assert [type(i) for i in got[:3] + got[4:]] == [type(i) for i in want[:3] + want[4:]]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter])
def test_iterators_that_begin_at_the_end_of_a_dict_leave_the_function(kind):
    def fn(x, given):
        made = kind(a=1, b=x, c=3)
        ended, begun = reversed(made), reversed(made.items())
        list(ended), next(begun)
        return [reversed(made), reversed(made.keys()), reversed(made.values()), begun, ended, reversed(given)], x + 1
    given = kind(d=1, e=2)
    (got, y), (want, _) = sot.to_static(fn, backend="eager")(X, given), fn(X, given)
    assert [type(i) for i in got] == [type(i) for i in want]
    assert str(consume(got)) == str(consume(want)) and torch.equal(y, X + 1)


def a_dict_that_grows_while_it_is_read_backwards(x):
    d = {"a": x, "b": 2}
    for key in reversed(d):
        d[key + "2"] = x + 1
    return d


def a_value_that_changes_while_it_is_read_backwards(x):
    d, seen = {"a": x, "b": 2}, []
    for key, value in reversed(d.items()):
        d["a"] = x + 1
        seen.append((key, value))
    return seen


@pytest.mark.parametrize("fn", [a_dict_that_grows_while_it_is_read_backwards,
                                a_value_that_changes_while_it_is_read_backwards])
def test_a_dict_that_is_changed_while_it_is_read_backwards(fn):
    check(fn, X)


@pytest.mark.parametrize("operation", [operator.neg, operator.pos, operator.invert, abs, lambda v: -v, lambda v: ~v])
def test_the_error_of_an_operator_that_a_type_does_not_have(operation):
    def fn(x, v):
        try:
            return operation(v)
        except TypeError as e:
            return str(e), x + 1
    check(fn, X, [1])
    check(fn, X, {"a": 1})


def test_callables_leave_the_function():
    def fn(x):
        p = functools.partial(torch.add, x)
        q = Plain(k=2)
        return p, q.method, lambda v: v + x, operator.itemgetter(0), [].append, x + 1

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


@pytest.mark.skipif(not hasattr(itertools, "batched"), reason="itertools.batched is new in 3.12")
@pytest.mark.parametrize(("args", "kwargs"), [
    (("abcde", 2), {}), (("abcde",), {}), (("abcde", 3, True), {}), (("abcd", 2), {"strict": True}),
    (("abcde", 2), {"strict": True}), (("abcde", 0), {}), ((None, 2), {})])
def test_batched(args, kwargs):
    def f(x):
        try:
            return x + 1, [*itertools.batched(*args, **kwargs)]
        except (TypeError, ValueError) as e:
            return x - 1, str(e)
    check(f, X)
