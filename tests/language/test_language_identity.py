"""Identity, aliases and cycles, as the language reference has them."""
from __future__ import annotations

import torch
from harness import Programs, check
from test_language_attributes import Box, Hooks, Temperature
from test_language_made_classes import Colour, Frozen, Pair, Point
from test_language_objects import Table, Vector

import sot

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


# ---- identity -------------------------------------------------------------------------------------------------------
def test_arguments_are_returned_themselves():
    def f(x, items, table, box, none, text):
        y = x + 1
        return x, items, table, box, none, text, (items, [table]), y
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        given = torch.ones(2), [1], {"a": [2]}, Box(), None, "text"
        *results, inner, _ = translated(*given)
        assert all(a is b for a, b in zip(results, given)) and inner[0] is given[1] and inner[1][0] is given[2]


def test_arguments_that_are_one_object():
    def f(x, a, b):
        a.append(x + 1)
        return a is b, len(b), a == b, x
    translated = sot.to_static(f, backend="eager")
    one, two = [1], [1]
    assert translated(X, one, one)[:3] == (True, 2, True) and len(one) == 2
    assert translated(X, one[:1], two)[:2] == (False, 1) and len(two) == 1
    assert translated(X, two, two)[:3] == (True, 2, True) and len(two) == 2


@program
def identity(x):
    a, b, n = [], [], None
    c = a
    t = (a, b)
    box = Box()
    box.items = a
    y = x
    return (a is c, a is b, a is not b, t[0] is a, box.items is c, n is None, x is y, x is not (x + 0),
            True is not False, {"k": a}["k"] is a, Box is type(box), identity is identity, (lambda v: v)(a) is a,
            ... is Ellipsis,
            box.__class__ is Box, [v for v in (a, b)][0] is a, NotImplemented is not None, x + 1)


@with_breaks
def identity_across_a_break(x):
    a, box = [x], Box()
    box.a, table, both = a, {"a": a}, (a, a)
    box.me, y = box, x * 2

    def f():
        return a
    method, it = box.a.append, iter(a)
    n = float(y.sum())
    method(n)
    return (a is box.a, table["a"] is a, both[0] is both[1] is a, f() is a, box.me is box, a[0] is x, len(table["a"]),
            [*it] == a, y is not x, y)


@program
def aliases(x):
    a = [1]
    b, table, t = a, {"a": a}, (a,)

    def add(v):
        a.append(v)

    def default(v, into=a):
        into.append(v)
    add(2)
    b.append(3)
    table["a"].append(4)
    t[0].append(5)
    default(6)
    box = Box()
    box.a = a
    box.a += [7]
    a[0] = x
    nested = [[0] * 2] * 2
    nested[0][0] = 1
    copied = a[:]
    copied.append("copy")
    return a, b is table["a"], table, len(box.a), nested, copied, x + 1


def test_aliases_of_arguments():
    def f(x, box, items, table):
        box.items.append(1)
        items.append(2)
        table["items"].append(x * 2)
        box.child.parent = box
        table["new"] = table
        return box.items is items is table["items"], box.child.parent is box
    items = [0]

    def make():
        box, items = Box(), [0]
        box.items, box.child = items, Box()
        return box, items, {"items": items}
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        box, items, table = make()
        assert translated(X, box, items, table) == (True, True)
        assert items[:3] == [0, 1, 2] and torch.equal(items[3], X * 2) and box.items is items
        assert box.child.parent is box and table["new"] is table


@program
def dict_order(x):
    d = {"a": 1, "b": 2, "c": 3}
    del d["a"]
    d["a"] = 4
    d["b"] = 5
    e = dict(d)
    e.pop("c")
    e["c"] = 6
    e.update(b=7, d=8)
    f = {**e, "a": 9}
    f.setdefault("z", f.pop("a"))
    last = f.popitem()
    return list(d), list(e.items()), list(f), last, list(reversed(d)), d | {"q": 1}, x + 1


def test_the_order_of_an_argument_is_changed():
    def f(x, d, box):
        del d["a"]
        d["a"] = x + 1
        d["b"] += 1
        d["z"] = 0
        del d["z"]
        del box.p
        box.p = 5
        return list(d), list(vars(box))
    box = Box()
    box.p, box.q = 1, 2
    check(f, X, {"a": 1, "b": 2, "c": 3}, box, graphs=1, breaks=0)


def test_deep_mutation():
    def f(x, data):
        data["a"][0]["b"].append([x])
        data["a"][0]["b"][-1].append(2)
        data["a"][1], data["a"][0] = data["a"]
        data["c"].box.items[1]["k"] = data["a"]
        return data["c"].box.items
    box, outer = Box(), Box()
    box.items, outer.box = [1, {}], box
    check(f, X, {"a": [{"b": []}, 5], "c": outer})


def test_cycles_are_returned():
    class Node:
        def __init__(self, parent=None):
            self.parent, self.children = parent, []
            if parent is not None:
                parent.children.append(self)

    def f(x):
        a = [1]
        a.append(a)
        d = {}
        d["self"] = (d, [d])
        root = Node()
        leaf = Node(Node(root))
        leaf.value = x * 2

        def g():
            return g, a
        root.g = g
        return a, d, root, leaf
    translated = sot.to_static(f, backend="eager")
    for _ in range(2):
        a, d, root, leaf = translated(X)
        assert a[1] is a and len(a) == 2 and d["self"][0] is d and d["self"][1][0] is d
        assert leaf.parent.parent is root and root.children[0].children[0] is leaf and torch.equal(leaf.value, X * 2)
        assert root.g()[0] is root.g and root.g()[1] is a


@with_breaks
def cycles_across_a_break(x):
    a = [1]
    a.append(a)
    box = Box()
    box.me = [box]
    n = float(x.sum())
    a.append(n)
    box.me.append(n)
    return a[1] is a, a[1][2], box.me[0] is box, len(box.me), x + 1


@program
def instances_are_returned(x):
    t, v, h = Temperature(5), Vector(1, 2), Hooks()
    t.extra = [t]
    h.a = v
    return t, Table(a=x), Pair(1), Colour.RED, Frozen(1), [Point(1)], {"k": v}, h, x + 1


class Model(torch.nn.Module):
    scale = 2

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.calls, self.log = 0, []

    @property
    def factor(self):
        return self.scale + self.calls

    def forward(self, x):
        self.calls += 1
        self.log.append(x.shape)
        self.last = self.lin(x) * self.factor
        return self.last


def test_attributes_of_modules_are_written():
    torch.manual_seed(0)
    model = Model()
    translated = sot.to_static(model, backend="eager")
    for n in range(1, 4):
        y = translated(X)
        assert model.calls == n and len(model.log) == n and model.last is y
        assert torch.allclose(y, model.lin(X) * (2 + n))
