"""functools, operator, copy and random in Python, where they call user code or change its containers."""
from __future__ import annotations

from sot.polyfills.iteration import started


def reduce(function, iterable):
    iterator = started(iterable)
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


# ---- functools.lru_cache ----------------------------------------------------------------------------------------
class Cache:
    """What a cached function that the trace has made remembers."""

    def __init__(self, maxsize, typed):
        self.maxsize, self.typed = maxsize, typed
        self.results, self.hits, self.misses = {}, 0, 0


KEYWORDS = object()     # in a key before arguments by name


def key_of_call(args, kwargs, typed):
    key = args
    if kwargs:
        key += (KEYWORDS, *[part for item in kwargs.items() for part in item])
    if typed:
        return (*key, *[type(v) for v in args], *[type(v) for v in kwargs.values()])
    return key[0] if len(key) == 1 and type(key[0]) in (int, str) else key


def check_hash(key):
    """Raise what ``hash(key)`` raises; a handler does it. A dict would say that it is a key."""
    raise NotImplementedError


def call_cached(cache, function, args, kwargs):
    key, results = key_of_call(args, kwargs, cache.typed), cache.results
    if cache.maxsize == 0:
        cache.misses += 1
        return function(*args, **kwargs)
    check_hash(key)
    if key in results:
        cache.hits += 1
        if cache.maxsize is not None:       # it is the newest now
            results[key] = results.pop(key)
        return results[key]
    cache.misses += 1
    result = function(*args, **kwargs)
    if cache.maxsize is not None and key not in results and len(results) >= cache.maxsize:
        del results[next(iter(results))]
    if cache.maxsize is None or key not in results:
        results[key] = result
    return result


def computed(function, args, kwargs, varying):
    """A cached function of numbers that vary, if it only computes numbers of them."""
    before = state_of_trace()
    return only_numbers(function(*args, **kwargs), before, varying, function)


def state_of_trace():
    """What shows effects later; a handler returns it."""
    raise NotImplementedError


def only_numbers(result, before, varying, function):
    """The result, if it is made of numbers and the trace has had no effects since. If not, the numbers in ``varying``
    are constants in the next attempt of the capture. A handler does it.
    """
    raise NotImplementedError


def clear_cache(cache):
    cache.results.clear()
    cache.hits = cache.misses = 0


def nothing(cache):
    """Clears a cache that is empty."""


def cache_info(cache, make):
    return make(cache.hits, cache.misses, cache.maxsize, len(cache.results))


# ---- random.Random ------------------------------------------------------------------------------------------
def choice(self, seq):
    if not len(seq):
        raise IndexError("Cannot choose from an empty sequence")
    return seq[self.randrange(len(seq))]


def shuffle(self, x):
    for i in reversed(range(1, len(x))):
        j = self.randrange(i + 1)
        x[i], x[j] = x[j], x[i]
