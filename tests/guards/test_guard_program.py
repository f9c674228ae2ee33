"""The guard program in C: a change of anything that was captured is seen by the next call, and an unchanged model
costs no second look.

Each test of a change warms a module up until the program knows it by its words alone (and looks at no dict where it
is told of changes), changes it, and compares the next call with plain Python. C and the guards' own ``explain`` must
agree on every state of a program: the last part makes up states.
"""
from __future__ import annotations

import copy
import sys
import types

import pytest
import torch
from harness import Counter, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import sot
from sot import _hook
from sot.frontend.api import translation_of
from sot.guards.tensor_guards import TensorGuard

X = torch.arange(6.0).reshape(2, 3)
FACTOR = 3.0


def scaled(x, by=2.0):
    return x * by


def by_closure(factor):
    def apply(x):
        return x + factor
    return apply


class Inner(nn.Module):
    slope = 0.5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))
        self.options = {"power": 2, "names": ["a", "b"]}
        self.sizes = (3, 3)

    def forward(self, x):
        y = self.linear(x) * self.slope + self.offset
        return y ** self.options["power"] + len(self.options["names"]) + self.sizes[0]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Dropout(0.0), nn.Tanh()])
        self.table = nn.ParameterDict({"w": nn.Parameter(torch.full((3,), 2.0))})
        self.added = by_closure(1.0)
        self.scaled = scaled
        self.scale = 1.5

    def forward(self, x):
        x = self.scaled(self.inner(x)) * self.scale * FACTOR
        for layer in self.layers:
            x = layer(x)
        x = self.added(x) * self.table["w"]
        return x * 2 if self.training else x


def entries_of(function):
    return _hook.get_entries(function.__code__)


def warm(model):
    backend = Counter()
    sot.to_static(model, backend=backend)
    for _ in range(8):
        model(X)
    assert len(backend.graphs) == 1
    skipped = entries_of(type(model).forward)[0].statistics()["skipped"]
    assert skipped > (20 if sys.version_info >= (3, 12) else 5), "it has got warm"
    return backend


@pytest.fixture
def versions():
    """CPython 3.13 and newer give a class at most 1,000 versions, and each trace of torch.fx changes nn.Module twice.
    Guards on a class without a version are checked at every call.
    """
    if sys.version_info >= (3, 13):
        nn.Module.forward       # a lookup gives the class a version, if there is one left
        if pytest.importorskip("_testcapi").type_get_version(nn.Module) == 0:
            pytest.skip("this process has changed torch.nn.Module too often")


# ---- what is seen
def set_global(value):
    globals()["FACTOR"] = value


