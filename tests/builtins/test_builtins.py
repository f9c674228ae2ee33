"""What builtins, containers and the standard library do is captured exactly, without a break."""
from __future__ import annotations

import collections
import collections.abc
import dataclasses
import functools
import itertools
import math
import operator
from typing import Any, NamedTuple

import torch
from harness import Programs, caught, check

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


# ---- lists, tuples, deques ---------------------------------------------------------------------------------------
@program
def list_methods(x):
    a = [3, 1, 2]
    a.append(x)
    a.insert(1, "i")
    a.extend((5, 6))
    a += [7]
    b = a.copy()
    b.remove("i")
    b.pop()
    last = b.pop(0)
    b.reverse()
    del b[0]
    n = a.index(3), a[:2].count(3), len(a)
    a[1:3] = ["p", "q", "r"]
    del a[::2]
    b.clear()
    return a, b, last, n, [1, 2] * 2, 2 * [x], [1] + [2], [0, 1, 2, 3][::-1], x + 1


@program
def list_order(x):
    a = [3, 1, 2]
    a.sort()
    b = sorted(a, reverse=True)
    c = ["bb", "a", "ccc"]
    c.sort(key=len, reverse=True)
    d = sorted([(1, x), (0, x)], key=lambda p: p[0])
    return a, b, c, d, [1, 2] < [1, 3], [1] == [1], [x] == [x], [1, 2] != (1, 2), (1, 2) <= (1, 2, 3), x * 2


@program
def list_errors(x):
    e = []
    return (caught(e.pop), caught(lambda: e[0]), caught(lambda: [1].index(2)), caught(lambda: [1].remove(2)),
            caught(lambda: [1] + (2,)), caught(lambda: (1,)[3]), caught(lambda k: [1][k], "a"), x + 1)


@program
def tuples(x):
    t = (1, x, 3)
    return t[1:], t + (4,), t * 2, t.index(1), t[:1].count(1), 1 in t, x.shape + (2,), x.shape[:1], len(x.shape), x * 2


@program
def deques(x):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    e = collections.deque("ab")
    e.extend("cd")
    e.extendleft("xy")
    left, right = e.popleft(), e.pop()
    return list(d), list(e), left, right, d[0], len(d), d.maxlen, 3 in d, list(reversed(e)), x + 1


class Stack(list):
    def push(self, v):
        self.append(v)
        return self

    def __len__(self):
        return super().__len__() + 100

    def __getitem__(self, i):
        return "item", super().__getitem__(i)


@program
def list_subclass(x):
    s = Stack([1])
    s.push(x).push(3)
    return len(s), s[0], list(s), bool(Stack()), isinstance(s, list), s == [1, x, 3], 1 in s, x + 1


class Point(NamedTuple):
    a: Any
    b: int = 2

    @property
    def both(self):
        return self.a, self.b

    def moved(self, k):
        return self._replace(b=self.b + k)


Plain = collections.namedtuple("Plain", "p q", defaults=[5])


@program
def named_tuples(x):
    p = Point(x * 2)
    q = p.moved(3)
    r = Plain(1)
    a, b = q
    return p, q.both, q._asdict(), Point._make([x, 1]), r, r._fields, r[1], r.q, a + b, p == p, isinstance(r, tuple)


# ---- dicts ------------------------------------------------------------------------------------------------------
@program
def dict_methods(x):
    d = {"a": 1, "b": x}
    d["c"] = 3
    d.update({"a": 10}, e=5)
    d.update([("f", 6)])
    d |= {"g": 7}
    got = d.get("zz"), d.get("a", 0), d.setdefault("h", 8), d.setdefault("a", 9), d.pop("c"), d.pop("zz", None)
    del d["b"]
    last = d.popitem()
    views = list(d), list(d.keys()), list(d.values()), list(d.items()), list(reversed(d))
    m = dict([(1, 2)], k=3), dict(d), dict.fromkeys("ab", 0), {**d, "z": 1}, {"a": 1} | {"b": 2}, d.copy()
    return d, got, last, views, m, "a" in d, "zz" not in d, len(d), bool({}), d == {"a": 10}, x + 1


@program
def dict_views(x):
    d, e = {"a": 1, "b": 2}, {"b": 2, "c": 3}
    return (sorted(d.keys() & e.keys()), sorted(d.keys() | e), sorted(d.keys() - e.keys()), ("a", 1) in d.items(),
            "a" in d.keys(), 2 in d.values(), len(d.items()), d.keys() == {"a", "b"}, [*d.items()], x + 1,
            isinstance(d.keys(), collections.abc.KeysView))


@program
def dict_errors(x):
    d = {"a": 1}

    def grow():
        for k in d:
            d[k + "x"] = 1
    return (caught(lambda: d["q"]), caught(lambda: d.pop("q")), caught(lambda: {}.popitem()), caught(grow),
            caught(lambda: {[]: 1}), x + 1)


