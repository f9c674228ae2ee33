"""What to_static promises for every kind of target."""

import copy
import functools
import gc
import inspect
import io
import pickle
import tomllib
import types
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from translating import X, check, scale

import sot
from sot import _hook


@sot.to_static
def by_name(x):
    return x + 1


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, shift=0):
        return self.linear(x).relu() + shift


# ---- functions ----------------------------------------------------------------------------------------


def test_a_function_is_captured_once_and_run_again(backend):
    translated = sot.to_static(scale, backend=backend)
    check(translated, scale, backend, X)
    check(translated, scale, backend, X, graphs=2, k=3)
    assert [c.name for c in translated.captures] == ["scale", "scale"]
    assert translated.captures[1].recompiled_because


def test_decorators_with_and_without_parentheses(backend):
    @sot.to_static
    def plain(x):
        return x.sin()

    @sot.to_static()
    def empty(x):
        return x.sin()

    @sot.to_static(backend=backend)
    def full(x):
        return x.sin()

    assert torch.equal(plain(X), X.sin()) and torch.equal(empty(X), X.sin())
    assert len(plain.captures) == len(empty.captures) == 1
    check(full, torch.sin, backend, X)


def test_a_translated_function_looks_like_the_function():
    translated = sot.to_static(scale)
    assert (translated.__name__, translated.__doc__, translated.__module__) == ("scale", "Scales.", "translating")
    assert inspect.signature(translated) == inspect.signature(scale)
    assert translated.__wrapped__ is scale and inspect.unwrap(translated) is scale
    assert translated.note == "a function's own attribute"
    assert "scale" in repr(translated)
    with pytest.raises(AttributeError, match="no_such"):
        translated.no_such
    assert "translator" not in functools.wraps(translated)(lambda: 0).__dict__


def test_lambdas_closures_partials_and_builtins(backend):
    k = 3
    check(sot.to_static(lambda x: x * k, backend=backend), lambda x: x * k, backend, X)
    check(sot.to_static(functools.partial(scale, k=5), backend=backend), lambda x: scale(x, 5), backend, X, graphs=2)
    check(sot.to_static(torch.sin, backend=backend), torch.sin, backend, X, graphs=3)


def test_any_argument_name_may_be_passed_by_keyword(backend):
    translated = sot.to_static(lambda self, args=1, fn=2: self + args + fn, backend=backend)
    assert torch.equal(translated(self=X, args=3, fn=4), X + 7)


