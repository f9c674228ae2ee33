"""A list or a tensor that has another number of elements at each call: its loop stays a loop, the rest is captured."""
from collections import deque

import pytest
import torch
from harness import Counter, same

import sot

ONES = torch.ones(2, 3)


def captures_of_calls(fn, calls):
    """How many captures there are after each call, which does what plain Python does."""
    translated = sot.to_static(fn, backend=Counter())
    counts = []
    for make in calls:
        mine, theirs = make(), make()
        assert same(translated(*mine), fn(*theirs)) is None
        assert same(mine, theirs) is None
        counts.append(len(sot.translation_of(translated).captures))
    return counts


def rows(x):
    h = torch.zeros(3)
    for i, row in enumerate(x * 2):
        h = (h + row + i).tanh()
    return h


def rows_without_numbers(x):
    h = torch.zeros(3)
    for row in x:
        h = (h + row).tanh()
    return h


def elements(xs):
    total = 0
    for x in xs:
        total = total + x.sin()
    return total * 2


def pairs(xs):
    total = 0
    for i, (a, b) in enumerate(zip(xs, [1] * len(xs))):
        total = total + a * b * i
    return total, len(xs)


def stacked(xs):
    y = torch.stack(xs).sum(0)
    return y * 2, len(xs)


def collected(xs):
    found = []
    for x in xs:
        found.append(x * 2)
    return torch.stack(found).mean(), len(found)


def comprehension(xs):
    found = [x * 2 for x in xs]
    return sum(found) + 1, [x.sum() for x in reversed(xs)]


def changed(xs):
    xs.append(xs[0] * 2)
    xs[0] = xs[-1] + 1
    xs.reverse()
    return xs[0] + len(xs), xs[1:3]


@pytest.mark.parametrize("fn, kind", [
    *((fn, list) for fn in (elements, pairs, stacked, collected, comprehension, changed)),
    *((fn, deque) for fn in (elements, pairs, collected, comprehension))])
def test_lists(fn, kind):
    counts = captures_of_calls(fn, [lambda n=n: (kind([ONES * i for i in range(n)]),) for n in range(1, 16)])
    assert counts[8:] == [counts[8]] * 7, counts


@pytest.mark.parametrize("fn", [rows_without_numbers, rows])
def test_rows_of_a_tensor(fn):
    counts = captures_of_calls(fn, [lambda n=n: (torch.ones(n, 3),) for n in range(2, 16)])
    assert counts[8:] == [counts[8]] * 6, counts


def test_two_lengths_are_unrolled():
    assert captures_of_calls(elements, [lambda n=n: ([ONES] * n,) for n in (3, 5, 3, 5, 3)]) == [1, 2, 2, 2, 2]


def test_the_whole_graph_has_no_breaks():
    translated = sot.to_static(elements, backend=Counter(), full_graph=True)
    for n in range(1, 6):
        assert same(translated([ONES] * n), elements([ONES] * n)) is None
    assert all(c.stopped is None for c in translated.captures)