@program
def dict_loops(x):
    d = {i: x * i for i in range(3)}
    total = 0
    for k, v in d.items():
        total = total + v * k
        d[k] = v + 1
    return total, d, sum(d.values()), max(d), {v: k for k, v in {"a": 1}.items()}


@program
def ordered_dicts(x):
    d = collections.OrderedDict(a=1, b=2, c=x)
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    first = d.popitem(last=False)
    e = d.copy()
    e["z"] = 0
    return first, d, list(e), e == d, d == {"a": 1, "b": 2}, list(d.keys()), type(d.copy()), x * 2


@program
def default_dicts(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(1)
    n = collections.defaultdict(int)
    for c in "abca":
        n[c] += 1
    m = collections.defaultdict(lambda: x + 1)
    return d, dict(n), m["q"], len(m), "zz" in d, d.get("zz"), d.default_factory


@program
def counters(x):
    c = collections.Counter("abracadabra")
    c.update("zz")
    c["q"] += 2
    d = collections.Counter(a=1) + collections.Counter(a=2, b=1)
    return c.most_common(2), c["nope"], d, sum(c.values()), list(d.elements()), x * c["a"]


class Output(collections.OrderedDict):
    def __post_init__(self):
        for k in ("logits", "loss"):
            v = self.__dict__.get(k)
            if v is not None:
                self[k] = v

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class ModelOut(Output):
    logits: Any = None
    loss: Any = None


@program
def model_outputs(x):
    o = ModelOut(logits=x + 1)
    o.loss = x.sum()
    o["logits"] = x * 2
    return o["logits"], o[0], o.to_tuple(), "loss" in o, len(o), o.loss, list(o)


# ---- sets -------------------------------------------------------------------------------------------------------
@program
def set_methods(x):
    a, b = {1, 2, 3}, {3, 4}
    a.add(9)
    a.discard(100)
    a.remove(1)
    a |= {7}
    c = a & b, a | b, a - b, a ^ b, {3} <= a, a.issubset(b), a.isdisjoint({50}), a.union([1], (2,)), {1} == {1}
    b.update([5], {6})
    b -= {3}
    return sorted(a), sorted(b), [sorted(s) if isinstance(s, set) else s for s in c], 3 in a, len(a), frozenset([1]), (
        set(), bool(set()), sorted({i % 3 for i in range(7)}), x + 1)


@program
def tensors_as_keys(x):
    y = x + 1
    d = {x: 1, y: 2}
    return d[x] + d[y], len({x, y, x}), x in {x}, y


# ---- iteration ----------------------------------------------------------------------------------------------------
@program
def iterators(x):
    it = iter([1, 2, 3])
    first = next(it)
    rest = list(it)
    g = (v * 2 for v in (x, x + 1))
    a = next(g)
    b = next(g)
    return (first, rest, next(it, "end"), next(g, "end"), a + b, list(iter("ab")), list(reversed([1, 2])),
            list(reversed(range(3))), caught(lambda: next(iter(()))), [*enumerate("ab", 1)])


@program
def zips_and_maps(x):
    a = list(zip([1, 2], "ab", (x, x)))
    b = dict(zip("ab", range(5)))
    c = list(map(lambda v: v + 1, [1, 2]))
    d = [*map(operator.add, [1, 2], [x, x])]
    e = list(filter(None, [0, 1, "", "a"])), list(filter(lambda v: v > 1, [1, 2, 3]))
    f = caught(lambda: list(zip([1], [1, 2], strict=True)))
    g = tuple(zip(*[(1, 2), (3, 4)]))
    h = list(zip(range(2), itertools.count()))
    return a, b, c, d, e, f, g, h, list(zip()), [*zip(x, x)], [i for i, v in enumerate(x.unbind())]


def numbers(n):
    for i in range(n):
        yield i


@program
def over_generators(x):
    return (list(numbers(3)), tuple(numbers(2)), set(numbers(2)), sum(numbers(4)), max(numbers(4)), min(numbers(4)),
            any(v > 1 for v in numbers(3)), all(v > 1 for v in numbers(3)), sorted(numbers(3), reverse=True),
            dict((v, x) for v in numbers(2)), "".join(str(v) for v in numbers(3)), list(enumerate(numbers(2))),
            list(zip(numbers(2), numbers(3))), list(map(str, numbers(2))), [*reversed(list(numbers(2)))],
            collections.deque(numbers(3), maxlen=2), 2 in numbers(5), frozenset(numbers(2)), x + 1)


@program
def reductions(x):
    return (sum([x, x, 1]), sum([0.1] * 10), sum([[1], [2]], []), max(3, 1, 2), min("b", "a"), max([], default=7),
            max([1, -5], key=abs), min({"a": 2, "b": 1}.items(), key=lambda p: p[1]), any([0, 1]), all([]), any([]),
            caught(lambda: max([])), sum(range(5)), sum(v for v in (x, x)), divmod(7, 2), pow(2, 3, 5), round(2.567, 2),
            abs(-3), math.prod([1, 2, 3]), abs(-x))


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Indexed:
    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return i * 10


class Sized:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __contains__(self, v):
        return v in self.items

    def __iter__(self):
        return iter(self.items)

    def __reversed__(self):
        return iter(["r"])


@program
def user_iterables(x):
    s = Sized([1, 2, x])
    return (list(Countdown(3)), [v for v in Countdown(2)], list(Indexed()), 20 in Indexed(), list(s), len(s), s[0],
            2 in s,
            bool(Sized([])), list(reversed(s)), sum(Countdown(4)), next(Countdown(2)), next(Countdown(0), "d"),
            list(zip(Countdown(2), Indexed())), list(enumerate(Countdown(1))), [*Indexed()], list(map(str,
            Countdown(2))),
            sorted(Countdown(3)), a_tuple(*Countdown(2)), s[1:], x + 1)


def a_tuple(*args):
    return args


@program
def generator_methods(x):
    def echo():
        got = "start"
        while True:
            try:
                got = yield got
            except ValueError as e:
                got = "caught " + str(e)

    g = echo()
    a = next(g), g.send(1), g.throw(ValueError("v")), g.send(x)
    g.close()

    def cleaned(log):
        try:
            yield 1
        finally:
            log.append("closed")

    log = []
    h = cleaned(log)
    next(h)
    h.close()

    def delegate():
        r = yield from returns()
        yield r

    def returns():
        yield 1
        return "returned"

    return a, next(g, "ended"), log, list(delegate()), x + 1


@program
def all_of_itertools(x):
    i = itertools
    return (list(i.chain([1], "a", (x,))), list(i.chain.from_iterable([[1], [2]])), list(i.product("ab", repeat=2)),
            list(i.accumulate([1, 2, 3])), list(i.accumulate([1, 2, 3], operator.mul, initial=10)),
            list(i.islice(i.count(5, 2), 3)), list(i.islice([1, 2, 3, 4], 1, None, 2)), list(i.repeat(x, 2)),
            [v for v, _ in zip(i.cycle("ab"), range(5))], list(i.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
            list(i.dropwhile(lambda v: v < 3, [1, 2, 3, 1])), list(i.zip_longest([1, 2], "a", fillvalue=0)),
            list(i.starmap(pow, [(2, 3), (3, 2)])), [(k, list(g)) for k, g in i.groupby("aabca")],
            [(k, len(list(g))) for k, g in i.groupby([1, 3, 2, 4], key=lambda v: v % 2)],
            list(i.combinations([1, 2, 3], 2)), list(i.permutations([1, 2, 3], 2)), list(i.pairwise([1, 2, 3])),
            [list(t) for t in i.tee([1, 2])], list(i.compress("abc", [1, 0, 1])), list(i.filterfalse(bool, [0, 1])),
            list(i.combinations_with_replacement("ab", 2)), list(i.accumulate([x, x])))


# ---- functions of functions -------------------------------------------------------------------------------------
@functools.lru_cache
def cached_square(n):
    return n * n


@functools.cache
def cached_pad(n):
    return (-n) % 3


@program
def functools_functions(x):
    p = functools.partial(pow, 2)
    q = functools.partial(p, 3)
    r = functools.partial(torch.add, alpha=2)
    by = functools.cmp_to_key(lambda a, b: b - a)
    return (p(3), q(), r(x, x), functools.reduce(operator.add, [1, 2]), functools.reduce(lambda a, b: a + b, [x], x),
            cached_square(3), cached_pad(4), sorted([1, 3, 2], key=by), q.args, q.keywords, p.func is pow,
            caught(lambda: functools.reduce(operator.add, [])))


@program
def operator_functions(x):
    o = operator
    return (o.itemgetter(1)([1, 2]), o.itemgetter("a", "b")({"a": 1, "b": 2}), o.attrgetter("shape")(x),
            o.attrgetter("shape", "device.type")(x), o.methodcaller("sum", dim=0)(x), o.methodcaller("upper")("a"),
            o.add(x, 1), o.getitem([1], 0), o.contains([1], 1), o.not_(0), o.truth(1), o.is_(x, x), o.mul(2, 3),
            o.neg(x), o.eq(1, 1), o.index(3), o.concat([1], [2]), o.pow(2, 3), o.xor(1, 3), o.matmul(x, x))


@program
def a_partial_is_returned(x):
    return functools.partial(math.pow, 2, **{})(3), x + 1