def test_exceptions_are_the_functions_own_and_the_callback_is_gone_after_them(backend):
    @sot.to_static(backend=backend)
    def failing(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing(X)
    assert _hook.get_callback() is None


def test_a_function_translated_again_is_translated_from_the_original(backend):
    once = sot.to_static(scale)
    twice = sot.to_static(once, backend=backend)
    assert twice.__wrapped__ is scale
    check(twice, scale, backend, X)
    assert once.captures == []


def test_a_translated_function_inside_another_is_part_of_its_graph(backend):
    inner = sot.to_static(scale)
    check(sot.to_static(lambda x: inner(x).cos(), backend=backend), lambda x: scale(x).cos(), backend, X)


def test_pickled_by_name_and_copied_as_functions_are():
    assert pickle.loads(pickle.dumps(by_name)) is by_name
    assert copy.deepcopy(by_name) is copy.copy(by_name) is by_name
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(sot.to_static(lambda x: x))


# ---- methods and callable objects -----------------------------------------------------------------------


class Scaler:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k

    def method(self, x):
        return x.relu() * self.k

    def __call__(self, x):
        return x.relu() + self.k

    def __deepcopy__(self, memo):
        return Scaler(self.k)


def test_methods_of_classes_with_slots(backend):
    class Translated(Scaler):
        __slots__ = ()
        method = sot.to_static(Scaler.method, backend=backend)

    two, three = Translated(2), Translated(3)
    check(two.method, Scaler(2).method, backend, X)
    check(three.method, Scaler(3).method, backend, X, graphs=2)
    assert isinstance(two.method, types.MethodType) and two.method == two.method != three.method
    assert torch.equal(Translated.method(two, X), two.method(X))


def test_static_and_class_methods_in_either_order_of_decorators(backend):
    class Holder:
        k = 2

        @sot.to_static(backend=backend)
        @staticmethod
        def outside(x):
            return x.relu() * 2

        @staticmethod
        @sot.to_static(backend=backend)
        def inside(x):
            return x.relu() * 2

        @sot.to_static(backend=backend)
        @classmethod
        def class_outside(cls, x):
            return x.relu() * cls.k

        @classmethod
        @sot.to_static(backend=backend)
        def class_inside(cls, x):
            return x.relu() * cls.k

    for i, name in enumerate(["outside", "inside", "class_outside", "class_inside"]):
        check(getattr(Holder, name), scale, backend, X, graphs=2 * i + 1)
        check(getattr(Holder(), name), scale, backend, X + 1, graphs=2 * i + 1)
        backend.graphs.append(None)


def test_bound_methods_and_callable_objects(backend):
    check(sot.to_static(Scaler(2).method, backend=backend), scale, backend, X)
    check(sot.to_static(Scaler(2), backend=backend), lambda x: x.relu() + 2, backend, X, graphs=2)


def test_what_is_bound_to_an_object_is_copied_with_it():
    bound = sot.to_static(Scaler(2).method)
    copied = copy.deepcopy(bound)
    assert copied.__wrapped__.__self__ is not bound.__wrapped__.__self__
    assert torch.equal(copied(X), bound(X))


def test_properties_and_cached_results_work_around_a_translated_function(backend):
    class Holder:
        @property
        @sot.to_static(backend=backend)
        def doubled(self):
            return X * 2

    assert torch.equal(Holder().doubled, X * 2)


# ---- modules --------------------------------------------------------------------------------------------


def test_a_module_stays_what_it_was(backend):
    model = Layer()
    keys, attributes, wanted = list(model.state_dict()), set(dir(model)), model(X)
    translated = sot.to_static(model, backend=backend)
    assert translated is model and type(model) is Layer
    assert list(model.state_dict()) == keys and set(dir(model)) == attributes
    check(model, lambda x: wanted, backend, X)
    check(model, model.forward, backend, X, graphs=2, shift=1)


def test_training_gives_the_gradients_of_the_plain_module(backend):
    plain = Layer()
    translated = sot.to_static(copy.deepcopy(plain), backend=backend)
    for model in (plain, translated):
        model(X).sum().backward()
    assert torch.equal(plain.linear.weight.grad, translated.linear.weight.grad)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model)), lambda model: saved(model)],
    ids=["deepcopy", "copy", "pickle", "torch.save"],
)
def test_a_copy_of_a_translated_module_is_plain(copied, backend):
    model = sot.to_static(Layer(), backend=backend)
    other = copied(model)
    assert torch.equal(other(X), model.forward(X)) and backend.graphs == []
    check(sot.to_static(other, backend=backend), model.forward, backend, X)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


class KeepsAll(Layer):
    def __getstate__(self):
        return self.__dict__.copy()


def test_a_copy_is_plain_even_if_the_class_keeps_every_attribute(backend):
    model = sot.to_static(KeepsAll(), backend=backend)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(X), model.forward(X)) and backend.graphs == []


def test_hooks_of_a_module_run(backend):
    model = sot.to_static(Layer(), backend=backend)
    model.register_forward_hook(lambda module, args, output: output * 2)
    assert torch.equal(model(X), model.forward(X) * 2)


def test_a_translated_module_is_freed_when_its_last_reference_goes(backend):
    gc.disable()
    try:
        model = sot.to_static(Layer(), backend=backend)
        gone = weakref.ref(model)
        del model
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_what_was_captured_goes_with_what_it_was_captured_for(backend):
    def fn(x):
        return x + 1

    for make, code in ((lambda: sot.to_static(fn), fn.__code__),
                       (lambda: sot.to_static(Layer()), Layer.forward.__code__)):
        translated = make()
        translated(X)
        assert len(_hook.get_entries(code)) == 1
        del translated
        gc.collect()
        assert _hook.get_entries(code) == ()


def test_a_subclass_of_module_has_its_forward_translated(backend):
    @sot.to_static(backend=backend)
    class Decorated(Layer):
        pass

    model = Decorated()
    assert isinstance(Decorated, type) and "forward" not in vars(Layer())
    check(model, lambda x: Layer.forward(model, x), backend, X)
    other = copy.deepcopy(model)
    assert torch.equal(other(X), model(X))


def test_containers_and_shared_submodules(backend):
    layer = Layer()
    model = nn.Sequential(layer, nn.ReLU(), layer)
    wanted = model(X)
    check(sot.to_static(model, backend=backend), lambda x: wanted, backend, X)


# ---- the package ----------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert sot.__version__ == project["project"]["version"]


def test_everything_public_is_there_and_documented():
    assert {"to_static", "not_to_static", "ignore_module", "InputSpec", "graph_break", "explain", "reset",
            "list_backends", "register_backend", "CaptureError", "SotError"} <= set(sot.__all__)
    assert all(getattr(sot, name).__doc__ for name in sot.__all__)
    assert {"auto", "eager", "inductor"} <= set(sot.list_backends())
