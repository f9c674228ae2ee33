"""Calls of translated functions and modules bind their arguments as Python does, without a frame of the function."""
from __future__ import annotations

import pytest
import torch
from harness import Counter
from torch import nn

import sot
from sot import _hook

X = torch.arange(4.0)


def plain(x, by=2.0):
    return x * by


def positional_only(x, by=2.0, /, more=1.0):
    return x * by + more


def keyword_only(x, *, by=2.0, more):
    return x * by + more


def many(x, *rest, by=2.0):
    return x * by + len(rest) + sum(rest)


def named(x, **options):
    return x * len(options) + options.get("by", 1.0)


def everything(x, a=1.0, *rest, by, **options):
    return x * a + len(rest) * by + options.get("more", 0.0)


CALLS = {
    "a default": (plain, (X,), {}),
    "a keyword": (plain, (X,), {"by": 3.0}),
    "only keywords": (plain, (), {"by": 3.0, "x": X}),
    "after positional ones": (positional_only, (X, 4.0), {"more": 2.0}),
    "keyword only, one by default": (keyword_only, (X,), {"more": 2.0}),
    "more than there are names for": (many, (X, 1, 2, 3), {"by": 1.5}),
    "no more than there are names for": (many, (X,), {}),
    "names that the function does not know": (named, (X,), {"by": 3.0, "other": 1}),
    "no names": (named, (X,), {}),
    "all kinds at once": (everything, (X, 2.0, 7, 8), {"by": 0.5, "more": 1.0, "other": None}),
}
WRONG = {
    "too many": (plain, (X, 1.0, 2.0), {}),
    "one missing": (plain, (), {}),
    "a keyword that is not known": (plain, (X,), {"bye": 1.0}),
    "one twice": (plain, (X, 2.0), {"by": 1.0}),
    "by name what has none": (positional_only, (), {"x": X}),
    "a keyword missing": (keyword_only, (X,), {}),
}


class Under(nn.Module):
    """The function is ``forward`` of a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, *rest, **options):
        return self.function(x, *rest, **options)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arguments_are_bound_as_python_binds_them(call):
    function, args, kwargs = call
    translated = sot.to_static(function, backend=Counter())
    for _ in range(4):
        assert torch.equal(translated(*args, **kwargs), function(*args, **kwargs))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_module_takes_the_same_arguments(call):
    function, args, kwargs = call
    model = sot.to_static(Under(function), backend=Counter())
    kwargs = {"x": args[0], **kwargs} if args and len(args) == 1 and function is plain else kwargs
    args = args[1:] if "x" in kwargs and len(args) == 1 else args
    for _ in range(4):
        assert torch.equal(model(*args, **kwargs), function(*args, **kwargs))


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_arguments_that_do_not_fit_raise_what_python_raises(call):
    function, args, kwargs = call
    translated = sot.to_static(function, backend=Counter())
    translated(X, more=1.0) if function is keyword_only else translated(X)
    with pytest.raises(TypeError) as expected:
        function(*args, **kwargs)
    with pytest.raises(TypeError) as found:
        translated(*args, **kwargs)
    assert str(found.value) == str(expected.value)


def test_new_defaults_are_seen():
    def function(x, by=2.0, *, more=1.0):
        return x * by + more
    translated = sot.to_static(function, backend=Counter())
    for defaults, keywords in (((2.0,), {"more": 1.0}), ((3.0,), {"more": 1.0}), ((3.0,), {"more": 5.0})):
        function.__defaults__, function.__kwdefaults__ = defaults, keywords
        assert all(torch.equal(translated(X), function(X)) for _ in range(3))


def test_named_arguments_are_a_dict_of_the_calls_own():
    def function(x, **options):
        options["n"] = options.get("n", 0) + 1
        return x + options["n"], options
    translated, given = sot.to_static(function, backend=Counter()), {"n": 1}
    results = [translated(X, **given)[1] for _ in range(3)]
    assert given == {"n": 1} and results == [{"n": 2}] * 3
    assert len({id(found) for found in results}) == 3


@pytest.mark.parametrize("kwargs", [{}, {"by": 3.0}], ids=["positional", "keyword"])
def test_a_warm_call_makes_no_frame(kwargs):
    translated = sot.to_static(Under(plain), backend=Counter())
    for _ in range(3):
        translated(X, **kwargs)
    before = _hook.stats()
    for _ in range(5):
        translated(X, **kwargs)
    after = _hook.stats()
    assert {key: after[key] - before[key] for key in after} == {"hooked": 5, "hits": 5, "misses": 0, "plain": 0}
