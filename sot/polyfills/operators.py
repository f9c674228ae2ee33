"""Operators, comparisons and truth in Python, where they call special methods of user classes.

Candidates come as ``((bound method, argument), ...)`` in the order in which Python asks them.
"""
from __future__ import annotations

import operator
import sys


def binary_answer(candidates, message):
    """The first answer that is not NotImplemented."""
    for method, argument in candidates:
        result = method(argument)
        if result is not NotImplemented:
            return result
    raise TypeError(message)


def repetition(candidates, sequence, count):
    """``sequence * count``: first the count's ``__mul__`` or ``__rmul__``, then its ``__index__``."""
    for method, argument in candidates:
        result = method(argument)
        if result is not NotImplemented:
            return result
    return sequence * fitting(count, OverflowError)


def equality_answer(candidates, default):
    """The same for == and !=, which fall back to identity."""
    for method, argument in candidates:
        result = method(argument)
        if result is not NotImplemented:
            return result
    return default


def opposite(equals, other):
    """``object.__ne__``: the opposite of ``__eq__``."""
    result = equals(other)
    return result if result is NotImplemented else not result


def same_or_equal(x, y):
    """How containers compare. Capture has a handler: the identity of equal numbers does not matter here."""
    return x is y or x == y


def equal_sequences(a, b):
    """== of two lists or tuples, which the elements' == may change."""
    if len(a) != len(b):
        return False
    i = 0
    while i < len(a) and i < len(b):
        if not same_or_equal(a[i], b[i]):
            return i >= len(a) and i >= len(b)
        i += 1
    return len(a) == len(b)


def different_sequences(a, b):
    """!= of two lists or tuples."""
    return not equal_sequences(a, b)


def ordered_sequences(a, b, less, final):
    """<, <=, > and >= of two lists or tuples: the first elements that differ decide, then the lengths."""
    for x, y in zip(a, b, strict=False):
        if not same_or_equal(x, y):
            return less(x, y)
    return final(len(a), len(b))


def equal_dicts(a, b):
    """== of two dicts."""
    if len(a) != len(b):
        return False
    for key in a.keys():
        if key not in b:
            return False
        x, y = a[key], b[key]
        if not same_or_equal(x, y):
            return False
    return True


def different_dicts(a, b):
    """!= of two dicts."""
    return not equal_dicts(a, b)


def equal_ordered_dicts(a, b):
    """== of two OrderedDicts: their order counts."""
    return equal_dicts(a, b) and list(a) == list(b)


def not_(value):
    """``operator.not_``"""
    return not value


def contains(items, wanted):
    """``wanted in items``, asking each element in turn."""
    for item in items:
        if same_or_equal(item, wanted):
            return True
    return False


def index_in(items, wanted, start, stop, message):
    """``items.index(wanted)``"""
    for i in range(start, stop):
        if i >= len(items):
            break
        if same_or_equal(items[i], wanted):
            return i
    raise ValueError(message)


def count_in(items, wanted):
    """``items.count(wanted)``"""
    found = 0
    for item in items:
        if same_or_equal(item, wanted):
            found += 1
    return found


def remove_from(items, wanted, message):
    """``items.remove(wanted)``"""
    i = 0
    while i < len(items):
        if same_or_equal(items[i], wanted):
            if isinstance(items, list):
                del items[i:i + 1]
            elif i < len(items):
                del items[i]
            return
        i += 1
    raise ValueError(message)


def member(container, item):
    """``operator.contains``"""
    return item in container


def item_by_index(items, key):
    """``items[key]`` with a key that has an ``__index__`` of its own."""
    return items[fitting(key, IndexError)]


def fitting(key, error):
    """``operator.index(key)`` as a ``Py_ssize_t``"""
    position = operator.index(key)
    if not -sys.maxsize - 1 <= position <= sys.maxsize:
        raise error(f"cannot fit {type(key).__name__!r} into an index-sized integer")
    return position


# ---- keys and items of dicts
def contains_all(a, b):
    for item in b:
        if item not in a:
            return False
    return True


def views_equal(a, b):
    return len(a) == len(b) and contains_all(b, a)


def views_differ(a, b):
    return not views_equal(a, b)


def view_less(a, b):
    return len(a) < len(b) and contains_all(b, a)


def view_within(a, b):
    return len(a) <= len(b) and contains_all(b, a)


def view_greater(a, b):
    return len(a) > len(b) and contains_all(a, b)


def view_around(a, b):
    return len(a) >= len(b) and contains_all(a, b)
