"""Methods of containers in Python, for arguments that user code iterates."""
from __future__ import annotations

from collections import OrderedDict, defaultdict, deque

from sot.polyfills.iteration import ask_length, elements, listed, listed_for_tuple, sort_order, started


def new_tuple(iterable):
    return tuple(listed_for_tuple(iterable))


def new_tuple_of(cls, iterable):
    return tuple.__new__(cls, listed_for_tuple(iterable))


def new_deque(iterable, maxlen):
    return deque(elements(iterable), maxlen)


def new_set(iterable):
    found = set()
    for item in iterable:
        found.add(item)
    return found


def new_frozenset(iterable):
    return frozenset(elements(iterable))


def list_init(self, iterable):
    found = listed(iterable)
    list.clear(self)
    list.extend(self, found)


def set_init(self, iterable):
    found = elements(iterable)
    set.clear(self)
    set.update(self, found)


def set_slice(self, key, iterable):
    list.__setitem__(self, key, listed(iter(iterable)))


def extend(self, iterable):
    is_list, iterator = isinstance(self, list), started(iterable)
    append = list.append if is_list else deque.append
    if is_list:
        ask_length(iterable)
    for item in iterator:
        append(self, item)


def extended(self, iterable):
    extend(self, iterable)
    return self


def extendleft(self, iterable):
    for item in iterable:
        deque.appendleft(self, item)


def sort_in_place(self, key, reverse):
    items = list(list.__iter__(self))
    order = list(range(len(items)))
    list.clear(self)        # as C does, to see whether a key function changes it
    try:
        sort_order(items if key is None else [key(item) for item in items], reverse, order)
    finally:
        changed = list.__len__(self) > 0
        list.__setitem__(self, slice(None), [items[i] for i in order])
    if changed:
        raise ValueError("list modified during sort")


# ---- dicts
def update_by_setitem(self, other, keywords):
    """``update`` of mappings that are filled by their own ``__setitem__``, and of anything that is not a dict."""
    if other is not None:
        if hasattr(other, "keys"):
            for key in other.keys():
                self[key] = other[key]
        else:
            for pair in other:
                key, value = pair
                self[key] = value
    for key, value in keywords.items():
        self[key] = value


def update_plain(self, other, keywords):
    """``dict.update`` from something that is not a dict, past any override of ``__setitem__``."""
    if hasattr(other, "keys"):
        for key in other.keys():
            dict.__setitem__(self, key, other[key])
    else:
        for pair in other:
            key, value = pair
            dict.__setitem__(self, key, value)
    for key, value in keywords.items():
        dict.__setitem__(self, key, value)


def new_dict(other, keywords):
    table = {}
    update_plain(table, other, keywords)
    return table


def new_ordered(other, keywords):
    table = OrderedDict()
    update_plain(table, other, keywords)
    return table


def new_defaultdict(factory, other, keywords):
    table = defaultdict(factory)
    update_plain(table, other, keywords)
    return table


def copy_ordered(table):
    """``OrderedDict.copy`` of a subclass."""
    made = type(table)()
    for key in table:
        made[key] = table[key]
    return made


def copy_default(table):
    """``defaultdict.copy`` of a subclass."""
    return type(table)(table.default_factory, table)


def fromkeys(cls, iterable, value):
    table = cls()
    for key in iterable:
        table[key] = value
    return table


def missing_from_factory(table, key):
    """``defaultdict.__missing__``"""
    value = table.default_factory()
    table[key] = value
    return value


def call_missing(missing, key):
    return missing(key)


def count_elements(mapping, iterable):
    """The function that collections.Counter counts with."""
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


# ---- sets
def update_set(self, *iterables):
    for iterable in iterables:
        for item in iterable:
            set.add(self, item)


def set_method(self, name, *iterables):
    """A set method whose arguments have to be iterated first."""
    return getattr(self, name)(*[elements(iterable) for iterable in iterables])
