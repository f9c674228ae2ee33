"""The iterators of itertools as generators. Each takes an iterator where the original takes an iterable."""
from __future__ import annotations

import itertools

from sot.polyfills.iteration import listed_for_tuple, started
from sot.polyfills.operators import same_or_equal


def over(function, at, *args):
    """A generator of ``function`` over the iterable among the arguments, whose iterator is made at once."""
    return function(*args[:at], started(args[at]), *args[at + 1:])


def count(value, step):
    while True:
        given, value = value, value + step
        yield given


def accumulate(iterator, function, initial):
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    else:
        total = initial
    yield total
    for item in iterator:
        total = function(total, item)
        yield total


def cycle(iterator):
    seen = []
    for item in iterator:
        seen.append(item)
        yield item
    while seen:
        for i in range(len(seen)):
            yield seen[i]


def takewhile(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            return
        yield item


def dropwhile(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            yield item
            break
    for item in iterator:
        yield item


def starmap(function, iterator):
    for args in iterator:
        yield function(*args)


def filterfalse(function, iterator):
    for item in iterator:
        if not (item if function is None else function(item)):
            yield item


def pairwise(iterator):
    try:
        before = next(iterator)
    except StopIteration:
        return
    for item in iterator:
        yield before, item
        before = item


def chained(iterator):
    for iterable in iterator:
        active = started(iterable)
        for item in active:       # noqa: UP028 (followed also where the iterable has a __next__ of its own)
            yield item


def islice(iterator, start, stop, step):
    """Takes no more from the iterator than the original: up to ``stop``, also after the last element given."""
    i, wanted = 0, start
    while stop is None or i < stop or i < start:
        try:
            item = next(iterator)
        except StopIteration:
            return
        if i == wanted:
            yield item
            wanted += step
        i += 1


def compress(data, selectors):
    return _compressed(started(data), started(selectors))


def _compressed(data, selectors):
    for item, selected in zip(data, selectors, strict=False):
        if selected:
            yield item


def zip_longest(iterables, fill):
    return _zipped_longest([started(iterable) for iterable in iterables], fill)


def _zipped_longest(iterators, fill):
    missing = object()
    active = [True] * len(iterators)
    while True:
        row = []
        for i in range(len(iterators)):
            item = next(iterators[i], missing) if active[i] else missing
            if item is missing:
                active[i] = False
                item = fill
            row.append(item)
        if not any(active):
            return
        yield tuple(row)


NOTHING = object()


class _Groups:
    """The state that groupby shares with its groups: the element just read, its key, and the key of the last group."""

    def __init__(self, iterator, key):
        self.iterator, self.key = iterator, key
        self.item = self.item_key = self.target = NOTHING
        self.group = None       # the group that may go on

    def step(self):
        self.item = next(self.iterator)
        self.item_key = self.item if self.key is None else self.key(self.item)


def groupby(iterator, key):
    """Compares keys as C does: the same pairs, in the same order."""
    shared = _Groups(iterator, key)
    while True:
        shared.group = None
        while shared.item_key is NOTHING or (
                shared.target is not NOTHING and same_or_equal(shared.target, shared.item_key)):
            try:
                shared.step()
            except StopIteration:
                return
        shared.target = shared.item_key
        shared.group = group = object()
        yield shared.item_key, _group(shared, shared.target, group)


def _group(shared, target, group):
    while shared.group is group:
        if shared.item is NOTHING:
            try:
                shared.step()
            except StopIteration:
                return
        if not same_or_equal(target, shared.item_key):
            return
        item, shared.item, shared.item_key = shared.item, NOTHING, NOTHING
        yield item


def tee(iterable, n):
    if n < 0:
        raise ValueError("n must be >= 0")
    iterator, seen = started(iter(iterable)), []        # C asks twice
    return tuple([_branch(iterator, seen) for _ in range(n)])


def _branch(iterator, seen):
    """One of the iterators of tee; what one has read, the others find in ``seen``."""
    i = 0
    while True:
        if i == len(seen):
            try:
                seen.append(next(iterator))
            except StopIteration:
                return
        yield seen[i]
        i += 1


def batched(iterable, n, strict):
    if n < 1:
        raise ValueError("n must be at least one")
    return _batches(started(iterable), n, strict)


def _batches(iterator, n, strict):
    batch = []
    for item in iterator:
        batch.append(item)
        if len(batch) == n:
            yield tuple(batch)
            batch = []
    if batch:
        if strict:
            raise ValueError("batched(): incomplete batch")
        yield tuple(batch)


# ---- over elements that have to be iterated first
def product(iterables, repeat):
    return itertools.product(*[listed_for_tuple(iterable) for iterable in iterables], repeat=repeat)


def permutations(iterable, r):
    return itertools.permutations(listed_for_tuple(iterable), r)


def combinations(iterable, r):
    return itertools.combinations(listed_for_tuple(iterable), r)


def combinations_with_replacement(iterable, r):
    return itertools.combinations_with_replacement(listed_for_tuple(iterable), r)
