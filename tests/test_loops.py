"""Loops stay loops: beyond the budget for unrolling the body is captured once, and run in constant stack depth."""
from __future__ import annotations

import itertools
import sys

import pytest
import torch
from harness import Counter, check

import sot

X = torch.arange(1.0, 5.0)
OVER = {
    "range": lambda n: range(n),
    "list": lambda n: [*range(n)],
    "tensors": lambda n: [torch.tensor(float(i)) for i in range(n)],
    "tensor": lambda n: torch.arange(float(n)),
    "iterator": lambda n: iter([*range(n)]),
    "generator": lambda n: (i for i in range(n)),
    "enumerate": lambda n: (i for i, _ in enumerate([None] * n)),
    "zip": lambda n: map(sum, zip(range(n), range(n))),
    "chain": lambda n: itertools.chain(range(n // 2), range(n // 2)),
}


def loop(x, values):
    for v in values:
        x = x * 0.5 + v
    return x


def count_up(x, n):
    i = 0
    while i < n:
        x = x * 0.5 + i
        i += 1
    return x


def run(f, *cases):
    """The graphs that the first call takes, and all of them."""
    backend = Counter()
    translated = sot.to_static(f, backend=backend)
    taken = []
    for case in cases:
        assert torch.equal(translated(*case), f(*case))
        taken.append(len(backend.graphs))
    return taken, backend


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    monkeypatch.setenv("SOT_UNROLL", "8")


@pytest.mark.parametrize("over", OVER)
def test_a_loop_beyond_the_budget(over):
    make, backend = OVER[over], Counter()
    translated = sot.to_static(loop, backend=backend)
    for n in (100, 100, 60):
        assert torch.equal(translated(X, make(n)), loop(X, make(n)))
    assert len(backend.graphs) <= 8, [len(g.graph.nodes) for g in backend.graphs]


def test_a_while_loop_beyond_the_budget():
    taken, _ = run(count_up, (X, 100), (X, 100))
    assert taken[0] == taken[1] <= 8


def test_a_body_that_breaks():
    def f(x, n):
        for _ in range(n):
            x = x * 0.5 + float(x[0])
        return x
    taken, _ = run(f, (X, 100), (X, 100))
    assert taken[0] == taken[1] <= 5


def test_the_stack_and_the_captures_do_not_grow_with_the_rounds():
    depths = []

    def note():
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth)
    seen = sot.not_to_static(note)

    def f(x, n):
        for _ in range(n):
            x = x * 0.5
            seen()
        return x
    translated = sot.to_static(f, backend=Counter())
    translated(X, 10)
    translated(X, 20)
    captures = len(translated.captures)
    depths.clear()
    assert torch.equal(translated(X, 500), f(X, 500))
    assert len(set(depths[5:500])) == 1     # after which it is called plainly
    assert len(translated.captures) <= captures + 2


def test_the_budget_of_instructions(monkeypatch):
    monkeypatch.setenv("SOT_UNROLL", "100000,200")
    translated = check(loop, X, [*range(60)])
    stops = [str(c.stopped) for c in translated.captures if c.stopped]
    assert any("after more than 200 instructions" in stop for stop in stops), stops


@pytest.mark.parametrize("value", ["many", "0", "8,", "8,-1", "1,2,3"])
def test_a_setting_that_means_nothing(monkeypatch, value):
    monkeypatch.setenv("SOT_UNROLL", value)
    with pytest.raises(ValueError, match="SOT_UNROLL="):
        sot.to_static(loop)
