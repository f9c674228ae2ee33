"""Loops stay loops: beyond the budget for unrolling the body is captured once, and run in constant stack depth."""
from __future__ import annotations

import itertools
import sys

import pytest
import torch
from harness import Counter, check

import sot
from sot.interpreter import unroll_limit

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


def operations(graph):
    return [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]


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


@pytest.mark.parametrize("over", ["range", "list", "tensors", "tensor"])
def test_one_iteration_is_in_the_graph_if_the_loop_is_known_to_exceed_the_limit(over):
    _, backend = run(loop, (X, OVER[over](40)))
    assert [name for name in operations(backend.graphs[0]) if name != "getitem"] == ["mul", "add"]


def test_a_loop_that_a_break_may_end_is_unrolled_up_to_the_limit():
    def settles(x, n):
        for i in range(n):
            x = x * 0.5
            if i == 6:
                break
        return x

    taken, backend = run(settles, (X, 40))
    assert taken == [1] and operations(backend.graphs[0]) == ["mul"] * 7


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
    for n in (10, 20, 30):      # from the third length on, n is a number that varies
        translated(X, n)
    captures = len(translated.captures)
    depths.clear()
    assert torch.equal(translated(X, 500), f(X, 500))
    assert len(set(depths[5:500])) == 1     # after which it is called plainly
    assert len(translated.captures) <= captures + 2


def test_the_budget_of_instructions(monkeypatch):
    monkeypatch.setenv("SOT_UNROLL", "100000,200")
    translated = check(loop, X, [*range(60)])
    stops = [str(c.stopped) for c in translated.captures if c.stopped]
    assert any("for more than 200 instructions" in stop for stop in stops), stops


@pytest.mark.parametrize("value", ["many", "0", "8,", "8,-1", "1,2,3"])
def test_a_setting_that_means_nothing(monkeypatch, value):
    monkeypatch.setenv("SOT_UNROLL", value)
    with pytest.raises(ValueError, match="SOT_UNROLL="):
        sot.to_static(loop)


# ---- loops without operations on tensors ----
def add_up(x, n):
    x, total = x + 1, 0
    for i in range(n):
        total += i * 3 % 7
    return x * total


def count(x, n):
    x, i, odd = x + 1, 0, 0
    while i < n:
        i += 1
        if i % 2:
            continue
        odd += 1
    return x * i * odd


def leave_early(x, n):
    x = x + 1
    for i in range(10 * n):
        for k in range(3):
            if i + k == n:
                break
        else:
            continue
        break
    return x * i * k


def caught(x, n):
    x, bad = x + 1, []
    for i in range(n):
        try:
            if 100 // (i % 50) == 2:
                bad.append(i)
        except ZeroDivisionError as e:
            bad.append(str(e))
        finally:
            last = i
    return x * len(bad) * last


def raises(x, n):
    x, names = x + 1, {i: str(i) for i in range(0, 4)}
    try:
        for i in range(n):
            names[i] = names[i % 4] if i < n - 1 else names["none"]
    except KeyError as e:
        return x * len(names), str(e)
    return x


def primes(n):
    sieve = [True] * n
    for i in range(2, n):
        if sieve[i]:
            for k in range(i * i, n, i):
                sieve[k] = False
    return sum(sieve)


def calls_it(x, n):
    return (x + 1) * primes(n) + sum(i % 3 for i in range(n)) + len([i for i in range(n) if i % 2])


def in_a_context(x, n):
    with torch.no_grad():
        x, total = x + 1, 0
        for i in range(n):
            total += i
        x = x * total
    return x, torch.is_grad_enabled()


def shared(x, n):
    x, total = x + 1, 0

    def add(i):
        nonlocal total
        total += i
    for i in range(n):
        add(i)
    return x * total


@pytest.fixture
def default_budget(monkeypatch):
    monkeypatch.delenv("SOT_UNROLL")


@pytest.mark.usefixtures("default_budget")
@pytest.mark.parametrize("f", [add_up, count, leave_early, caught, raises, calls_it, in_a_context, shared])
def test_python_runs_a_long_loop_without_operations_as_it_is(f, monkeypatch):
    monkeypatch.setattr(unroll_limit, "WITHOUT_OPERATIONS", 3000)
    translated = check(f, X, 2000)
    assert not any(c.fallback for c in translated.captures if c.place.function == f.__name__)
    assert sum(c.place.function == f.__name__ for c in translated.captures) <= 8
    assert any("for long without an operation on tensors" in str(c.stopped) for c in translated.captures)


@pytest.mark.usefixtures("default_budget")
def test_a_loop_without_operations_is_a_constant_if_it_is_short():
    check(add_up, X, 1000, graphs=1, breaks=0)


@pytest.mark.usefixtures("default_budget")
@pytest.mark.parametrize("over", OVER)
def test_ten_thousand_rounds_take_as_many_captures_as_few(over):
    """What is kept of a capture (graphs, entries, guards) does not depend on the number of rounds."""
    def kept(n):
        backend = Counter()
        translated = sot.to_static(loop, backend=backend)
        assert torch.equal(translated(X, OVER[over](n)), loop(X, OVER[over](n)))
        assert not any(c.fallback for c in translated.captures)
        operations = backend.operations if over != "tensor" else 0      # that one is taken apart, once
        return len(translated.captures), operations, sum(len(c.guards) for c in translated.captures)
    few, many = kept(400), kept(10_000)
    assert few == many


# ---- calls without operations -------------------------------------------------------------------------------
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def solve(n):
    return fib(n) % 7


def between_operations(x, n):
    y = x * 2
    return y * solve(n) + 1


def raises_within(x, n):
    try:
        return x * (solve(n) + int("no number"))
    except ValueError as e:
        return x + 1, str(e)


class Prepared(torch.nn.Module):
    def prepare(self, n):
        return solve(n)

    def forward(self, x, n):
        return x * self.prepare(n) + 1


@pytest.mark.usefixtures("default_budget")
@pytest.mark.parametrize("f", [between_operations, raises_within, Prepared()])
def test_python_runs_a_long_call_without_operations_as_it_is(f, monkeypatch):
    """What capture has walked far into, and was given no tensor, is Python's, and so is what that calls."""
    monkeypatch.setattr(unroll_limit, "WITHOUT_OPERATIONS", 1000)
    translated = check(f, X, 14)
    assert any("for long without an operation on tensors" in str(c.stopped) for c in translated.captures)
    assert not any(c.name == "fib" for c in translated.captures)
