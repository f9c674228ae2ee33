"""A list asks an iterable for its length before it takes the elements. That may be code of a class."""
import pytest
import torch
from harness import check, check_by


class Telling:
    def __len__(self):
        print("length")
        return 2


class ListOf(Telling, list):
    pass


class TupleOf(Telling, tuple):
    pass


class DictOf(Telling, dict):
    pass


class SetOf(Telling, set):
    pass


class Iterable(Telling):
    def __iter__(self):
        print("iterator")
        return iter((1, 2))


class Refusing(Iterable):
    def __len__(self):
        raise ValueError("its length is not known")


class NotTelling(Iterable):
    def __len__(self):
        raise TypeError("it has no length")


class Hinting(Iterable):
    def __len__(self):
        raise TypeError("it has no length")

    def __length_hint__(self):
        print("hint")
        return 3


class WrongHint(Hinting):
    def __length_hint__(self):
        return "three"


def spread(*values):
    return values


USES = {
    "list": list, "a list display": lambda v: [*v], "tuple": tuple, "a tuple display": lambda v: (0, *v),
    "a set display": lambda v: {*v}, "extend": lambda v: [].extend(v), "+=": lambda v: [0].__iadd__(v),
    "sorted": sorted, "a call": lambda v: spread(*v), "a call with more": lambda v: spread(0, *v), "set": set,
    "frozenset": frozenset, "a list made again": lambda v: [].__init__(v), "max": max,
    "a loop": lambda v: [i for i in v],
    "bytes": bytes, "fromkeys": dict.fromkeys, "reversed": lambda v: [*reversed(v)],
    "modules": lambda v: list(torch.nn.ModuleList([torch.nn.ReLU()])),
}
MAKERS = {
    "list": lambda: ListOf((1, 2)), "tuple": lambda: TupleOf((1, 2)), "dict": lambda: DictOf({1: 2}),
    "set": lambda: SetOf((1, 2)),
    **{kind.__name__: kind for kind in (Iterable, Refusing, NotTelling, Hinting, WrongHint)},
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("use", USES)
def test_the_length_is_asked_as_in_python(use, kind):
    def program(x, v):
        y = x + 1
        made = USES[use](v)
        print("after")
        return y, len(repr(made)) if use != "modules" else len(made)
    check(program, torch.ones(2), MAKERS[kind]())


def test_a_list_of_an_iterable_is_in_the_graph():
    check_by("eager", lambda x, v: x * sum(list(v)), torch.ones(2), Iterable(), breaks=0)
