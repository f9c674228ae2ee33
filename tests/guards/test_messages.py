"""Messages about guards show values that are short, and never ask an object of the program how it looks."""
from __future__ import annotations

import collections
import enum
import functools
import types
import weakref

import numpy as np
import pytest
import torch

import sot
from sot.guards.guards import short
from sot.guards.origin import Arg
from sot.guards.tensor_guards import TensorGuard

X = torch.arange(6.0)


class Loud:
    def __repr__(self):
        return "loud"
    __str__ = __repr__


@pytest.mark.parametrize("make", [
    lambda: collections.defaultdict(list, a=[Loud()]), lambda: collections.deque([Loud()]), lambda: [Loud()],
    lambda: collections.OrderedDict(a=Loud()), lambda: types.SimpleNamespace(a=Loud()),
    lambda: functools.partial(print, Loud()), lambda: types.MappingProxyType({"a": Loud()}), lambda: slice(Loud()),
    lambda: {"a": Loud()}.items(), lambda: weakref.ref(KEPT), lambda: np.array([Loud()]),
    lambda: torch.nn.Sequential(torch.nn.ReLU()), lambda: iter([Loud()]), lambda: [[[[[1]]]]], lambda: [*range(50)],
    lambda: collections.defaultdict(list, a=torch.zeros(3)), lambda: enum.Enum("Choice", {"A": Loud()}).A,
])
def test_a_message_does_not_ask_for_the_repr_of_what_may_be_long_or_the_programs(make):
    assert short(make()).startswith("an object of class ")


KEPT = Loud()


@pytest.mark.parametrize(("value", "text"), [
    (1.5, "1.5"), ("a", "'a'"), ([1, (2, None)], "[1, (2, None)]"), ({"a": 1}, "{'a': 1}"), (range(3), "range(0, 3)"),
    (torch.float32, "torch.float32"), (np.float32(2), repr(np.float32(2))), (np.arange(3), "array([0, 1, 2])"),
    (np.dtype("int8"), "dtype('int8')"), (torch.Size([2, 3]), "torch.Size([2, 3])"),
    (torch.zeros(2), "a float32 tensor of shape (2,) on cpu"), (len, "builtin_function_or_method len"),
    (enum.Enum("Choice", {"A": 1}).A, "<Choice.A: 1>"),
])
def test_a_message_shows_a_short_value(value, text):
    assert short(value) == text


class Choice(enum.Enum):
    A = Loud()


@pytest.mark.parametrize(("key", "text"), [
    (Choice.A, "Choice.A"), ((1, "a"), "(1, 'a')"), ((1,), "(1,)"), (KEPT, "a Loud"), (int, "int"),
    (len, "a builtin_function_or_method"),
    (torch.nn.Parameter(torch.ones(1)), "a Parameter"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_a_guard_names_a_key_without_its_repr(key, text):
    table = {key: 2.0}
    explanation = sot.explain(lambda x: x * table[key])(X)
    assert f"table[{text}]" in str([str(record.guard) for capture in explanation.captures for record in capture.guards])


def test_the_warning_at_the_limit_of_captures_has_the_programs_names_in_its_advice_too():
    @sot.not_to_static
    def made(n):
        return torch.ones(n, 3)

    def f(x, n):
        return x + torch.relu(made(n)).sum()
    translated = sot.to_static(f, dynamic=False)
    with pytest.warns(UserWarning) as told:
        for n in range(2, 12):
            assert torch.equal(translated(X, n), f(X, n))
    message, = (str(warning.message) for warning in told)
    assert "made(n) is a float32 tensor" in message and "Let made(n).shape[0] vary" in message
    assert "__stack" not in message


def test_a_guard_names_the_sizes_of_a_view_that_autograd_refuses_to_use():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args, kwargs or {})

    base = torch.ones(3, 3, requires_grad=True).clone().as_subclass(Own)
    view = base.unbind()[0]
    base[1:1].add_(1)
    guard = TensorGuard.of(Arg(0, "v"), torch.ones(2).as_subclass(Own))
    assert "v.shape[0] was 2" in guard.explain((view,))
