"""Sorting by comparisons that are code of the program: they are those of ``list.sort``, in its order."""
import pytest
import torch
from harness import Programs, check

X = torch.arange(3.0)
program = Programs()


class Logged:
    log: list = []

    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        self.log.append((self.n, other.n))
        return self.n < other.n


class Part:
    """Ordered by inclusion, so the result depends on which pairs are compared."""

    def __init__(self, *parts):
        self.parts = frozenset(parts)

    def __lt__(self, other):
        return self.parts < other.parts


class Refusing(Logged):
    def __lt__(self, other):
        if (self.n, other.n) == (2, 4):
            raise ValueError(self.n)
        return self.n < other.n


VALUES = (5, 3, 8, 1, 9, 2, 2, 7, 0, 4)


@program
def comparisons_with_effects(x):
    Logged.log = log = []
    items = [Logged(n) for n in VALUES]
    found = [sorted(items), sorted(items, reverse=True), sorted(VALUES, key=lambda n: Logged(-n))]
    items.sort()
    up = sorted(Logged(n) for n in range(4))
    down = sorted([Logged(n) for n in (4, 3, 2, 1, 5)])
    return x + 1, log, [[getattr(i, "n", i) for i in part] for part in (*found, items, up, down)]


@program
def a_partial_order(x):
    parts = [Part(1), Part(2), Part(1, 2), Part(), Part(3), Part(2, 3), Part(1)]
    orders = sorted(parts), sorted(parts, reverse=True)
    return x + 1, [[sorted(part.parts) for part in order] for order in orders]


@program
def tuples_with_objects(x):
    Logged.log = log = []
    items = [(n % 3, Logged(n)) for n in VALUES]
    return x + 1, [pair[1].n for pair in sorted(items)], log


@program
def a_comparison_that_raises(x):
    items = [Refusing(n) for n in (5, 3, 4, 1, 2, 0)]
    try:
        items.sort()
    except ValueError as e:
        return x + 1, [i.n for i in items], str(e)


@program
def a_key_that_raises(x):
    items = [3, 1, 0, 2]
    try:
        items.sort(key=lambda n: 1 / n)
    except ZeroDivisionError:
        return x + 1, items


@program.each
def test_sorting_is_pythons(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.slow
def test_many_objects_are_sorted_by_python():
    def f(x):
        Logged.log = log = []
        items = [Logged(7 * n % 301) for n in range(300)]
        return x + 1, [i.n for i in sorted(items)], log
    check(f, X)


@pytest.mark.parametrize("count", [2, 20, 70])
def test_each_length(count):
    def f(x):
        Logged.log = log = []
        items = [Logged(7 * n % 13) for n in range(count)]
        return x + 1, [i.n for i in sorted(items)], log
    check(f, X, graphs=1, breaks=0)
