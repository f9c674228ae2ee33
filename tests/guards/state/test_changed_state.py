"""State that a function reads, and that changes between calls: attributes of enums, registries, signatures."""
from __future__ import annotations

import copy
import copyreg
import enum
import functools
import inspect

import pytest
import torch
from harness import same

import sot

X = torch.tensor([1.0, 2.0])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


def check_through(make, backend):
    """Compare calls before and after each change with plain Python. ``make`` returns a function and the changes."""
    (plain, changes), (fn, same_changes) = make(), make()
    captured = sot.to_static(fn, backend=backend)
    for change, same_change in zip([None, *changes], [None, *same_changes], strict=True):
        if change is not None:
            change()
            same_change()
        for _ in range(2):
            assert same(plain(X), captured(X)) is None


@BACKENDS
def test_attributes_of_an_enums_members(backend):
    def make():
        class Stage(enum.Enum):
            FIRST = 1
            LAST = 2

            def __init__(self, value):
                self.weight = value * 10
                self.seen = []

        def f(x):
            Stage.LAST.seen.append(len(Stage.LAST.seen))
            label = getattr(Stage.LAST, "label", "none")
            return x * Stage.FIRST.weight, label, list(Stage.LAST.seen), Stage.FIRST.value
        return f, [lambda: setattr(Stage.FIRST, "weight", 99), lambda: setattr(Stage.LAST, "label", "end"),
                   lambda: delattr(Stage.LAST, "label"), lambda: Stage.LAST.seen.clear(),
                   lambda: setattr(Stage.FIRST, "_value_", 5)]
    check_through(make, backend)


@BACKENDS
def test_a_counter_in_an_enums_member(backend):
    def make():
        class Stage(enum.Enum):
            FIRST = 1
        Stage.FIRST.calls = 0

        def f(x):
            Stage.FIRST.calls += 1
            return x * Stage.FIRST.calls
        return f, [lambda: setattr(Stage.FIRST, "calls", 40)]
    check_through(make, backend)


@BACKENDS
def test_a_class_whose_copies_are_registered(backend):
    def make():
        class Settings:
            def __init__(self, scale=1):
                self.scale = scale
        settings = Settings(3)

        def f(x):
            return x * copy.copy(settings).scale, copy.deepcopy(settings).scale
        return f, [lambda: copyreg.pickle(Settings, lambda s: (Settings, (77,))),
                   lambda: copyreg.dispatch_table.pop(Settings)]
    check_through(make, backend)


@BACKENDS
def test_what_gives_a_function_or_class_its_signature(backend):
    def make():
        def inner(a):
            pass

        @functools.wraps(inner)
        def outer(*rest):
            pass

        class Made:
            def __init__(self, a, b):
                pass

        def f(x):
            return x * len(inspect.signature(outer).parameters), str(inspect.signature(Made))
        return f, [lambda: setattr(outer, "__wrapped__", lambda a, b, c: None), lambda: delattr(outer, "__wrapped__"),
                   lambda: setattr(outer, "__signature__", inspect.Signature()),
                   lambda: setattr(Made, "__init__", lambda self: None),
                   lambda: setattr(Made, "__new__", lambda cls, p, q: object.__new__(cls)),
                   lambda: setattr(Made, "__signature__", inspect.Signature())]
    check_through(make, backend)


@BACKENDS
def test_names_and_documentation_of_a_class(backend):
    def make():
        class Made:
            """First."""
        made = Made()

        def f(x):
            return x + 1, type(made).__name__, Made.__doc__, Made.__module__, Made.__qualname__, repr(Made)
        return f, [lambda name=name: setattr(Made, name, "other")
                   for name in ("__name__", "__doc__", "__module__", "__qualname__")]
    check_through(make, backend)


@BACKENDS
def test_annotations_of_a_class(backend):
    def make():
        class Made:
            first: int

        def f(x):
            return x + 1, [*Made.__annotations__]
        return f, [lambda: Made.__annotations__.update(last=str),
                   lambda: setattr(Made, "__annotations__", {"new": int})]
    check_through(make, backend)


@BACKENDS
def test_a_method_that_c_calls_when_it_copies_a_dict(backend):
    def make():
        class Table(dict):
            def __getitem__(self, key):
                return 8
        table = Table(a=1)

        def f(x):
            return x + 1, table | {"b": 2}, {**table}
        return f, [lambda: setattr(Table, "__iter__", lambda self: iter("z")), lambda: delattr(Table, "__iter__")]
    check_through(make, backend)
