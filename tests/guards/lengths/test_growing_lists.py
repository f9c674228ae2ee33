"""Lists that the program appends to from call to call, or between breaks: they cost no capture for each length."""
from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable

import pytest
import torch
from harness import Counter, Programs, outcome, same

import sot

captured_twice = Programs()


def same_outcome(fn: Callable, its: tuple, translated: Callable, ours: tuple) -> None:
    expected, got = outcome(fn, its, {}), outcome(translated, ours, {})
    assert (difference := same(vars(expected), vars(got))) is None, difference


def calls(fn: Callable, holder: object, count: int = 8) -> int:
    """Call it again and again with one holder, plainly and translated; how many graphs that took."""
    counter = Counter()
    translated = sot.to_static(fn, backend=counter)
    plain, ours = copy.deepcopy(holder), copy.deepcopy(holder)
    for i in range(count):
        x = torch.arange(3.0) + i
        same_outcome(fn, (plain, x), translated, (ours, x))
    return len(counter.graphs)


@captured_twice
def length_is_read(items, x):
    items.append(1)
    return x * len(items)


@captured_twice
def length_is_compared(items, x):
    items += [x.shape[0]]
    return x + 1 if len(items) < 100 else x - 1


@captured_twice
def last_is_read(items, x):
    y = x * 2
    if items:
        y = y + items[-1]
    items.append(x)
    return y


@captured_twice
def first_and_last(items, x):
    items.extend([x, x + 1])
    return items[-1] - items[-2] + items[0], len(items) - 1, bool(items)


@captured_twice
def a_list_of_lists(items, x):
    items.append([x])
    items[-1].append(2)
    return x.sum() + items[-1][1], items[-1][0] is x


@pytest.mark.parametrize("start", [[], [torch.ones(3)]], ids=["empty", "one"])
@captured_twice.each
def test_a_growing_list_costs_two_captures(fn, start):
    assert calls(fn, start) <= 3    # the first of an empty one may be special


def past_the_end(items, x):
    try:
        return items[4] + x
    except IndexError as e:
        return str(e)
    finally:
        items.append(x)


def elements_of_it(items, x):
    items.append(x)
    return sum(items[1:], x), items.count(3)


def cleared(items, x):
    items.append(x)
    n = len(items)
    if n > 3:
        items.clear()
    return x * n, len(items)


def replaced(items, x):
    items.append(x)
    items[-1] = x + 1
    items.insert(0, x)
    return len(items), items[-1]


def popped(items, x):
    items.append(x)
    items.append(x + 1)
    return items.pop() + len(items), items.pop(0)


def an_alias(items, x):
    also = items
    also.append(x)
    return len(items), items[-1] is x, x + 1


@pytest.mark.parametrize("fn", [past_the_end, elements_of_it, cleared, replaced, popped, an_alias])
def test_what_is_done_with_a_growing_list_is_right(fn):
    calls(fn, [])


def two_lists(lists, x):
    a, b = lists
    a.append(x)
    b.append(1)
    return len(a) * 10 + len(b), a is b, x + 1


@pytest.mark.parametrize("shared", [False, True])
def test_two_growing_lists_may_be_one(shared):
    first = []
    calls(two_lists, (first, first if shared else []))


class Smoothed:
    def __init__(self, maxlen):
        self.window, self.total, self.count = deque(maxlen=maxlen), 0.0, 0

    def update(self, value):
        self.window.append(value)
        self.total += value
        self.count += 1


def metered(meter, x):
    y = x * 2
    meter.update(y.sum().item())
    return y + 1, list(meter.window), meter.window.maxlen


def windowed(meter, x):
    meter.window.append(float(x.shape[0]))
    return x + len(meter.window), meter.window[-1]


@pytest.mark.parametrize("maxlen", [None, 3, 0])
@pytest.mark.parametrize("fn", [metered, windowed])
def test_a_deque_of_what_was_last(fn, maxlen):
    if fn is windowed and maxlen == 0:
        return
    calls(fn, Smoothed(maxlen))


def only_added_to(meter, x):
    meter.update(1.0)
    return x + 1


@pytest.mark.parametrize("maxlen", [None, 3, 0])
def test_a_deque_that_is_only_added_to_is_not_guarded(maxlen):
    assert calls(only_added_to, Smoothed(maxlen)) <= 2      # the count varies from the second call on


def test_a_deque_of_another_size_is_seen():
    def f(window, x):
        window.append(x)
        return x + len(window)

    translated = sot.to_static(f)
    for maxlen in (2, 3, None, 1):
        for length in (0, 2, 3):
            window = deque([torch.zeros(1)] * length, maxlen)
            same_outcome(f, (copy.deepcopy(window), torch.ones(1)), translated, (window, torch.ones(1)))


def until_the_end(cell, h, limit):
    out = [0]
    while len(out) < limit:
        h = cell(torch.full((1, 4), float(out[-1])), h)
        out.append(int(h.argmax().item()))
        if out[-1] == 9:
            break
    return out, h


def test_a_sequence_is_decoded_in_three_graphs():
    torch.manual_seed(0)
    cell, h, counter = torch.nn.GRUCell(4, 8), torch.zeros(1, 8), Counter()
    translated = sot.to_static(until_the_end, backend=counter)
    for _ in range(2):
        assert same(until_the_end(cell, h, 12), translated(cell, h, 12)) is None
    assert len(counter.graphs) <= 3
