"""What CPython's own tests (tests/support/cpython.py) have found about classes: each function here was wrong once."""
from __future__ import annotations

import enum
import functools
import itertools
import types
import typing
import warnings

import pytest
import torch
from harness import check
from test_found_by_cpython import Node, error_of

import sot

X = torch.arange(1.0, 4.0)


# ---- classes
class NotNone:
    def __init__(self):
        return 3    # noqa: PLE0101


class Proxy:
    def __init__(self, of):
        self.__of = of

    def __getattribute__(self, name):
        if name.startswith("_Proxy__"):
            return object.__getattribute__(self, name)
        return getattr(self.__of, name)


class SaysAnother:
    __class__ = int


def classes(x):
    proxy = Proxy(Node())
    return (x + 1, error_of(NotNone), isinstance(proxy, Node), isinstance(SaysAnother(), int),
            SaysAnother().__class__ is int, error_of(lambda: super(1, int)))  # type: ignore[arg-type]


class Sub(Node):
    def deleted(self):
        del self
        return super().other

    def another(self):
        return super().other


def bad_super(x):
    return x + 1, error_of(Sub().deleted), error_of(Sub.another, 3)


class Slots:
    __slots__ = ("a",)


def empty_slot(x):
    made = Slots()
    made.a = 1
    del made.a
    return x + 1, error_of(delattr, made, "a"), hasattr(made, "a")


class Table(dict):
    __setattr__ = dict.__setitem__      # type: ignore[assignment]


def setattr_of_c(x):
    table = Table()
    table.y = 42
    return x + 1, dict(table)


class Parent:
    pass


class Child(Parent):
    pass


class Irreversible:
    __reversed__ = None

    def __len__(self):
        return 1

    def __getitem__(self, i):
        return i


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def reversals(x):
    return (x + 1, Parent.__subclasses__() == [Child], error_of(reversed, Irreversible()),
            [c.name for c in reversed(Colour)])


class Hashed(int):
    asked = 0

    def __hash__(self):
        Hashed.asked += 1
        return int(self)


KEYS = [Hashed(i) for i in range(3)]


def hash_is_called_as_often(x):
    Hashed.asked = 0
    table = dict.fromkeys(KEYS)
    members = set(table)
    return x + 1, Hashed.asked, len(members)


class Twice:
    __match_args__ = ("x", "x")
    x = 1


class Listed:
    __match_args__ = ["x"]
    x = 1


def patterns(x):
    def match(value):
        match value:
            case Twice(1, 1) | Listed(1):
                return 1
        return 0
    return x + 1, error_of(match, Twice()), error_of(match, Listed())


def identity(f):
    return f


def call_of_call(x):
    @[identity][0].__call__.__call__
    def f(y):
        return y + 1
    return f(x)


