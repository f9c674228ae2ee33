"""The real iterators that generators of this package stand for, advanced to the position of the generator.

Behind a break the program must find a ``map`` and not our generator. A function of this file gets the parameters and
local variables of a suspended generator that it names; a variable without a value is not passed: before its first
step a generator has parameters only. It is called in emitted code, and must not run the user's.
"""
from __future__ import annotations

import itertools

from sot.polyfills import iteration
from sot.polyfills.modules import itertools_
from sot.support.registry import Registry

NOT_YET = object()
ITERATOR = type(iter(type("", (), {"__getitem__": None})()))
CALLABLE_ITERATOR = type(iter(int, 0))

# By the code of a generator function: the type that the program sees, and the function that makes the object.
# Without the latter, there is no break while such an iterator lives.
REBUILT = Registry("what an iterator is rebuilt as", {
    itertools_._branch.__code__: (itertools._tee, None),
    itertools_.groupby.__code__: (itertools.groupby, None),
    itertools_._group.__code__: (itertools._grouper, None),
})

# Arguments that make an iterator which has ended.
ENDED = {
    map: (None, ()), filter: (None, ()), zip: (), enumerate: ((),), itertools.accumulate: ((),), itertools.cycle: ((),),
    itertools.takewhile: (None, ()), itertools.dropwhile: (None, ()), itertools.starmap: (None, ()),
    itertools.filterfalse: (None, ()), itertools.pairwise: ((),), itertools.groupby: ((),), itertools.chain: (),
    itertools.islice: ((), 0), itertools.compress: ((), ()), itertools.zip_longest: (),
}
if hasattr(itertools, "batched"):
    ENDED[itertools.batched] = ((), 1)


def rebuilds(polyfill, kind):
    def register(function):
        REBUILT[polyfill.__code__] = kind, function
        return function
    return register


def advanced(iterator, steps):
    for _ in itertools.islice(iterator, steps):
        pass
    return iterator


def in_state(iterator, state):
    iterator.__setstate__(state)
    return iterator


# ---- builtins
@rebuilds(iteration.by_index, ITERATOR)
def by_index(sequence, i=-1):
    return in_state(iter(sequence), i + 1)


@rebuilds(iteration.until_sentinel, CALLABLE_ITERATOR)
def until_sentinel(function, sentinel):
    return iter(function, sentinel)


@rebuilds(iteration.from_the_end, reversed)
def from_the_end(sequence, i):
    return in_state(object.__new__(reversed), i) if i < 0 else in_state(reversed(sequence), i - 1)


@rebuilds(iteration.enumerated, enumerate)
def enumerated(iterator, i, item=NOT_YET):
    return enumerate(iterator, i + (item is not NOT_YET))


@rebuilds(iteration.zipped, zip)
def zipped(iterators):
    return zip(*iterators, strict=False)


@rebuilds(iteration.zipped_strictly, zip)
def zipped_strictly(iterators):
    return zip(*iterators, strict=True)


@rebuilds(iteration.mapped, map)
def mapped(function, iterator):
    return map(function, iterator)


@rebuilds(iteration.mapped_many, map)
def mapped_many(function, iterators):
    return map(function, *iterators)


@rebuilds(iteration.filtered, filter)
def filtered(function, iterator):
    return filter(function, iterator)


@rebuilds(iteration.filtered_by_truth, filter)
def filtered_by_truth(iterator):
    return filter(None, iterator)


# ---- itertools
@rebuilds(itertools_.count, itertools.count)
def count(value, step):
    return itertools.count(value, step)


@rebuilds(itertools_.accumulate, itertools.accumulate)
def accumulate(iterator, function, initial, total=NOT_YET):
    if total is NOT_YET:
        return itertools.accumulate(iterator, function, initial=initial)
    # Not as the initial value, since None would be none.
    return advanced(itertools.accumulate(itertools.chain((total,), iterator), function), 1)


@rebuilds(itertools_.cycle, itertools.cycle)
def cycle(iterator, seen=(), i=-1):
    if i >= 0:
        return advanced(itertools.cycle(seen), i + 1)
    return advanced(itertools.cycle(itertools.chain(seen, iterator) if seen else iterator), len(seen))


@rebuilds(itertools_.takewhile, itertools.takewhile)
def takewhile(predicate, iterator):
    return itertools.takewhile(predicate, iterator)


@rebuilds(itertools_.dropwhile, itertools.dropwhile)
def dropwhile(predicate, iterator, item=NOT_YET):
    if item is NOT_YET:
        return itertools.dropwhile(predicate, iterator)
    return advanced(itertools.dropwhile(drops_nothing, itertools.chain((item,), iterator)), 1)


def drops_nothing(item):
    return False


@rebuilds(itertools_.starmap, itertools.starmap)
def starmap(function, iterator):
    return itertools.starmap(function, iterator)


@rebuilds(itertools_.filterfalse, itertools.filterfalse)
def filterfalse(function, iterator):
    return itertools.filterfalse(function, iterator)


@rebuilds(itertools_.pairwise, itertools.pairwise)
def pairwise(iterator, item=NOT_YET):
    return itertools.pairwise(iterator if item is NOT_YET else itertools.chain((item,), iterator))


@rebuilds(itertools_.chained, itertools.chain)
def chained(iterator, active=NOT_YET):
    return itertools.chain.from_iterable(iterator if active is NOT_YET else itertools.chain((active,), iterator))


@rebuilds(itertools_.islice, itertools.islice)
def islice(iterator, start, stop, step, i=-1, wanted=None):
    if i < 0:
        return itertools.islice(iterator, start, stop, step)
    taken = i + 1
    following = wanted + step if stop is None else min(wanted + step, stop)
    return itertools.islice(iterator, following - taken, None if stop is None else stop - taken, step)


@rebuilds(itertools_._compressed, itertools.compress)
def compress(data, selectors):
    return itertools.compress(data, selectors)


@rebuilds(itertools_._zipped_longest, itertools.zip_longest)
def zip_longest(iterators, fill, active=None):
    rest = iterators if active is None else [i if goes_on else () for i, goes_on in zip(iterators, active, strict=True)]
    return itertools.zip_longest(*rest, fillvalue=fill)


if hasattr(itertools, "batched"):
    @rebuilds(itertools_._batches, itertools.batched)
    def batched(iterator, n, strict):
        return itertools.batched(iterator, n, **({"strict": True} if strict else {}))
