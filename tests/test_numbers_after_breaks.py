"""Floats that a statement computes before it breaks (a loss, a time) differ from call to call, and nothing is captured
again for that."""
import time

import torch
from harness import Counter, same

import sot


def graphs_of_calls(fn, *calls):
    """How many graphs there are after each call; the results are those of plain Python."""
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    counts = []
    for args in calls:
        want, got = fn(*args), translated(*args)
        assert not same(got, want)
        counts.append(len(backend.graphs))
    return counts


def inputs(n):
    return [(torch.arange(4.0) + i,) for i in range(n)]


def test_a_loss_as_a_number():
    def fn(x):
        loss = (x * 2).sum().item()
        return x + loss, loss
    assert graphs_of_calls(fn, *inputs(4)) == [2, 2, 2, 2]


def test_a_number_that_is_kept_over_the_next_break():
    def fn(x):
        loss = (x * 2).sum().item()
        y = x + loss
        mean = y.mean().item()
        return y * mean, loss + mean, loss
    assert graphs_of_calls(fn, *inputs(4)) == [3, 3, 3, 3]


def test_a_time():
    def fn(x):
        start = time.perf_counter()
        y = x * 2
        took = time.perf_counter() - start
        return y + 1, took >= 0
    assert graphs_of_calls(fn, *inputs(4)) == [2, 2, 2, 2]


def test_a_sum_over_a_loop():
    def fn(x):
        total = 0.0
        for i in range(5):
            total += (x * i).sum().item()
        return x + total, total / 5
    counts = graphs_of_calls(fn, *inputs(4))
    assert counts[1:] == counts[:1] * 3


def test_a_branch_on_it_is_guarded_as_a_comparison():
    def fn(x):
        loss = x.sum().item()
        if loss > 10:
            return x + loss
        return x - loss
    assert graphs_of_calls(fn, *inputs(6))[-1] == 3     # the sum, and one a way


def test_what_needs_a_constant_gets_one():
    def fn(x):
        p = min(abs(x.sum().item()), 0.5)
        return torch.nn.functional.dropout(x, p, training=False) * p, {p: 1}[p], f"{p:.1f}"
    assert graphs_of_calls(fn, *inputs(3))[-1] <= 2