CHANGES = {
    "a replaced parameter": lambda m: setattr(m.inner.linear, "weight", nn.Parameter(torch.ones(3, 3))),
    "a parameter of another shape": lambda m: setattr(m.inner.linear, "bias", nn.Parameter(torch.ones(1))),
    "a parameter that is dropped": lambda m: setattr(m.inner.linear, "bias", None),
    "a parameter in a ParameterDict": lambda m: m.table.update({"w": nn.Parameter(torch.ones(3, 1))}),
    "a hook": lambda m: m.inner.linear.register_forward_hook(lambda mod, args, out: out + 1),
    "a hook before": lambda m: m.layers[0].register_forward_pre_hook(lambda mod, args: (args[0] + 1,)),
    "a backward hook": lambda m: m.layers[0].register_full_backward_hook(lambda mod, a, b: None),
    "a forward of an instance": lambda m: setattr(m.inner, "forward", lambda x: x - 1),
    "a method of the class": lambda m: setattr(Inner, "forward", lambda self, x: x - 2),
    "an attribute of the class": lambda m: setattr(Inner, "slope", 0.25),
    "an attribute that hides the class's": lambda m: setattr(m.inner, "slope", 0.75),
    "a property that hides an attribute": lambda m: setattr(Model, "scale", property(lambda self: 4.0)),
    "another class": lambda m: setattr(m.layers[2], "__class__", nn.Sigmoid),
    "a moved model": lambda m: m.double(),
    "requires_grad_": lambda m: m.inner.linear.weight.requires_grad_(False),
    "requires_grad_ of a buffer": lambda m: m.inner.offset.requires_grad_(True),
    "data of another dtype": lambda m: setattr(m.inner.linear.weight, "data", torch.ones(3, 3, dtype=torch.float64)),
    "data of other strides": lambda m: setattr(m.inner.linear.weight, "data", m.inner.linear.weight.data.t()),
    "a buffer that is transposed": lambda m: m.inner.offset.unsqueeze_(0),
    "a buffer that is resized": lambda m: m.inner.offset.resize_(1).fill_(1.0),
    "a buffer that is set": lambda m: m.inner.offset.set_(torch.full((1,), 7.0)),
    "eval": lambda m: m.eval(),
    "a submodule's mode": lambda m: m.layers[1].eval(),
    "a rebound global": lambda m: set_global(5.0),
    "a changed default": lambda m: setattr(scaled, "__defaults__", (6.0,)),
    "a changed code": lambda m: setattr(scaled, "__code__", (lambda x, by=2.0: x - by).__code__),
    "a changed cell": lambda m: setattr(m.added.__closure__[0], "cell_contents", 9.0),
    "another function": lambda m: setattr(m, "added", by_closure(1)),
    "an attribute past __setattr__": lambda m: m.__dict__.update(scale=8.0),
    "an attribute that is deleted": lambda m: (setattr(Model, "scale", 8.5), delattr(m, "scale")),
    "another __dict__": lambda m: setattr(m.inner, "__dict__", vars(m.inner) | {"options": {"power": 3, "names": []}}),
    "an item of a dict": lambda m: m.inner.options.update(power=3),
    "a longer list": lambda m: m.inner.options["names"].append("c"),
    "another tuple": lambda m: setattr(m.inner, "sizes", (4, 3)),
    "a number of another type": lambda m: setattr(m, "scale", 2),
    "a replaced submodule": lambda m: setattr(m, "inner", nn.Linear(3, 3)),
    "a submodule replaced in a list": lambda m: m.layers.__setitem__(2, nn.Sigmoid()),
    "a list of more modules": lambda m: m.layers.append(nn.Sigmoid()),
    "a buffer registered anew": lambda m: m.inner.register_buffer("offset", torch.full((3,), 4.0, dtype=torch.float64)),
    "a submodule that is tied": lambda m: setattr(m.layers[0], "weight", m.inner.linear.weight),
}


@pytest.fixture
def restored():
    """What the changes change besides the model."""
    before = [(Inner, dict(vars(Inner))), (Model, dict(vars(Model)))]
    function = scaled.__code__, scaled.__defaults__
    yield
    set_global(3.0)
    scaled.__code__, scaled.__defaults__ = function
    for cls, attributes in before:
        for name in set(vars(cls)) - set(attributes):
            delattr(cls, name)
        for name in ("forward", "slope"):
            if name in attributes and vars(cls)[name] is not attributes[name]:
                setattr(cls, name, attributes[name])


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_change_is_seen_by_the_next_call(what, restored):
    torch.manual_seed(0)
    model = Model()
    warm(model)
    CHANGES[what](model)
    del_compiled = {k: v for k, v in vars(model).items() if k != "_compiled_call_impl"}
    plain = copy.copy(model)
    plain.__dict__ = del_compiled
    for _ in range(2):
        x = X.double() if model.inner and any(p.dtype == torch.float64 for p in model.parameters()) else X
        outcomes = []
        for m in (plain, model):
            try:
                outcomes.append(m(x))
            except RuntimeError as e:
                outcomes.append(str(e))
        assert not same(*outcomes), what


def test_an_unchanged_model_is_not_looked_at_again(versions):
    model = Model()
    warm(model)
    entry = entries_of(Model.forward)[0]
    before = entry.statistics()["entered"]
    for _ in range(5):
        model(X)
    after = entry.statistics()
    assert after["entered"] == before and after["nodes"] > 40, after


def test_a_new_argument_costs_a_look_at_the_argument_only(versions):
    model = Model()
    warm(model)
    entry = entries_of(Model.forward)[0]
    before = entry.statistics()["entered"]
    for x in [X + i for i in range(5)]:
        model(x)
    assert entry.statistics()["entered"] == before + 5


def test_a_change_that_does_not_matter_costs_a_look_at_what_has_changed(versions):
    model = Model()
    backend = warm(model)
    entry = entries_of(Model.forward)[0]
    before = entry.statistics()["entered"]
    model.inner.unused = 1
    model(X)
    assert entry.statistics()["entered"] - before < 4
    assert len(backend.graphs) == 1


