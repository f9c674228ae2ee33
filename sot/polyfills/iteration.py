"""Builtins that consume iterables, in Python, for elements that user code makes."""
from __future__ import annotations

import operator
from types import FunctionType

from sot.bytecode import CLOSE_ANSWERS, TUPLE_ASKS_LENGTH


# ---- the iterator of an iterable
class Steps:
    """An iterator whose class has an ``__iter__`` of its own, or none: loops over this one do not call that."""

    __slots__ = ("iterator",)

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.iterator)


ITSELF = (lambda self: self).__code__.co_code


def has_own_iter(iterator):
    """Whether ``iter(iterator)`` does more than to answer with the iterator."""
    method = getattr(type(iterator), "__iter__", None)
    return method is None or isinstance(method, FunctionType) and method.__code__.co_code != ITSELF


def started(iterable):
    """``iter(iterable)``, for a polyfill that loops over it. What C code iterates is asked for its iterator once."""
    iterator = iter(iterable)
    return Steps(iterator) if has_own_iter(iterator) else iterator


# ---- lists
def ask_length(iterable):
    """What a list asks an iterable before it takes the elements (``operator.length_hint``). It makes no use of a right
    answer.
    """
    kind = type(iterable)
    if hasattr(kind, "__len__"):
        try:
            len(iterable)
        except TypeError:
            pass
        else:
            return
    if isinstance(getattr(kind, "__length_hint__", None), FunctionType):    # those in C only look
        check_hint(kind, iterable)


def check_hint(kind, iterable):
    try:
        hint = kind.__length_hint__(iterable)
    except TypeError:
        return
    if hint is NotImplemented:
        return
    if not isinstance(hint, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(hint).__name__}")
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")


def listed(iterable):
    """``list(iterable)``"""
    iterator = started(iterable)
    ask_length(iterable)
    return elements(iterator)


def listed_for_tuple(iterable):
    """The elements that ``tuple(iterable)`` takes."""
    return listed(iterable) if TUPLE_ASKS_LENGTH else elements(iterable)


def elements(iterable):
    """The elements of an iterable that is not asked for its length."""
    found = []
    for item in iterable:
        found.append(item)
    return found


# ---- iterators
def by_index(sequence):
    """``iter`` of an object that has only ``__getitem__``."""
    i = 0
    while True:
        try:
            item = sequence[i]
        except (IndexError, StopIteration):
            return
        yield item
        i += 1


def until_sentinel(function, sentinel):
    """``iter(function, sentinel)``"""
    while True:
        try:
            value = function()
        except StopIteration:
            return
        if value == sentinel:
            return
        yield value


def next_or_default(iterator, default):
    """``next(iterator, default)``"""
    try:
        return iterator.__next__()
    except StopIteration:
        return default


def throw_class(generator, kind):
    return generator.throw(kind())


def close_generator(generator):
    """``generator.close()``"""
    try:
        generator.throw(GeneratorExit())
    except GeneratorExit:
        return None
    except StopIteration as stop:
        return stop.value if CLOSE_ANSWERS else None
    raise RuntimeError("generator ignored GeneratorExit")


def range_(*args):
    return range(*[operator.index(arg) for arg in args])


def enumerate_(iterable, start):
    return enumerated(started(iterable), start)


def enumerated(iterator, i):
    for item in iterator:
        yield i, item
        i += 1


def zip_(*iterables):
    return zipped(tuple([started(i) for i in iterables]))


def zipped(iterators):
    if not iterators:
        return
    while True:
        row = []
        for iterator in iterators:
            try:
                row.append(next(iterator))
            except StopIteration:
                return
        yield tuple(row)


def zip_strictly(*iterables):
    return zipped_strictly(tuple([started(i) for i in iterables]))


def zipped_strictly(iterators):
    """``zip(..., strict=True)``: the first that ends must be the first argument, and all others end with it."""
    missing = object()
    while iterators:
        row = []
        for i, iterator in enumerate(iterators):
            item = next(iterator, missing)
            if item is missing:
                if i:
                    raise ValueError(f"zip() argument {i + 1} is shorter than argument{_others(i)}")
                for j, other in enumerate(iterators[1:]):
                    if next(other, missing) is not missing:
                        raise ValueError(f"zip() argument {j + 2} is longer than argument{_others(j + 1)}")
                return
            row.append(item)
        yield tuple(row)


def _others(i):
    return " 1" if i == 1 else f"s 1-{i}"


def map_(function, *iterables):
    if len(iterables) == 1:
        return mapped(function, started(iterables[0]))
    return mapped_many(function, tuple([started(i) for i in iterables]))


def mapped(function, iterator):
    for item in iterator:
        yield function(item)


def mapped_many(function, iterators):
    for row in zipped(iterators):
        yield function(*row)


def filter_(function, iterable):
    if function is None or function is bool:
        return filtered_by_truth(started(iterable))
    return filtered(function, started(iterable))


def filtered(function, iterator):
    for item in iterator:
        if function(item):
            yield item


def filtered_by_truth(iterator):
    for item in iterator:
        if item:
            yield item


def reversed_(sequence):
    return from_the_end(sequence, len(sequence))


def from_the_end(sequence, i):
    while i > 0:
        i -= 1
        yield sequence[i]


# ---- reductions
def sum_(iterable, start):
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    for item in iterable:
        start = start + item
    return start


def product_(iterable, start):
    for item in iterable:
        start = start * item
    return start


def of_list(function, iterable):
    return function([*iterable])


def any_(iterable):
    for item in iterable:
        if item:
            return True
    return False


def all_(iterable):
    for item in iterable:
        if not item:
            return False
    return True


def smallest(iterable, key, has_default, default):
    found, best, best_key = False, default, None
    for item in iterable:
        item_key = item if key is None else key(item)
        if not found or item_key < best_key:
            found, best, best_key = True, item, item_key
    if not found and not has_default:
        return min(())
    return best


def largest(iterable, key, has_default, default):
    found, best, best_key = False, default, None
    for item in iterable:
        item_key = item if key is None else key(item)
        if not found or item_key > best_key:
            found, best, best_key = True, item, item_key
    if not found and not has_default:
        return max(())
    return best


# ---- sorting
def sorted_(iterable, key=None, reverse=False):
    items = listed(iterable)
    keys = items if key is None else [key(item) for item in items]
    order = list(range(len(items)))
    sort_order(keys, reverse, order)
    return [items[i] for i in order]


def sort_order(keys, reverse, order):
    """Sort the indices of keys. If a comparison raises, they are left as ``list.sort`` leaves a list."""
    order.sort(key=keys.__getitem__, reverse=reverse)


def compared_order(keys, reverse, order):
    """The same by the comparisons of ``list.sort``, in their order."""
    answers = []
    while True:
        pair, found = sorting_step(len(keys), reverse, answers)
        if pair is None:
            order[:] = found
            return
        try:
            answers.append(True if keys[pair[0]] < keys[pair[1]] else False)
        except BaseException:
            order[:] = found
            raise


def sorting_step(count, reverse, answers):
    """The pair of indices that ``list.sort`` compares after these answers, or None, and the order that it has made."""
    raise NotImplementedError("a handler answers")
