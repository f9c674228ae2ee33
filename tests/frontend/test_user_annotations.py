"""What not_to_static, graph_break and ignore_module promise: Python runs what is marked, and the rest is captured."""

import copy
import pickle
import types

import pytest
import torch
from torch import nn
from translating import X, check, scale

import sot
from sot import _hook
from sot.support import user_annotations


@sot.not_to_static
def marked_by_name(x):
    return x - 1


def test_a_marked_function_is_pickled_by_name_and_copied_as_functions_are():
    assert pickle.loads(pickle.dumps(marked_by_name)) is marked_by_name
    assert copy.deepcopy(marked_by_name) is marked_by_name
    assert "marked_by_name" in repr(marked_by_name)


def test_not_to_static_breaks_at_the_call(backend):
    seen = []

    @sot.not_to_static
    def helper(x):
        seen.append(_hook.get_callback() is not None)
        return x + 1

    translated = sot.to_static(lambda x: helper(x.relu()).cos(), backend=backend)
    check(translated, lambda x: (x.relu() + 1).cos(), backend, X, graphs=2)
    assert translated.captures[0].stopped.reason.name == "NOT_TO_STATIC"
    assert "helper" in translated.captures[0].stopped.message


def test_not_to_static_on_methods_modules_and_classes_of_modules(backend):
    class Holder:
        @sot.not_to_static
        def method(self, x):
            return x.relu()

        @sot.not_to_static
        @staticmethod
        def static(x):
            return x.relu()

    assert torch.equal(Holder().method(X), X.relu()) and torch.equal(Holder.static(X), X.relu())
    layer = sot.not_to_static(nn.ReLU())
    assert type(layer) is nn.ReLU and user_annotations.is_not_to_static(layer)
    assert user_annotations.is_not_to_static(Holder().method)
    assert sot.not_to_static(type("Marked", (nn.ReLU,), {}))()(X).equal(X.relu())
    check(sot.to_static(lambda x: layer(x.sin()) + 1, backend=backend), lambda x: x.sin().relu() + 1, backend, X,
          graphs=2)


def test_a_marked_function_runs_with_the_hook_off():
    inner = sot.to_static(scale)
    assert torch.equal(sot.not_to_static(inner)(X), scale(X))
    assert torch.equal(sot.not_to_static(lambda x: inner(x))(X), scale(X))
    assert inner.captures == []


def test_graph_break_breaks_and_does_nothing_else(backend):
    def fn(x):
        y = x.relu()
        sot.graph_break()
        return y.cos()

    translated = sot.to_static(fn, backend=backend)
    check(translated, fn, backend, X, graphs=2)
    assert translated.captures[0].stopped.reason.name == "USER_BREAK"


@pytest.fixture(autouse=True)
def nothing_ignored():
    yield
    user_annotations.IGNORED_MODULES.clear()


@pytest.fixture
def helpers():
    module = types.ModuleType("some_package.helpers")
    exec(compile("def twice(x):\n    return x * 2\n", "helpers.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("given", ["some_package", "some_package.helpers", ["os", "some_package"], "the module"])
def test_functions_of_ignored_modules_are_called_by_python(given, helpers, backend):
    sot.ignore_module(helpers if given == "the module" else given)
    twice = helpers.twice
    translated = sot.to_static(lambda x: twice(x.sin()).cos(), backend=backend)
    check(translated, lambda x: (x.sin() * 2).cos(), backend, X, graphs=2)


def test_ignoring_is_by_whole_names():
    sot.ignore_module("some_package.one")
    assert user_annotations.is_ignored("some_package.one") and user_annotations.is_ignored("some_package.one.deep")
    assert not any(map(user_annotations.is_ignored, ["some_package", "some_package.one_more", "", None]))
