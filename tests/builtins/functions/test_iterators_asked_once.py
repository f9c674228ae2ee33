"""What C code iterates is asked for its iterator once, and the iterator is not asked again: it may count."""
import collections
import functools
import itertools

import pytest
import torch
from harness import check, check_by

X = torch.arange(3.0)


class Loader:
    """An iterator that counts its epochs, as data loaders do."""

    def __init__(self, *items):
        self.items, self.at, self.epochs = items, 0, 0

    def __iter__(self):
        self.epochs += 1
        self.at = 0
        print("epoch", self.epochs)
        return self

    def __next__(self):
        if self.at == len(self.items):
            raise StopIteration
        self.at += 1
        return self.items[self.at - 1]


class Hinting(Loader):
    def __length_hint__(self):
        print("hint")
        return 2


class Cursor:
    """An iterator without ``__iter__``, which for-loops take only from an iterable."""

    def __init__(self, items):
        self.items = list(items)

    def __next__(self):
        if not self.items:
            raise StopIteration
        return self.items.pop(0)


class OfCursors:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        print("cursor")
        return Cursor(self.items)


class Fresh(OfCursors):
    """Its iterator answers ``iter`` with another one."""

    def __iter__(self):
        print("fresh")
        return Loader(*self.items)


def spread(*values):
    return values


def set_slice(items):
    made = [0, 0, 0]
    made[1:2] = items
    return made


def set_each_second(items):
    made = [0, 0, 0, 0]
    made[::2] = items
    return made


def first_and_rest(items):
    first, *rest = items
    return first, rest


def rest_and_last(items):
    *rest, last = items
    return rest, last


def unpacked(items):
    a, b = items
    return a, b


def add_in_place(items):
    made = [0]
    made += items
    return made


def loop(items):
    return [item for item in items]


USES = {
    f.__name__: f for f in (list, tuple, set, frozenset, sorted, sum, max, min, any, all, collections.deque, set_slice,
                            collections.Counter, set_each_second, first_and_rest, rest_and_last, unpacked, add_in_place,
                            loop, dict.fromkeys, bytes, torch.Size)} | {
    "display": lambda v: [*v, 0], "tuple display": lambda v: (*v, 0), "set display": lambda v: {*v, 0},
    "call": lambda v: spread(*v), "call with more": lambda v: spread(0, *v), "extend": lambda v: [].extend(v),
    "update": lambda v: set().union(v), "enumerate": lambda v: list(enumerate(v, 3)), "zip": lambda v: list(zip(v, v)),
    "map": lambda v: list(map(abs, v)), "map of two": lambda v: list(map(max, v, (5, 6))),
    "filter": lambda v: list(filter(None, v)), "filter by": lambda v: list(filter(lambda i: i > 2, v)),
    "join": lambda v: ",".join(map(str, v)), "reduce": lambda v: functools.reduce(max, v),
    "reduce from": lambda v: functools.reduce(max, v, 9), "in": lambda v: 3 in v,
    **{name: (lambda function: lambda v: list(function(v)))(getattr(itertools, name)) for name in (
        "accumulate", "pairwise", "chain", "permutations", "product", "zip_longest", "groupby")},
    "combinations": lambda v: list(itertools.combinations(v, 1)), "islice": lambda v: list(itertools.islice(v, 2)),
    "takewhile": lambda v: list(itertools.takewhile(lambda i: i < 3, v)),
    "dropwhile": lambda v: list(itertools.dropwhile(lambda i: i < 3, v)),
    "filterfalse": lambda v: list(itertools.filterfalse(None, v)), "from_iterable": lambda v: list(
        itertools.chain.from_iterable([v, v])), "compress": lambda v: list(itertools.compress(v, (1, 0))),
    "starmap": lambda v: list(itertools.starmap(max, zip(v, (1, 9)))),
    "tee": lambda v: list(map(list, itertools.tee(v))),
    "cycle": lambda v: list(itertools.islice(itertools.cycle(v), 5)),
}
KINDS = (Loader, Hinting, OfCursors, Fresh)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", USES)
def test_an_iterable_is_asked_for_its_iterator_as_in_python(use, kind):
    def program(x, v):
        y = x + 1
        found = USES[use](v)
        print("after")
        return y, found if not isinstance(found, list) or use != "groupby" else len(found)
    check(program, X, kind(2, 3))


def epoch(x, loader, seen):
    for i, (a, b) in enumerate(zip(loader, map(abs, itertools.count(1)))):
        x = x * a + b * i
        print(x.sum().item())       # a break: the iterators live through it
        seen.append(i)
    return x


def chained_epoch(x, loader, seen):
    for a in itertools.chain(map(abs, loader), filter(None, loader)):
        x = x + a
        print(x.sum().item())
        seen.append(a)
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", [epoch, chained_epoch])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_iterator_that_lives_through_a_break_is_not_asked_again(backend, program, kind):
    check_by(backend, program, X, kind(2, 3), [])


def test_a_loader_that_counts_its_epochs_is_in_the_graph():
    def program(x, loader):
        for i, a in enumerate(loader):
            x = x * a + i
        return x, loader.epochs
    check_by("eager", program, X, Loader(2, 3), breaks=0)


def test_an_iter_that_is_replaced_is_asked():
    import sot

    class Replaced(Loader):
        def __iter__(self):
            return self

    def program(x, loader):
        return x * sum(i * a for i, a in enumerate(loader)), loader.epochs
    translated = sot.to_static(program, backend="eager")
    assert translated(X, Replaced(2, 3))[1] == 0
    Replaced.__iter__ = Loader.__iter__
    assert translated(X, Replaced(2, 3))[1] == program(X, Replaced(2, 3))[1] == 1


def test_groupby_compares_keys_in_the_order_of_c():
    class Key:
        def __init__(self, number):
            self.number = number

        def __eq__(self, other):
            print(self.number, other.number)
            return self.number == other.number

    def program(x, items):
        found = []
        for key, group in itertools.groupby(items, Key):
            found.append((key.number, next(group, None) if len(found) == 1 else list(group)))
        return x + 1, found
    check(program, X, [1, 1, 2, 2, 2, 3])
    check(program, X, [])


def test_groups_end_when_the_next_one_is_asked_for():
    def program(x, items):
        groups = itertools.groupby(items)
        _, first = next(groups)
        got = [next(first)]
        _, second = next(groups)
        return x + 1, got, list(first), list(second), list(groups)
    check(program, X, [1, 1, 1, 2, 2])


@pytest.mark.parametrize("use", [first_and_rest, rest_and_last, set_slice, lambda v: ",".join(v)])
def test_the_error_of_an_iterator_without_iter_is_python_s(use):
    def program(x, v):
        try:
            return x, use(v)
        except TypeError as e:
            return x + 1, str(e)
    check(program, X, OfCursors(2, 3))
