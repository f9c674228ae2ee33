"""What CPython's own tests (tests/support/cpython.py) have found: each function here was wrong once."""
from __future__ import annotations

import collections
import dataclasses
import enum
import itertools

import pytest
import torch
from harness import check

X = torch.arange(1.0, 4.0)


def error_of(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as e:  # noqa: BLE001 - to be compared
        return type(e).__name__, str(e)


# ---- containers that change, or hold themselves
def repr_of_itself(x):
    items, table = [1], {}
    items.append(items)
    table["k"] = (table, items)
    return x + 1, repr(items), repr(table), f"{items}", "%s" % (items,)


@dataclasses.dataclass
class Node:
    other: object = None


def repr_of_dataclass_in_itself(x):
    node = Node()
    node.other = [node]
    return x + 1, repr(node)


def iterators_that_have_ended(x):
    items = [1, 2, 3]
    ended, other = iter(items), iter(items)
    for _ in ended:
        next(other)
    items.append(9)
    return x + 1, list(ended), list(other)


def reversed_is_live(x):
    items = [1, 2, 3]
    back = reversed(items)
    items[0], items[2] = 7, 8
    return x + 1, next(back), list(back), next(back, None)


def set_grows(x):
    members = {1, 2, 3}

    def grow():
        for i in members:
            members.add(i + 10)
    return x + 1, error_of(grow)


def deque_grows(x):
    items = collections.deque([1, 2])

    def grow():
        for i in items:
            items.append(i)
    return x + 1, error_of(grow)


def dict_key_comes_back(x):
    table = {1: 1}

    def change():
        for key in table:
            del table[key]
            table[key] = 0
    return x + 1, error_of(change)


def full_deque(x):
    items = collections.deque([1, 2], maxlen=2)
    items.append(3)
    return x + 1, list(items)


class Clears:
    def __init__(self, other):
        self.other = other

    def __eq__(self, other):
        self.other.clear()
        return NotImplemented


def equality_that_changes(x):
    a, b = [], []
    a.append(Clears(b))
    b.append(Clears(a))
    c, d = [], [1]
    c.append(Clears(c))
    return x + 1, a == b, c == d


def sort_that_changes(x):
    items = [2, 1]

    def key(value):
        items.append(value)
        return -value
    return x + 1, error_of(items.sort, key=key), len(items)


# ---- identity, texts, arguments
def same_tuple(x):
    a, empty = (1, 2), ()
    return x + 1, a * 1 is a, a[:] is a, a + () is a, () + a is a, a * 0 is empty


def texts(x):
    items, queue = [1], collections.deque()
    return x + 1, [error_of(items.__getitem__, slice(None, None, 0)), error_of(items.__setitem__, "a", 1),
                   error_of(items.__setitem__, 4, 1), error_of(lambda: queue["a"]), error_of({}.popitem, 1)[0],
                   error_of(items.sort, 1, 2)[0], error_of({}.popitem), len(error_of(lambda: [1] * 10**6))]


class NoNext:
    def __iter__(self):
        return self


def iter_of_no_iterator(x):
    makers = (iter, list, zip, enumerate, itertools.cycle, itertools.accumulate, itertools.pairwise)
    return x + 1, [error_of(make, NoNext()) for make in makers], error_of(itertools.pairwise, iterable="abc")[0]


def map_in_itself(x):
    def elements():
        yield next(again)
    again = map(str, elements())
    return x + 1, error_of(next, again)


def sets_in_sets(x):
    members = {frozenset("ab"), "c"}
    members.remove(set("ab"))
    members.discard({1})
    return x + 1, members, error_of(members.remove, {1}), {1} in members


class Members(set):
    pass


def copy_of_subclass(x):
    return x + 1, type(Members([1]).copy()).__name__


def views_of_unhashable(x):
    a, b = {1: [2]}, {1: [2], 2: []}
    return x + 1, a.items() == {1: [2]}.items(), a.items() < b.items(), a.keys() == [1], a.items() >= b.items()


def finished_generator(x):
    generator = (i for i in (1, 2))
    found = list(generator)
    return x + 1, found, type(generator).__name__, list(generator)


def names_twice_in_enums(x):
    class Twice(enum.Enum):
        first = also_first = enum.auto()
        second = enum.auto()

    class Alias(enum.Enum):
        red = enum.auto()
        crimson = red
        blue = enum.auto()

    def redefined():
        class Again(enum.Enum):
            red = 1
            red = 2     # noqa: F811

    def method_of_that_name():
        class Method(enum.Enum):
            red = 1

            def red(self):  # noqa: F811
                return self
    def updated():
        class Updated(enum.Enum):
            red = 1
            vars().update(red=2)
    return (x + 1, error_of(updated),
            [(i.name, i.value) for i in Twice], Twice.first is Twice.also_first, Alias.red is Alias.crimson,
            error_of(redefined), error_of(method_of_that_name))


def class_written_as_an_object(x):
    class Meta(type):
        def __setattr__(cls, name, value):
            object.__setattr__(cls, name, value)

    class Written(metaclass=Meta):
        pass
    def store():
        Written.a = 1
    return x + 1, error_of(setattr, Written, "a", 1), error_of(object.__delattr__, Written, "b"), error_of(store)


class Listed:
    text = "a"

    def method(self):
        return self


def items_of_a_class_after_a_break(x):
    found = []
    for name, member in Listed.__dict__.items():
        if name in ("text", "method"):
            found.append((name, repr(member) == repr(getattr(Listed, name))))
    return x + 1, found


class Noted(type):
    def __setattr__(cls, name, value):
        type.__setattr__(cls, name, (value, "noted"))

    def __delattr__(cls, name):
        raise LookupError(name)


class Kept(metaclass=Noted):
    pass


def class_that_notes_what_is_written(x):
    class Local(metaclass=Noted):
        pass

    def delete():
        del Local.a
    Kept.a = 1
    Local.a = 2
    Local.b = Kept.a
    return x + 1, Kept.a, Local.a, Local.b, error_of(delete)


def fields_without_an_end(x):
    given = {"a": 1}
    return x + 1, [error_of(lambda form=form: form % given) for form in ("%(n", "%(a)d %(n", "%(a)d %%(", "50%%")]


class Described:
    def __get__(self, instance, owner=None):
        return f"{instance is None} {owner.__name__}"


class Documented:
    __doc__ = Described()


def described_by_an_object(x):
    class Local:
        __doc__ = Described()
    return x + 1, Documented.__doc__, Documented().__doc__, Local.__doc__, Local().__doc__


def error_without_a_file(x):
    e, named = OSError("foo", "bar"), OSError(2, "b", "file")
    return x + 1, e, e.filename, e.__reduce__()[:2], named, named.__reduce__()[:2]


FOUND = [repr_of_itself, repr_of_dataclass_in_itself, iterators_that_have_ended, reversed_is_live, set_grows,
         deque_grows, dict_key_comes_back, full_deque, equality_that_changes, sort_that_changes, same_tuple, texts,
         iter_of_no_iterator, map_in_itself, sets_in_sets, copy_of_subclass, views_of_unhashable, finished_generator,
         class_written_as_an_object, items_of_a_class_after_a_break,
         fields_without_an_end, described_by_an_object, error_without_a_file]


def dataclass_below_local_classes(x):
    class First:
        pass

    class Second:
        pass
    made = dataclasses.make_dataclass("made", [("a", First), ("b", list[Second])], bases=(First, Second))
    found = made(1, 2)
    return (x + 1, isinstance(found, First), isinstance(found, Second), made.__mro__[1] is First,
            dataclasses.fields(made)[0].type is First)


def dataclass_with_slots_and_super(x):
    @dataclasses.dataclass(slots=True)
    class Slotted:
        a: int = 1

        def own(self):
            return __class__

        def above(self):
            return super().__init__.__name__
    return x + 1, Slotted().own() is Slotted, error_of(Slotted().above)


def documented_fields(x):
    point = collections.namedtuple("point", "a b")
    before = point.a.__doc__
    point.a.__doc__ = "the first"
    return x + 1, before, point.a.__doc__, point.b.__doc__


def methods_that_type_wraps(x):
    class Local:
        def __new__(cls):
            return object.__new__(cls)

        def __init_subclass__(cls):
            pass

        def __class_getitem__(cls, item):
            return item
    names = ("__new__", "__init_subclass__", "__class_getitem__")
    return x + 1, [type(Local.__dict__[name]) for name in names], Local[3], type(Local()) is Local


@pytest.mark.parametrize("function", [methods_that_type_wraps, documented_fields, names_twice_in_enums,
                                      dataclass_below_local_classes,
                                      class_that_notes_what_is_written,
                                      dataclass_with_slots_and_super], ids=lambda f: f.__name__)
def test_classes_made_in_the_call(function):
    check(function, torch.ones(2), again=False)


@pytest.mark.parametrize("function", FOUND, ids=lambda f: f.__name__)
def test_as_python(function):
    found = check(function, torch.ones(2))
    assert not any(c.stopped is not None and c.stopped.reason.name == "INTERNAL" for c in found.captures)
