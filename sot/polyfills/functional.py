"""functools, operator, copy and random in Python, where they call user code or change its containers."""
from __future__ import annotations


def reduce(function, iterable):
    iterator = iter(iterable)
    try:
        value = next(iterator)
    except StopIteration:
        raise TypeError("reduce() of empty iterable with no initial value") from None
    for item in iterator:
        value = function(value, item)
    return value


def reduce_from(function, iterable, value):
    for item in iterable:
        value = function(value, item)
    return value


class _Comparable:
    """An object ordered by a comparison function."""

    __slots__ = ("obj", "compare")
    __hash__ = None

    def __init__(self, obj, compare):
        self.obj = obj
        self.compare = compare

    def __lt__(self, other):
        return self.compare(self.obj, other.obj) < 0

    def __le__(self, other):
        return self.compare(self.obj, other.obj) <= 0

    def __gt__(self, other):
        return self.compare(self.obj, other.obj) > 0

    def __ge__(self, other):
        return self.compare(self.obj, other.obj) >= 0

    def __eq__(self, other):
        return self.compare(self.obj, other.obj) == 0


def comparable(compare, obj):
    return _Comparable(obj, compare)


def get_items(obj, keys):
    return tuple([obj[key] for key in keys])


def get_attributes(obj, names):
    found = []
    for name in names:
        value = obj
        for part in name.split("."):
            value = getattr(value, part)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def call_method(obj, name, args, keywords):
    return getattr(obj, name)(*args, **keywords)


def length_hint(obj, default, has_len, has_hint):
    """``operator.length_hint``, where the class of the object has these methods or has not."""
    if not isinstance(default, int):
        raise TypeError(f"'{type(default).__name__}' object cannot be interpreted as an integer")
    if has_len:
        try:
            return len(obj)
        except TypeError:
            pass
    if not has_hint:
        return default
    try:
        hint = type(obj).__length_hint__(obj)
    except TypeError:
        return default
    if hint is NotImplemented:
        return default
    if not isinstance(hint, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(hint).__name__}")
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return hint


# ---- random.Random ------------------------------------------------------------------------------------------
def choice(self, seq):
    if not len(seq):
        raise IndexError("Cannot choose from an empty sequence")
    return seq[self.randrange(len(seq))]


def shuffle(self, x):
    for i in reversed(range(1, len(x))):
        j = self.randrange(i + 1)
        x[i], x[j] = x[j], x[i]