def test_weights_that_are_one_object():
    model = Model()
    tied, other = model.inner.linear.weight, nn.Parameter(torch.ones(3, 3))
    model.layers[0].weight = tied
    warm(model)
    entry = entries_of(Model.forward)[0]
    for _ in range(3):
        model.layers[0].weight = other
        assert not entry.holds((model, X)) and not entry.holds((model, X))
        model.inner.linear.weight = other
        assert entry.holds((model, X))
        model.layers[0].weight = tied
        assert not entry.holds((model, X))
        model.inner.linear.weight = tied
        assert all(entry.holds((model, X)) for _ in range(10))


def test_everything_about_a_module_is_checked_in_c():
    model = Model()
    warm(model)
    entry = entries_of(Model.forward)[0]
    assert entry.function is None and entry.graph is not None


def test_an_object_at_the_address_of_another_is_another():
    def f(x, box):
        return x * box[0] if box[1] else x
    translated = sot.to_static(f, backend=Counter())
    for i in range(50):
        box = [float(i), i % 3]
        assert torch.equal(translated(X, box), f(X, box))
        box = (float(i), i % 2)
        assert torch.equal(translated(X, box), f(X, box))


def test_two_models_of_one_class_take_turns():
    torch.manual_seed(0)
    models = [Model(), Model().double()]
    expected = [m(X.to(d)) for m, d in zip(models, (torch.float32, torch.float64))]
    backend = Counter()
    for m in models:
        sot.to_static(m, backend=backend)
    for _ in range(4):
        for m, e, d in zip(models, expected, (torch.float32, torch.float64)):
            assert torch.equal(m(X.to(d)), e)
    assert len(backend.graphs) == 2


def test_a_counter_on_a_module_does_not_hide_other_changes():
    class Counting(Model):
        def forward(self, x):
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x) + x * self.calls
    torch.manual_seed(0)
    translated = Counting()
    plain = copy.deepcopy(translated)
    sot.to_static(translated, backend=Counter())
    for i in range(8):
        if i == 5:
            for m in (translated, plain):
                m.inner.options["power"] = 1
        assert torch.allclose(translated(X), plain(X)) and translated.calls == plain.calls == i + 1


# ---- C and Python agree
class Config:
    def __init__(self):
        self.rate, self.names, self.nested = 0.5, ["a"], {"k": (1, 2.0)}


def program(x, ys, flag, config, key, model):
    total = x * config.rate + len(config.names) + config.nested["k"][0]
    for y in ys:
        total = total + y
    if flag:
        total = total - len(key)
    if key == "other":
        total = total * 2
    return model(total) if ys[0] is not x else total


def start():
    torch.manual_seed(0)
    return {"x": X.clone(), "ys": [X + 1, X + 2], "flag": True, "config": Config(), "key": "name",
            "model": nn.Sequential(nn.Linear(3, 3), nn.ReLU())}


TENSORS = [X.clone, lambda: X.clone().double(), lambda: X.t().contiguous().t(), lambda: X[:1].clone(),
           lambda: X.clone().requires_grad_(), lambda: nn.Parameter(X.clone()), lambda: X.clone().conj(),
           lambda: X.to(torch.complex64).conj(), lambda: None, lambda: 3]


def view_of_what_requires_grad():
    base = X.clone()
    view = base[:]
    base.requires_grad_()
    return view


@pytest.mark.parametrize("make", [lambda: X.clone().requires_grad_(), lambda: X.clone().requires_grad_() * 1,
                                  lambda: X.clone().requires_grad_()[:], view_of_what_requires_grad,
                                  lambda: X.clone().requires_grad_().detach(), lambda: X[:]])
def test_whether_gradients_are_required_is_asked_as_torch_answers(make):
    translated = sot.to_static(lambda x: x + 1, backend="eager")
    translated(X)
    translated(make())
    assert len(translated.captures) == 1 + make().requires_grad


CONSTANTS = [0, 1, 1.0, True, False, 0.0, -0.0, 0.5, float("nan"), None, "name", "other", (1, 2.0), (1, 2), (1.0, 2.0)]


class Linear(nn.Linear):
    pass


class Parameter(nn.Parameter):
    pass


KEPT: list[dict] = []


