"""``__getattr__`` is also called when the code of a descriptor raises AttributeError."""
from __future__ import annotations

import functools

import torch
from harness import Programs, check

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


class Raises:
    def __get__(self, instance, owner):
        raise AttributeError("a descriptor without data")


class Asked:
    __slots__ = ("__dict__", "empty", "held")
    without_data = Raises()

    @property
    def computed(self):
        raise AttributeError("a property")

    @property
    def through_another(self):
        return self.computed, self.unknown

    @functools.cached_property
    def cached(self):
        raise AttributeError("a cached property")

    def __getattr__(self, name):
        if name == "refused":
            raise AttributeError(f"no {name}")
        return f"asked for {name}"


ASKED = Asked()


@program
def attributes(x):
    made = Asked()
    made.held = x * 2
    return made.held, made.empty, made.computed, made.through_another, made.cached, made.without_data


@program
def of_an_object_that_was_there(x):
    return ASKED.computed, ASKED.empty, ASKED.cached, x + 1


@program
def by_builtins(x):
    return getattr(ASKED, "computed", 3), hasattr(ASKED, "computed"), hasattr(ASKED, "refused"), x + 1


class Layer(torch.nn.Module):
    @property
    def computed(self):
        return self.nothing


LAYER = Layer()


@program
def the_text_of_modules(x):
    try:
        return LAYER.computed
    except AttributeError as e:
        return str(e), x + 1


class Chained:
    @property
    def computed(self):
        raise AttributeError("the first one is gone")

    def __getattr__(self, name):
        raise KeyError(name)


@program
def the_context_of_what_it_raises(x):
    try:
        return Chained().computed
    except KeyError as e:
        return e, e.__context__, x + 1


class Both(Chained):
    def __getattribute__(self, name):
        try:
            return object.__getattribute__(self, name)
        except AttributeError as e:
            return str(e)


@program
def without_it(x):
    """``object.__getattribute__`` does not call ``__getattr__``."""
    return Both().unknown, Both().computed, x + 1