def recorded_warnings(x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("text")
    return x + 1, len(found)


def cycle_of_contexts(x):
    a, b = ValueError(1), KeyError(2)
    a.__context__, b.__context__ = b, a
    try:
        try:
            raise a
        except ValueError:
            raise TypeError(3)      # noqa: B904
    except TypeError as e:
        return x + 1, repr(e.__context__)


class Finds(enum.Enum):
    RED = 1

    @classmethod
    def _missing_(cls, value):
        KEYS.append(value)
        return cls.RED


def enum_finds(x):
    KEYS[3:] = []
    found = Finds("x").name, Finds(1).name
    return x + 1, found, len(KEYS)


class BackKeys(dict):
    def keys(self):
        return reversed(list(dict.keys(self)))


def view_of_overridden(x):
    view = dict.keys(BackKeys(a=1, b=2))
    sot.graph_break()
    return x + 1, list(view)


def float_steps(x):
    steps = itertools.count(10, 2.5)
    return x + 1, [next(steps), next(steps)], iter({1}).__length_hint__()


FOUND = [float_steps, enum_finds, view_of_overridden, classes, bad_super, empty_slot, setattr_of_c, reversals,
         hash_is_called_as_often, patterns, call_of_call, recorded_warnings, cycle_of_contexts]


@pytest.mark.parametrize("function", FOUND, ids=lambda f: f.__name__)
def test_as_python(function):
    found = check(function, torch.ones(2))
    assert not any(c.stopped is not None and c.stopped.reason.name == "INTERNAL" for c in found.captures)


def test_what_one_object_was_found_under_may_be_gone():
    """To explain why an entry does not fit is no reason to raise."""
    def fn(x, found):
        return x + len(found["a"]) if found["a"] is found.get("b") else x

    shared = [1]
    translated = sot.to_static(fn)
    for found in ({"a": shared, "b": shared}, {"a": [1, 2]}, {"a": shared, "b": shared}):
        assert torch.equal(translated(torch.ones(2), found), fn(torch.ones(2), found))


class Slotted:
    __slots__ = ("a",)


def test_a_slot_that_was_empty():
    def fn(x, obj):
        return getattr(obj, "a", "empty"), x + 1

    translated, obj = sot.to_static(fn), Slotted()
    assert translated(torch.ones(2), obj)[0] == "empty"
    obj.a = 1
    assert translated(torch.ones(2), obj)[0] == 1
    del obj.a
    assert translated(torch.ones(2), obj)[0] == "empty"


def test_super_looks_past_the_class():
    class First:
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.first = True

    class Second(First):
        def __init_subclass__(cls, **kwargs):
            super(Second, cls).__init_subclass__(**kwargs)
            cls.second = True

    def fn(x):
        First.__init_subclass__.__func__(Second)
        return Second.first, hasattr(Second, "second"), x + 1

    check(fn, torch.ones(2))


def test_names_of_operators_in_errors():
    def fn(x):
        found = []
        value = None
        try:
            value **= 2
        except TypeError as e:
            found.append(str(e))
        try:
            value += 2
        except TypeError as e:
            found.append(str(e))
        return found, x + 1

    check(fn, torch.ones(2), graphs=1)


def test_the_bases_of_a_class_that_change():
    class A:
        pass

    class B(A):
        pass

    class C(A):
        pass

    def f(x):
        return x * (2 if C.__bases__ == (B,) else 3), C.__mro__[1].__name__
    translated = sot.to_static(f, backend="eager")
    for bases in ((A,), (B,), (A,)):
        C.__bases__ = bases
        assert str(translated(X)) == str(f(X))


def test_a_cause_that_is_no_exception():
    class MakesNone(BaseException):
        def __new__(*args):
            return None

    def f(x):
        try:
            raise IndexError from MakesNone
        except BaseException as e:
            return x + 1, type(e), type(e.__cause__)
    check(f, X)


def test_the_key_of_a_comparison():
    key = functools.cmp_to_key(lambda a, b: b - a)
    kind = type(key)

    def f(x):
        made = functools.cmp_to_key(lambda a, b: b - a)
        try:
            kind()
        except TypeError as e:
            return sorted([1, 3, 2], key=made), type(made) is kind, str(e), x + float(x.sum()), sorted([5, 7], key=made)
    check(f, X)


def test_equal_strings_that_are_two():
    def f(x):
        made = "ke"
        made += "y1"
        n = float(x.sum())
        literal = "key1"
        return x + n, made is literal, made == literal
    check(f, X)


def test_code_without_lines():
    def inner(x):
        return x + 1
    inner.__code__ = inner.__code__.replace(co_linetable=b"\xf8\xf8")

    def f(x):
        return inner(x) * 2
    check(f, X, graphs=1, breaks=0)


class Counted:
    def __call__(self, *args):
        return len(args)


class OddModule(types.ModuleType):
    __dict__ = "text"


def test_methods_of_any_callable_and_modules_without_a_namespace(monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")   # where an error of capture's own is not hidden by a fallback

    module = OddModule("odd")
    for function in (Counted(), int, functools.partial(max, 2)):
        method = types.MethodType(function, 1 if function is not int else "7")
        check(lambda x, method=method: (method(2), type(method).__name__, module.__dict__, x + 1), X)


class Asked(typing.Protocol):
    size: int


@pytest.mark.parametrize("cls", ["text", 3, Asked, (int, "text")], ids=str)
@pytest.mark.parametrize("test", [isinstance, issubclass])
def test_what_is_no_class_to_ask_for(monkeypatch, test, cls):
    monkeypatch.setenv("SOT_STRICT", "1")

    def f(x):
        return [error_of(test, value, cls) for value in (2.5, float, [x], Counted)], x + 1
    check(f, X)


def test_attributes_that_methods_have_of_their_own():
    def f(x):
        class A:
            def meth(self):
                return self

        class B:
            pass
        a, b = A(), B()
        b.meth = a.meth.__get__(b, B) if hasattr(a.meth, "__get__") else a.meth
        return b.meth() is a, b.meth.__reduce__()[1][1], a.meth.__eq__(a.meth), x + 1
    check(lambda x: [type(v).__name__ for v in f(x)] + [f(x)[0]], X, again=False)


def test_a_function_that_takes_all_attributes_of_a_class():
    def f(x):
        def wrapper(*args):
            pass
        functools.update_wrapper(wrapper, type)
        return wrapper.__name__, wrapper.__annotations__, sorted(wrapper.__dict__), x + 1
    check(f, X)


@pytest.mark.parametrize("name", ["__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__", "other"])
@pytest.mark.parametrize("value", ["a", 3, None, (), {}], ids=repr)
def test_attributes_of_a_function_take_some_values(name, value):
    def f(x):
        def g():
            pass
        try:
            setattr(g, name, value)
        except TypeError as e:
            return str(e), x + 1
        return getattr(g, name), sorted(g.__dict__), x + 1
    check(f, X)
