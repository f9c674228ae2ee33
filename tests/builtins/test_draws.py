"""Numbers of Python's and NumPy's generators are inputs of the graph, drawn before it in the order of the program."""
from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from harness import Counter, Programs, same

import sot

program = Programs()
OWN, OF_NUMPY = random.Random(1), np.random.default_rng(1)
KEPT = []


@program
def operands(x):
    for _ in range(3):
        x = x * random.uniform(0.5, 2) + random.randint(0, 3)
    return x


@program
def of_own_generators(x):
    return x * OWN.random() + OWN.gauss(0, 1), x + OF_NUMPY.random(), x * np.random.rand() + np.random.normal()


@program
def nobody_uses_it(x):
    random.random()
    return x + 1


@program
def reckoned_with_and_kept(x):
    a = random.random() * 2 + 1
    KEPT.append(a)
    return x + 1, f"{a:.3f}", random.getrandbits(8)


@program
def seeded(x):
    random.seed(7)
    return x + random.random()


@program
def in_constructors(x):
    return torch.full((2,), random.random()), torch.tensor(random.random()), x.roll(random.randint(0, 2), 0)


def seed_all():
    random.seed(3)
    np.random.seed(3)
    OWN.seed(3)
    OF_NUMPY.bit_generator.state = np.random.default_rng(3).bit_generator.state
    KEPT.clear()


def behaves_like(fn, translated, *args, calls=3):
    """Results, and the states that are left, of several calls."""
    runs = []
    for function in (fn, translated):
        seed_all()
        results = []
        for _ in range(calls):
            try:
                results.append(function(*args))
            except RuntimeError as e:
                results.append(type(e).__name__)
        runs.append([*results, [*KEPT], random.random(), OWN.random(), OF_NUMPY.random(), np.random.rand()])
    assert same(runs[1], runs[0]) is None, same(runs[1], runs[0])


@program.each
def test_one_graph(fn):
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    behaves_like(fn, translated, torch.ones(4, 3))
    assert len(backend.graphs) == 1


@program.each
def test_a_backend_that_compiles(fn):
    behaves_like(fn, sot.to_static(fn, backend="aot_eager"), torch.ones(4, 3))


@pytest.mark.parametrize("limit", [0.2, 0.9])
def test_a_branch_on_a_number(limit):
    def branch(x):
        y = x * random.random()
        return y + 1 if random.random() < limit else y - random.randint(0, 9)
    behaves_like(branch, sot.to_static(branch), torch.ones(3), calls=6)


def test_a_size_that_is_drawn():
    def drawn(x):
        y = x * random.random()
        return y[:random.randint(1, 3)], torch.arange(random.randint(2, 5))
    behaves_like(drawn, sot.to_static(drawn), torch.ones(4), calls=6)


@pytest.mark.parametrize("catches", [False, True])
def test_a_graph_that_fails_draws_once(catches):
    def fails(x):
        y = x * random.random()
        if not catches:
            return torch.linalg.cholesky(y) * random.random()
        try:
            return torch.linalg.cholesky(y) * random.random()
        except RuntimeError:
            return random.random()
    translated = sot.to_static(fails)
    behaves_like(fails, translated, torch.eye(2))
    behaves_like(fails, translated, -torch.eye(2))
    behaves_like(fails, translated, torch.eye(2))


def test_other_arguments_and_what_is_no_number():
    def other(x, items):
        random.shuffle(items)
        return x * random.random(), random.choice(items), OWN.choices(items, k=2), random.random() * x
    behaves_like(lambda x: other(x, [1, 2, 3]), sot.to_static(lambda x: other(x, [1, 2, 3])), torch.ones(2))


def test_recursive_calls_draw_in_order():
    def inner(x):
        return x * random.random() + OWN.random()

    def outer(x):
        y = inner(x) - random.random()
        sot.graph_break()
        return inner(y) * random.random()
    behaves_like(outer, sot.to_static(outer), torch.ones(2))


def test_generators_of_other_classes():
    class Own(random.Random):
        def random(self):
            return 2.0

    def draws(x, own):
        return x * random.random() + own.random()
    translated = sot.to_static(draws)
    for kind in (random.Random, Own, random.Random):
        behaves_like(lambda x: draws(x, kind(1)), lambda x: translated(x, kind(1)), torch.ones(2))  # noqa: B023