@st.composite
def mutation(draw):
    """A change of the arguments, as a function of their dict."""
    kind = draw(st.sampled_from(["tensor", "item", "alias", "length", "flag", "key", "rate", "nested", "class",
                                 "weight", "data", "grad", "hook", "names", "swap", "attribute", "layer", "parameter",
                                 "dict", "old dict", "dict of a layer"]))
    tensor, constant = draw(st.sampled_from(TENSORS)), draw(st.sampled_from(CONSTANTS))
    index = draw(st.integers(0, 1))

    def change(a):
        linear = a["model"][0] if isinstance(a["model"], nn.Sequential) and len(a["model"]) else None
        a["ys"] = [*a["ys"]]
        if kind == "tensor":
            a["x"] = tensor()
        elif kind == "item" and index < len(a["ys"]):
            a["ys"][index] = tensor()
        elif kind == "alias" and index < len(a["ys"]):
            a["ys"][index] = a["x"]
        elif kind == "length":
            a["ys"] = a["ys"][:1] if index else (*a["ys"],)
        elif kind in ("flag", "key"):
            a[kind] = constant
        elif kind == "rate":
            a["config"].rate = constant
        elif kind == "nested":
            a["config"].nested["k"] = constant
        elif kind == "class":
            a["config"].__class__ = type("Config2", (Config,), {}) if index else Config
        elif kind == "weight" and isinstance(linear, nn.Linear):
            linear.weight = nn.Parameter(torch.ones(3, 3, dtype=torch.float64 if index else torch.float32))
        elif kind == "data" and isinstance(linear, nn.Linear) and linear.bias is not None:
            linear.bias.data = torch.ones(1 if index else 3)
        elif kind == "grad" and isinstance(linear, nn.Linear):
            linear.weight.requires_grad_(bool(index))
        elif kind == "hook" and linear is not None:
            linear.register_forward_hook(lambda *_: None)
        elif kind == "names":
            a["config"].names.append("b") if index else a["config"].names.clear()
        elif kind == "swap" and isinstance(a["model"], nn.Sequential):
            a["model"][index] = nn.Tanh() if index else nn.Linear(3, 3)
        elif kind == "attribute":
            a["config"].__dict__["extra"] = constant
        elif kind == "layer" and isinstance(linear, nn.Linear):
            linear.__class__ = Linear if index else nn.Linear
        elif kind == "parameter" and isinstance(linear, nn.Linear):
            linear.weight.__class__ = Parameter if index else nn.Parameter
        elif kind in ("dict", "old dict"):
            KEPT.append(vars(a["config"]))
            a["config"].__dict__ = {**vars(a["config"]), "rate": constant} if kind == "dict" else KEPT[0]
        elif kind == "dict of a layer" and isinstance(linear, nn.Linear):
            linear.__dict__ = {**vars(linear), "_parameters": {**linear._parameters, "bias": None} if index
                               else linear._parameters}
    return change


def verdict_of_python(cached, inputs):
    """The guards, one by one, and that no two tensors that they look at are one."""
    if any(g.explain(inputs) is not None for g in cached.guards):
        return False
    tensors = [id(g.origin.read(inputs)) for g in cached.guards if isinstance(g, TensorGuard)]
    return len(set(tensors)) == len(tensors)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(mutation(), min_size=1, max_size=4))
def test_c_and_python_give_one_verdict(changes):
    KEPT.clear()
    backend = Counter()
    translated = sot.to_static(types.FunctionType(program.__code__.replace(), globals()), backend=backend)
    arguments = start()
    for _ in range(8):
        translated(**arguments)
    cached = translation_of(translated).translator.states.of(translated.__wrapped__.__code__).entries[0]
    assert cached.function.function is None, "all of it is checked in C"
    assert cached.function.statistics()["skipped"] > 0, "it has got warm"
    for change in changes:
        change(arguments)
        inputs = tuple(arguments.values())
        for _ in range(2):
            assert cached.function.holds(inputs) is verdict_of_python(cached, inputs)
    sot.reset()


class Registry:
    """A class with a property, and with a method that is kept bound."""

    def __init__(self):
        self.items = [1.0]

    @property
    def size(self):
        return len(self.items)

    def first(self):
        return self.items[0]


def test_properties_bound_methods_and_many_lists_are_checked_in_c():
    registry, lists = Registry(), [[float(i)] for i in range(40)]
    first = registry.first

    def f(x):
        for one in lists:
            one.append(1.0)
            one.pop()
        return x * registry.size + first() + lists[3][0]

    translated = sot.to_static(f, backend=Counter())
    for _ in range(3):
        assert torch.equal(translated(X), f(X))
    entry, = entries_of(f)
    assert entry.function is None or "MISS" not in entry.function.__code__.co_names     # which guards in Python name
    lists[7] = lists[8]
    assert torch.equal(translated(X), f(X))
    registry.items.append(2.0)
    assert torch.equal(translated(X), f(X))
    Registry.size = property(lambda self: 5)
    assert torch.equal(translated(X), f(X))
