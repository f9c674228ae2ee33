"""Calls whose arguments do not fit: what CPython raises, as a whole capture."""
from __future__ import annotations

import torch
from harness import Programs, check

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


class Mapping:
    """What it says while the call reads it is the program's own code."""

    def __init__(self, log, error=None):
        self.log, self.error = log, error

    def keys(self):
        self.log.append("keys")
        return iter(["p", "q"])

    def __getitem__(self, key):
        self.log.append(key)
        if self.error is not None:
            raise self.error
        return key


def taking(a, b=1, **more):
    return a, b, more


class Made:
    def __init__(self, a=1):
        self.a = a

    def method(self, a=1, **more):
        return a


LAYER = torch.nn.Linear(4, 4)


def texts(*calls):
    found = []
    for call in calls:
        try:
            found.append(call())
        except (TypeError, KeyError) as e:
            found.append((type(e).__name__, str(e), e.__context__ is None))
    return found


@program
def keywords_given_twice(x):
    def made(**more):
        return more
    return x + 1, texts(
        lambda: taking(a=1, **{"a": 2}), lambda: taking(**{"a": 1}, a=2), lambda: taking(**{"a": 1}, **{"a": 2}),
        lambda: Made(a=1, **{"a": 2}), lambda: Made().method(a=1, **{"a": 2}), lambda: made(x=x, **{"x": 2}),
        lambda: dict(a=1, **{"a": 2}), lambda: [].append(a=1, **{"a": 2}), lambda: max(key=1, **{"key": 2}),
        lambda: torch.sum(x, dim=0, **{"dim": 0}), lambda: x.sum(dim=0, **{"dim": 0}),
        lambda: torch.nn.Parameter(x).sum(dim=0, **{"dim": 0}), lambda: LAYER(input=x, **{"input": x}))


@program
def what_is_no_mapping_or_iterable(x):
    return x + 1, texts(lambda: taking(**3), lambda: taking(*3), lambda: taking(**{"a": 1}, **None),
                        lambda: Made(*None), lambda: x.sum(**[1]), lambda: str.join(*None),
                        lambda: taking(**{"a": 1}, **[("b", 2)]))


@program
def mappings_of_the_program(x):
    log = []
    return x + 1, log, texts(
        lambda: taking(1, **Mapping(log)), lambda: taking(1, **Mapping(log), **Mapping(log)),
        lambda: taking(1, **{"q": 1}, **Mapping(log)), lambda: taking(1, **Mapping(log, AttributeError("own"))),
        lambda: taking(**{"a": 1, 2: 3}, **{2: 4}))


def test_a_key_error_of_the_program():
    def failing(x):
        log = []
        return x + 1, log, texts(lambda: taking(1, **Mapping(log, KeyError("own"))),
                                 lambda: taking(1, **Mapping(log, KeyError("own", 2))))
    check(failing, X)


@program
def names_of_methods(x):
    class Mine(list):
        pass
    return x + 1, [f.__qualname__ for f in (x.sum, torch.nn.Parameter(x).sum, [].append, Mine().append, dict.fromkeys,
                                            "a".join, (1).__add__, x.__add__, Made().method)]
