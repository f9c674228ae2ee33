"""Numbers of Python's and NumPy's generators are inputs of the graph, drawn before it in the order of the program."""
from __future__ import annotations

import array
import cmath
import datetime
import fractions
import itertools
import json
import operator
import random
import statistics
import struct
import types

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


@program
def arrays_of_numpy(x):
    noise = OF_NUMPY.normal(size=x.shape).astype(np.float32)
    noise *= 2
    order = OF_NUMPY.permutation(x.shape[1])
    return x[:, torch.from_numpy(order)] + torch.from_numpy(noise), np.random.randn(2), OF_NUMPY.choice(5, size=3)


@program
def whole_numbers_of_numpy(x):
    return x * OF_NUMPY.integers(5) + OF_NUMPY.random(), OF_NUMPY.integers(1, 9, dtype=np.int32)


@program
def arrays_of_a_seeded_generator(x):
    made = np.random.default_rng(7)
    found = made.normal(size=3)
    found += 1
    return x + torch.from_numpy(found.astype(np.float32)), found, made.random(2)


@program
def a_seed_of_numpy_and_an_array(x):
    np.random.seed(4)
    return x + torch.from_numpy(np.random.rand(3))


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


# ---- generators that the program makes
made_inside = Programs()


@made_inside
def of_python(x):
    r, items = random.Random(42), [1, 2, 3, 4, 5]
    r.shuffle(items)
    if r.random() > 0.5:
        x = x + 1
    return x * r.random() + r.randint(1, 5), items, r.choice("abc"), x[r.randrange(2)], r.gauss(0, 1)


@made_inside
def of_numpy(x):
    r, old = np.random.default_rng(1), np.random.RandomState(7)
    return x + r.random(), r.integers(0, 5), x * old.rand(), old.randint(5), r.normal(), old.uniform(1, 2)


@made_inside
def left_to_the_caller(x):
    r, other = random.Random(3), np.random.default_rng(3)
    y = x * r.random() + other.random()
    return y, r, other


@made_inside
def one_seed_for_two(x):
    a, b = random.Random(5), random.Random(5)
    return x + 1, [a.random(), b.random(), a.random()], b.random() != a.random()


@made_inside.each
def test_a_generator_made_with_a_constant_seed_gives_constants(fn):
    counter = Counter()
    translated = sot.to_static(fn, backend=counter)
    for _ in range(3):
        want, got = fn(torch.ones(3)), translated(torch.ones(3))
        for ours, theirs in zip(got, want, strict=True):
            if isinstance(theirs, (random.Random, np.random.Generator)):
                assert type(ours) is type(theirs)
                ours, theirs = ours.random(), theirs.random()
            assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs
    assert len(counter.graphs) == 1 and len(translated.captures) == 1


def test_a_break_between_its_draws_and_a_seed_that_is_not_known():
    def broken(x):
        r, s = random.Random(4), random.Random()
        y = x * r.random()
        sot.graph_break()
        return y + r.random(), r.sample(range(9), 3), 0 <= s.random() < 1

    def seeded_by_an_argument(x, seed):
        return x * random.Random(seed).random()
    assert same(sot.to_static(broken)(torch.ones(3)), broken(torch.ones(3)), "result") is None
    translated = sot.to_static(seeded_by_an_argument)
    for seed in (1, 2, 3, 1):
        assert torch.equal(translated(torch.ones(3), seed), seeded_by_an_argument(torch.ones(3), seed))


@pytest.mark.parametrize("bad", [lambda r: r.randint(5, 1), lambda r: r.choice([]), lambda r: r.randrange(0)])
def test_what_a_generator_refuses(bad):
    def fn(x):
        r = random.Random(1)
        try:
            return bad(r)
        except (ValueError, IndexError) as e:
            return type(e).__name__, str(e), r.random(), x + 1
    translated = sot.to_static(fn)
    for _ in range(2):
        assert same(translated(torch.ones(3)), fn(torch.ones(3)), "result") is None


def array_before_a_break(x):
    drawn = np.random.rand(2)
    sot.graph_break()
    return drawn, x + 1


def array_that_only_python_reads(x):
    return np.random.rand(2).tolist(), np.random.permutation(3).tolist(), np.random.choice(5, 2), x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [array_before_a_break, array_that_only_python_reads], ids=lambda f: f.__name__)
def test_an_array_of_random_numbers_that_no_graph_takes(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for seed in range(3):
        outcomes = []
        for run in (translated, fn):
            np.random.seed(seed)
            outcomes.append((run(torch.ones(3)), np.random.rand()))
        assert same(*outcomes) is None


# Python calls these, or capture does so with what it takes for the number: it must be the number of each call.
CALLED_BY_PYTHON = {
    "text": lambda n, r: (bin(n), chr(65 + n), "a".center(n), bytes(str(n), "ascii"), json.dumps(n)),
    "bytes": lambda n, r: (bytes(n), bytearray(n), struct.pack("i", n), int.to_bytes(n, 2, "big")),
    "arithmetic": lambda n, r: (n.bit_length(), fractions.Fraction(n, 3), cmath.sqrt(n), statistics.mean([n, 2])),
    "a draw": lambda n, r: (random.gauss(n, 1), random.uniform(n, 99)),
    "counting": lambda n, r: (next(itertools.count(n)), next(itertools.count(r)), [*itertools.islice(range(99), n)]),
    "places": lambda n, r: (operator.itemgetter(n)([*range(60)]), array.array("i", [n])[0], [*range(n)]),
    "order": lambda n, r: (sorted([n, 3, r]), np.float32(r), datetime.timedelta(n).days),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("what", CALLED_BY_PYTHON)
def test_a_number_that_python_needs_is_the_number_of_the_call(what, backend):
    use = CALLED_BY_PYTHON[what]

    def fn(x):
        n, r = random.randrange(50), random.random()
        return x + 1, use(n, r)
    translated = sot.to_static(fn, backend=backend)
    for seed in range(4):
        outcomes = []
        for run in (translated, fn):
            random.seed(seed)
            outcomes.append((run(torch.ones(3)), random.random()))
        assert same(*outcomes) is None


def of_a_set(box):
    return {1, 2}


def asked_for_none(box):
    return box.n is None


def asked_for_itself(box):
    return box.n is box.n


@pytest.mark.parametrize("asks", [of_a_set, asked_for_none, asked_for_itself])
def test_a_number_that_is_the_object_of_another_input_is_drawn_once(asks):
    """Small integers are the same object. Where that matters, an entry that has drawn one cannot ask."""
    def fn(x, box):
        asked = asks(box)

        class Local:
            n = random.randrange(5)

        class Other:
            n = box.n
        return x * 2, asked
    translated = sot.to_static(fn, backend="eager")
    for n in 3, 3, 4, 2, 4:
        outcomes = []
        for run in (translated, fn):
            random.seed(5)      # draws 4
            outcomes.append((run(torch.ones(3), types.SimpleNamespace(n=n)), random.random()))
        assert same(*outcomes) is None
