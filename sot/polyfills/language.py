"""Instructions that run user code, as plain Python that is executed like it."""
from __future__ import annotations

from collections import deque

from sot.polyfills.iteration import ask_length, listed, listed_for_tuple, started
from sot.support.user_annotations import graph_break

SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def apply_iterable(function, args, kwargs):
    return function(*listed_for_tuple(args), **kwargs)


def apply_mapping(function, args, kwargs):
    return function(*args, **{key: kwargs[key] for key in kwargs.keys()})


def extend(items, iterable):
    iterator = started(iterable)
    ask_length(iterable)
    for item in iterator:
        items.append(item)


def update_set(members, iterable):
    for item in iterable:
        members.add(item)


def update_dict(table, other):
    is_mapping = True
    try:
        for key in other.keys():
            table[key] = other[key]
    except AttributeError:      # of whatever code raises it
        is_mapping = False
    if not is_mapping:
        raise TypeError(f"'{type(other).__name__}' object is not a mapping")


def name_of_called(function):
    """How CPython names what is called when the arguments do not fit."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    return f"{name}()" if module is None or module == "builtins" else f"{module}.{name}()"


def merge_keywords(function, table, other):
    """`**other` in a call of the function."""
    wrong = None
    try:
        for key in [*other.keys()]:
            if key in table:
                wrong = f"{name_of_called(function)} got multiple values for keyword argument '{key}'"
                break
            table[key] = other[key]
    except AttributeError:      # of whatever code raises it
        wrong = f"{name_of_called(function)} argument after ** must be a mapping, not {type(other).__name__}"
    except KeyError:            # CPython 3.12 takes it for a keyword that is given twice, CPython 3.11 in some cases
        graph_break()
    if wrong is not None:
        raise TypeError(wrong)


def refuse_starred(function, starred):
    raise TypeError(f"{name_of_called(function)} argument after * must be an iterable, not {type(starred).__name__}")


def take(iterable, most):
    """The elements, but no more of them than unpacking asks for; the rest stays in the iterator. They come in a deque,
    because unpacking says something else of lists."""
    found = deque()
    for item in iterable:
        found.append(item)
        if len(found) == most:
            break
    return found


def collect(iterable, before):
    """All elements for ``a, b, *rest = iterable``: the iterator itself is made a list behind the first ones."""
    iterator, found = iter(iterable), []
    while len(found) < before:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
    return found + listed(iterator)


def raise_class(cls):
    raise cls()


def raise_class_from(cls, cause):
    raise cls() from cause


def raise_from_class(exception, cause):
    made = cause()
    raise exception from (made if isinstance(made, BaseException) else NotImplemented)     # which Python will refuse


def match_keys(subject, keys):
    """MATCH_KEYS: the values under the keys, or None if one is missing."""
    missing = object()
    found = []
    get = subject.get
    seen = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = get(key, missing)
        if value is missing:
            return None
        found.append(value)
    return tuple(found)


def match_class(subject, cls, count, names):
    """MATCH_CLASS: the attributes that the sub-patterns of a class pattern match, or None."""
    if not isinstance(subject, cls):
        return None
    found = []
    if count:
        if hasattr(cls, "__match_args__"):
            if type(cls.__match_args__) is not tuple:
                raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple "
                                f"(got {type(cls.__match_args__).__name__})")
            if len(cls.__match_args__) < count:
                raise TypeError(f"{cls.__name__}() accepts {len(cls.__match_args__)} positional sub-patterns "
                                f"({count} given)")
            names = (*cls.__match_args__[:count], *names)
        elif issubclass(cls, SELF_MATCHING) and count == 1:
            found.append(subject)
        else:
            raise TypeError(f"{cls.__name__}() accepts 0 positional sub-patterns ({count} given)")
    for i, name in enumerate(names):
        if type(name) is not str:
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in names[:i]:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        if not hasattr(subject, name):
            return None
        found.append(getattr(subject, name))
    return tuple(found)
