"""itertools, collections, heapq and bisect, with tensors inside."""

from __future__ import annotations

import array
import bisect
import collections
import heapq
import io
import itertools
import operator
import struct
from typing import NamedTuple

import pytest
import torch
from harness import Programs, caught, check

import sot

X = torch.arange(1.0, 4.0)


def itertools_(x):
    xs = [x, x + 1, x + 2]
    return (
        [sum(c) for c in itertools.combinations(xs, 2)],
        list(itertools.accumulate(xs)),
        [a * b for a, b in itertools.product(xs, repeat=2)][3],
        list(itertools.chain(xs, [x]))[-1],
        [k for k, g in itertools.groupby("aabbc")],
        list(itertools.pairwise([1, 2, 3])),
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
        list(itertools.islice(itertools.count(5, 2), 3)),
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.starmap(pow, [(2, 3), (3, 2)])),
        list(itertools.takewhile(lambda i: i < 3, range(9))),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.repeat(1, 3)),
        list(itertools.filterfalse(None, [0, 1])),
    )


def tee_(x):
    a, b = itertools.tee([x, x * 2])
    return sum(a) + sum(b)


def cycle_(x):
    c = itertools.cycle([1, 2, 3])
    return x * sum(next(c) for _ in range(7))


def counter_(x):
    c = collections.Counter("hello")
    c.update("ll")
    c2 = c + collections.Counter(l=1)
    return (
        x * c["l"],
        c.most_common(1),
        c2["l"],
        c - collections.Counter(h=1),
        sum(c.values()),
        c.total(),
        sorted(c.elements()),
    )


def defaultdict_(x):
    d = collections.defaultdict(list)
    for i, k in enumerate("abab"):
        d[k].append(x * i)
    return {k: sum(v) for k, v in d.items()}, len(d), d.default_factory is list


def ordereddict(x):
    d = collections.OrderedDict(a=x, b=x + 1)
    d.move_to_end("a")
    k, v = d.popitem(last=False)
    return k, v, list(d), d == collections.OrderedDict(a=x) if 0 else 1


def deque_(x):
    d = collections.deque([x], maxlen=2)
    d.append(x + 1)
    d.appendleft(x + 2)
    d.rotate(1)
    d.extend([x * 5])
    return list(d), d.maxlen, len(d)


def chainmap(x):
    c = collections.ChainMap({"a": 1}, {"a": 2, "b": x})
    c["c"] = 3
    return c["a"], c["b"] * 2, dict(c), c.parents["a"], c.new_child({"z": 1})["z"]


NT = collections.namedtuple("NT", "a b", defaults=[5])


def namedtuple(x):
    n = NT(x)
    m = n._replace(b=x * 2)
    a, b = m
    return m, n.b, NT._fields, m._asdict(), a + b, NT._make([1, 2])


class NT2(NamedTuple):
    a: torch.Tensor
    b: int = 3

    def s(self):
        return self.a * self.b


def namedtuple_class(x):
    n = NT2(x)
    return n.s(), n[1], n


def namedtuple_local(x):
    P = collections.namedtuple("P", ["u", "v"])
    p = P(x, 2)
    return p.u * p.v, p._fields


class UD(collections.UserDict):
    def __setitem__(s, k, v):
        super().__setitem__(k.upper(), v)


def userdict(x):
    u = UD(a=x)
    u["b"] = 2
    return u["A"] * u["B"], len(u), "A" in u


class UL(collections.UserList):
    pass


def userlist(x):
    u = UL([1, 2])
    u.append(3)
    return x * sum(u), u[::-1].data, len(u + [1])


def heapq_(x):
    h = [5, 1, 4]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return (
        x * heapq.heappop(h),
        h,
        heapq.nlargest(2, h),
        heapq.nsmallest(1, h, key=lambda v: -v),
        list(heapq.merge([1, 3], [2])),
        heapq.heapreplace(h, 9),
        heapq.heappushpop(h, 1),
    )


def bisect_(x):
    l = [1, 3, 5]
    bisect.insort(l, 4)
    return x * bisect.bisect(l, 3), bisect.bisect_left(l, 3), l, bisect.bisect_right(l, 9, key=lambda v: v)


class C:
    def __init__(s, v):
        s.v = v

    def __lt__(s, o):
        return s.v < o.v


def bis_obj(x):
    l = [C(1), C(4)]
    bisect.insort(l, C(2))
    return x + 1, [c.v for c in l]


@pytest.mark.parametrize(
    "fn",
    [
        itertools_,
        tee_,
        cycle_,
        counter_,
        defaultdict_,
        ordereddict,
        deque_,
        chainmap,
        namedtuple,
        namedtuple_class,
        userdict,
        userlist,
        heapq_,
        bisect_,
        bis_obj,
    ],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [namedtuple_local], ids=lambda fn: fn.__name__)
def test_with_breaks(fn):
    check(fn, X, again=False)


