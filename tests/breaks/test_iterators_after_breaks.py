"""An iterator that lives over a break is the real thing behind it: its type, its state, what it does next."""
import copy
import itertools
import pickle

import pytest
import torch
from harness import check

import sot


class Letters:
    """Iterated by index."""

    def __getitem__(self, i):
        return "abcdef"[i]

    def __len__(self):
        return 6


MAKERS = {
    "map": lambda: map(str, [1, 2, 3, 4, 5]),
    "map of two": lambda: map(pow, [1, 2, 3, 4], (2, 3, 4, 5)),
    "filter": lambda: filter(None, [0, 1, 2, 0, 3, 4]),
    "zip": lambda: zip(Letters(), itertools.count()),
    "strict zip": lambda: zip(Letters(), "uvwxyz", strict=True),
    "enumerate": lambda: enumerate(Letters(), 3),
    "by index": lambda: iter(Letters()),
    "reversed": lambda: reversed(Letters()),
    "until a sentinel": lambda: iter(iter([1, 2, 3, 4, 5]).__next__, 5),
    "accumulate": lambda: itertools.accumulate([1, 2, 3, 4, 5]),
    "accumulate from": lambda: itertools.accumulate([1, 2, 3, 4], initial=10),
    "accumulate to None": lambda: itertools.accumulate([None, 2, 3, 4], lambda a, b: b if a is None else None),
    "cycle": lambda: itertools.cycle("ab"),
    "cycle, first time round": lambda: itertools.cycle("abcdef"),
    "takewhile": lambda: itertools.takewhile(lambda n: n < 5, [1, 2, 3, 4, 5, 1]),
    "dropwhile": lambda: itertools.dropwhile(lambda n: n < 2, [1, 2, 1, 4, 5]),
    "starmap": lambda: itertools.starmap(pow, [(2, 1), (2, 2), (2, 3), (2, 4)]),
    "filterfalse": lambda: itertools.filterfalse(lambda n: n % 3 == 0, range(9)),
    "pairwise": lambda: itertools.pairwise("abcdef"),
    "chain": lambda: itertools.chain("ab", [1, 2], Letters()),
    "chain.from_iterable": lambda: itertools.chain.from_iterable(["abc", (), [1, 2]]),
    "islice": lambda: itertools.islice("abcdefgh", 1, 8, 2),
    "islice without end": lambda: itertools.islice(itertools.count(), 2, None, 3),
    "compress": lambda: itertools.compress("abcdef", [1, 0, 1, 1, 1, 1]),
    "zip_longest": lambda: itertools.zip_longest("ab", [1, 2, 3, 4], fillvalue="-"),
    "product": lambda: itertools.product("ab", repeat=3),
    "permutations": lambda: itertools.permutations([1, 2, 3], 2),
    "combinations": lambda: itertools.combinations("abcd", 2),
    "groupby": lambda: ((k, [*g]) for k, g in itertools.groupby("aabbccdd")),
    "tee": lambda: itertools.tee([1, 2, 3, 4, 5])[1],
    "repeat": lambda: itertools.repeat("x", 5),
    "count": lambda: itertools.count(3, 2),
}


@pytest.mark.parametrize("taken", [0, 1, 3])
@pytest.mark.parametrize("kind", MAKERS)
def test_goes_on_where_it_was(kind, taken):
    def fn(x):
        it = MAKERS[kind]()
        first = [next(it) for _ in range(taken)]
        y = x + len(first)
        sot.graph_break()
        second = [item for item, _ in zip(it, range(4))]
        return type(it).__name__, first, second, y

    check(fn, torch.ones(2))


@pytest.mark.parametrize("kind", ["map", "filter", "enumerate", "zip_longest", "accumulate", "chain", "takewhile"])
def test_has_ended(kind):
    def fn(x):
        it = MAKERS[kind]()
        found = [*it]
        sot.graph_break()
        return type(it).__name__, found, [*it], x + 1

    check(fn, torch.ones(2))


def test_is_copied_and_pickled():
    def fn(x):
        its = [itertools.accumulate([1, 2, 3]), itertools.cycle("abc"), itertools.islice("abcdef", 1, None)]
        first = [next(it) for it in its]
        y = x + 1
        copies = [pickle.loads(pickle.dumps(it)) for it in its]
        return first, [[*itertools.islice(it, 3)] for it in copies], [next(copy.deepcopy(it)) for it in its], y

    check(fn, torch.ones(2))


def test_lives_on_after_an_exception_of_its_function():
    def refuse(n):
        if n == 2:
            raise ValueError(n)
        return n

    def fn(x):
        it = map(refuse, [1, 2, 3])
        found = [next(it)]
        try:
            next(it)
        except ValueError as e:
            found.append(repr(e))
        return found, [*it], x + 1

    check(fn, torch.ones(2))


def test_ends_where_its_function_raises_stop_iteration():
    def stop(n):
        if n == 2:
            raise StopIteration
        return n

    def fn(x):
        it = map(stop, [1, 2, 3])
        return [*it], [*it], x + 1

    check(fn, torch.ones(2))