def pops_in_the_order_of_cpython(x):
    words, numbers = set("a quick brown fox".split()), {i * 37 % 101 for i in range(20)}
    found = [words.pop(), numbers.pop()]
    numbers.add(500)
    while len(numbers) > 4:
        found.append(numbers.pop())
    numbers.add(3)
    return x * found[1], found, [*numbers], words, numbers.pop()


def pops_before_and_after_a_break(x):
    numbers = set(range(40, 0, -3)) | {1000, 2000}
    found = [numbers.pop(), numbers.pop()]
    sot.graph_break()
    numbers.add(7)
    while numbers:
        found.append(numbers.pop())
    try:
        numbers.pop()
    except KeyError as e:
        return x + 1, found, str(e)


def hints_of_lengths(x):
    it = iter([1, 2, 3])
    next(it)
    return (x * operator.length_hint(it), operator.length_hint(zip([1])), operator.length_hint((i for i in "ab"), 8),
            operator.length_hint(map(abs, [1]), 2), operator.length_hint(reversed([1, 2])),
            hash(x.dtype) == hash(torch.float))


@pytest.mark.parametrize("fn, graphs, breaks", [
    (pops_in_the_order_of_cpython, 1, 0), (pops_before_and_after_a_break, None, None), (hints_of_lengths, 1, 0)])
def test_what_depends_on_the_insides_of_containers(fn, graphs, breaks):
    check(fn, X, graphs=graphs, breaks=breaks)


def test_a_set_that_existed_before_is_popped_by_python():
    def fn(x, numbers):
        return x + numbers.pop(), numbers
    check(fn, X, set(range(20)), breaks=1)


# ---- buffers and streams in memory
buffers = Programs()


@buffers
def a_bytearray(x):
    made = bytearray(b"abc")
    same = made
    same += b"d"
    held = {"key": made}
    held["key"].append(5)
    made[0] = 1
    made[1:2] = b"zz"
    del made[2]
    for value in made:
        if value == 99:
            break
    return (x * made[0] + len(same), made, same is made, held, value, bytes(made), made.find(b"d"), 5 in made,
            b"q" + made, made + b"q", b"a" < made, sum(made), [*reversed(made)], made.decode("latin1").upper(),
            caught(lambda: made[50]), caught(lambda: made.append(300)), bool(bytearray()))


@buffers
def an_array(x):
    made = array.array("f", [1, 2.5])
    made.extend([3])
    made[0] = 0.1
    return (x * made[0], made, made[1:], made.typecode, made.tolist(), 2.5 in made, len(made), sum(made),
            caught(lambda: made.append("x")), caught(lambda: array.array("Q", [-1])))


@buffers
def a_stream_of_text(x):
    log = io.StringIO()
    log.write(f"shape {tuple(x.shape)}")
    print("and", 3, sep="-", end="!", file=log)
    lines = io.StringIO("1\n2\n3\n4")
    for line in lines:
        x = x * int(line)
        if line.startswith("2"):
            break
    with lines as opened:
        rest = [int(line) for line in opened]
    return x, log.getvalue(), rest, lines.closed, iter(log) is log, caught(lines.read), caught(lambda: log.write(3))


@buffers
def a_stream_of_bytes(x):
    made = io.BytesIO(struct.pack("<if", 3, 1.5))
    number, factor = struct.unpack("<if", made.read())
    made.seek(0)
    made.write(b"zz")
    return x * number + factor, made.tell(), made.getvalue(), caught(lambda: made.seek(-5))


@buffers.each
def test_buffers_are_known(fn):
    check(fn, X, graphs=1, breaks=0)


def test_a_stream_is_new_at_each_call_and_goes_on_after_a_break():
    def f(x):
        log = io.StringIO()
        log.write("a")
        y = x * 2
        sot.graph_break()
        log.write("b")
        return y, log
    translated = sot.to_static(f, backend="eager")
    first, second = translated(X)[1], translated(X)[1]
    assert first is not second and first.getvalue() == second.getvalue() == "ab" and first.tell() == 2


def test_a_stream_with_what_only_the_graph_knows():
    def f(x):
        log = io.StringIO()
        print(x * 2, file=log)
        log.write(f"{x.sum().item():.2f}")
        return x + 1, log.getvalue()
    check(f, X)


@pytest.mark.parametrize("statement", ["d[0:1]", "d[0:1] = [5]", "del d[0:1]", "d[None] = 1", "del d['a']", "d[7] = 1",
                                       "del d[7]", "d[1.0]"])
def test_what_a_deque_refuses_changes_nothing(statement):
    namespace = {"deque": collections.deque}
    exec(f"def f(x):\n    d = deque([1, 2, 3])\n    try:\n        {statement}\n"
         "    except (TypeError, IndexError) as e:\n        return x + 1, d, repr(e)\n    return x, d, 'taken'",
         namespace)
    assert check(namespace["f"], torch.ones(2), graphs=1, breaks=0)(torch.ones(2))[2] != "taken"
