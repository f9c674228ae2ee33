"""What a captured function depends on is guarded: after a change the next call is right, and captured anew.

Each test captures, changes one thing, and calls again. ``recaptures`` says what plain Python gives each time and how
often the function was captured. What does not matter must not capture anew.
"""
from __future__ import annotations

import types

import pytest
import torch
from harness import Counter, same
from torch import nn

import sot
from sot.guards.guards import short
from sot.guards.origin import Arg, Dim, Stride

X = torch.arange(6.0).reshape(2, 3)


def recaptures(fn, calls, changes, target=None):
    """Run ``calls`` with a change before each but the first; the number of graphs after each call."""
    backend = Counter()
    translated = sot.to_static(target if target is not None else fn, backend=backend)
    counts = []
    for i, args in enumerate(calls):
        if i:
            changes[i - 1]()
        want = fn(*args)
        got = (translated if target is None else fn)(*args)
        assert not same(got, want), same(got, want)
        counts.append(len(backend.graphs))
    return counts


def nothing():
    pass


# ---- arguments
@pytest.mark.parametrize(("first", "second", "again"), [
    (X, X + 1, False),
    (X, X.double(), True),
    (X, X[:1], True),
    (X, X.t().contiguous().t(), True),
    (X, X.clone().requires_grad_(), True),
    (X, nn.Parameter(X.clone()), True),
])
def test_the_kind_of_a_tensor(first, second, again):
    assert recaptures(lambda x: x * 2, [(first,), (second,)], [nothing]) == [1, 2 if again else 1]


@pytest.mark.parametrize(("first", "second", "again"), [
    (2, 2, False), (2, 3, True), (2, 2.0, True), (1, True, True), ("a", "b", True), (None, 1, True),
    (torch.float32, torch.float64, True), (float("nan"), float("nan"), False),
])
def test_constants(first, second, again):
    def f(x, k):
        return x * 2, k, [k == 2, k is None]
    assert recaptures(f, [(X, first), (X, second)], [nothing]) == [1, 2 if again else 1]


def test_a_number_that_is_only_passed_along_is_not_guarded():
    def f(x, k):
        return x * 2, k
    assert recaptures(f, [(X, 1), (X, 2), (X, 3)], [nothing, nothing]) == [1, 1, 1]


@pytest.mark.parametrize(("first", "second", "again"), [
    ([X, X + 1], [X, X + 2], False),
    ([X, X], [X, X + 2], True),
    ([X], [X, X + 2], True),
    ((X,), [X], True),
    ({"a": X, "b": X + 1}, {"a": X + 1, "b": X}, False),
    ({"a": X, "b": X + 1}, {"b": X + 1, "a": X}, True),
    ({"a": X}, {"c": X}, True),
    ({1: X}, {2: X}, True),
])
def test_containers(first, second, again):
    def f(c):
        values = c.values() if isinstance(c, dict) else c
        total = 0
        for v in values:
            total = total + v
        return total, [*c] if isinstance(c, dict) else len(c)
    assert recaptures(f, [(first,), (second,)], [nothing]) == [1, 2 if again else 1]


def test_a_list_that_is_only_appended_to_is_not_guarded():
    def f(x, log):
        log.append(x.shape[0])
        return x + 1
    log = []
    assert recaptures(lambda x: f(x, log), [(X,), (X,), (X,)], [nothing, nothing]) == [1, 1, 1]
    assert log == [2] * 6


def test_two_arguments_that_are_one_tensor():
    def f(a, b):
        a = a.clone() if a is b else a
        return a.add(b)
    y = X + 1
    assert recaptures(f, [(X, y), (y, X), (X, X)], [nothing, nothing]) == [1, 1, 2]


# ---- what a function refers to
SCALE = 2
TABLE = {"k": 1}


def test_a_global_is_rebound():
    def f(x):
        return x * SCALE
    original = SCALE
    try:
        assert recaptures(f, [(X,), (X,)], [lambda: globals().update(SCALE=5)]) == [1, 2]
    finally:
        globals().update(SCALE=original)


def test_a_global_appears_and_hides_a_builtin():
    def f(x):
        return x * abs(-2)
    try:
        assert recaptures(f, [(X,), (X,)], [lambda: globals().update(abs=lambda v: 7)]) == [1, 2]
    finally:
        globals().pop("abs", None)


def test_an_item_of_a_global_dict():
    def f(x):
        return x * TABLE["k"]
    assert recaptures(f, [(X,), (X,)], [lambda: TABLE.update(k=TABLE["k"] + 1)]) == [1, 2]


def test_a_closure_cell():
    k = 1

    def f(x):
        return x * k

    def bump():
        nonlocal k
        k += 1
    assert recaptures(f, [(X,), (X,)], [bump]) == [1, 2]


def test_the_default_of_a_called_function():
    def g(x, k=2):
        return x * k

    def f(x):
        return g(x)
    assert recaptures(f, [(X,), (X,)], [lambda: setattr(g, "__defaults__", (3,))]) == [1, 2]


def test_the_code_of_a_called_function():
    def g(x):
        return x * 2

    def other(x):
        return x * 3

    def f(x):
        return g(x)
    assert recaptures(f, [(X,), (X,)], [lambda: setattr(g, "__code__", other.__code__)]) == [1, 2]


def test_an_attribute_of_a_module():
    holder = types.ModuleType("holder")
    holder.k = 2

    def f(x):
        return x * holder.k
    assert recaptures(f, [(X,), (X,)], [lambda: setattr(holder, "k", 3)]) == [1, 2]


# ---- classes and objects
class Thing:
    factor = 2

    def __init__(self):
        self.k = 1

    def scale(self, x):
        return x * self.k * self.factor


def make_class():
    return type("Thing", (Thing,), {})


def test_an_attribute_of_an_object():
    thing = Thing()
    assert recaptures(lambda x: thing.scale(x), [(X,), (X,)], [lambda: setattr(thing, "k", 4)]) == [1, 2]


def test_an_attribute_of_a_class_and_one_that_hides_it():
    cls = make_class()
    thing = cls()
    assert recaptures(lambda x: thing.scale(x), [(X,), (X,), (X,)], [
        lambda: setattr(cls, "factor", 3), lambda: setattr(thing, "factor", 9)]) == [1, 2, 3]


def test_a_method_is_replaced():
    cls = make_class()
    thing = cls()
    assert recaptures(lambda x: thing.scale(x), [(X,), (X,), (X,)], [
        lambda: setattr(cls, "scale", lambda self, x: x - 1),
        lambda: setattr(thing, "scale", lambda x: x - 2)]) == [1, 2, 3]


# ---- modules
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2))
        self.register_buffer("shift", torch.ones(2))
        self.k = 2

    def forward(self, x):
        y = self.layers(x) * self.k + self.shift
        return y if self.training else -y


@pytest.mark.parametrize(("change", "again"), [
    (nothing, False),
    (lambda m: None, False),
    (lambda m: setattr(m, "k", 3), True),
    (lambda m: setattr(m, "shift", m.shift + 1), False),
    (lambda m: setattr(m, "shift", torch.ones(1)), False),
    (lambda m: m.layers[0].weight.data.mul_(2), False),
    (lambda m: setattr(m.layers[0], "weight", nn.Parameter(torch.ones(3, 3))), False),
    (lambda m: setattr(m.layers[0].weight, "data", torch.ones(3, 3)), False),
    (lambda m: m.layers[0].weight.requires_grad_(False), False),
    (lambda m: m.double(), True),      # of the argument
    (lambda m: m.train(), True),
    (lambda m: m.layers.append(nn.Identity()), True),
    (lambda m: m.layers.__setitem__(1, nn.ReLU()), True),
    (lambda m: m.register_forward_hook(lambda mod, args, out: out + 1), None),
    (lambda m: m.layers[0].register_forward_pre_hook(lambda mod, args: (args[0] + 1,)), True),
])
def test_a_module_changes(change, again):
    torch.manual_seed(0)
    model = Net().eval()
    backend = Counter()
    sot.to_static(model, backend=backend)
    counts = []
    for i in range(2):
        if i and change is not nothing:
            change(model)
        x = X.to(next(model.parameters()).dtype)
        torch.manual_seed(1)
        want = model._call_impl(x)
        torch.manual_seed(1)
        got = model(x)
        assert not same(got, want), same(got, want)
        counts.append(len(backend.graphs))
    assert again is None or counts == [1, 2 if again else 1], counts


# ---- torch's global state
@pytest.mark.parametrize("mode", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_a_mode(mode):
    w = torch.randn(3, 3, requires_grad=True)
    backend = Counter()

    def f(x):
        return x @ w
    translated = sot.to_static(f, backend=backend)
    translated(X)
    with mode():
        assert not same(translated(X), f(X))
    assert len(backend.graphs) == 2
    assert not same(translated(X), f(X))
    assert len(backend.graphs) == 2


def test_the_default_dtype():
    backend = Counter()
    translated = sot.to_static(lambda x: x + torch.ones(3), backend=backend)
    assert translated(X).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert translated(X).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(backend.graphs) == 2


# ---- what a guard says
@pytest.mark.slow
def test_guards_speak_the_users_language():
    thing = Thing()

    def f(x, k, items):
        return thing.scale(x) * k + items[0]
    guards = {str(g) for g in sot.explain(f)(X, 3, [X]).guards}
    assert "k == 3" in guards and "thing.k == 1" in guards and "len(items) == 1" in guards
    assert "x is a float32 tensor of shape (2, 3) on cpu" in guards


def test_a_recapture_is_explained():
    translated = sot.to_static(lambda x, k: x * k, backend="eager")
    translated(X, 2)
    translated(X, 3)
    assert translated.captures[1].recompiled_because == ["expected k == 2, got 3"]


WEIGHT = nn.Parameter(torch.eye(3))


@pytest.mark.parametrize("part", [
    lambda x: torch.autograd.grad((WEIGHT @ x.T).sum(), WEIGHT)[0],
    lambda x: torch.vmap(lambda row: WEIGHT @ row)(x),
    lambda x: torch.func.grad(lambda y: (WEIGHT @ y.T).sum())(x),
], ids=["autograd", "vmap", "grad"])
def test_the_reason_of_a_recapture_is_the_guard_that_failed(part):
    """Other guards hold: those on a function called ``grad``, and on weights that a transform has read."""
    def fn(x, k):
        return part(x) * k

    translated = sot.to_static(fn, backend="eager")
    for k in (2, 3):
        assert torch.equal(translated(X, k), fn(X, k))
    assert translated.captures[-1].recompiled_because == ["expected k == 2, got 3"]


@pytest.mark.filterwarnings("ignore::sot.driver.recompile_limit.RecompileWarning")
def test_a_function_that_is_captured_too_often_is_left_to_python():
    translated = sot.to_static(lambda x, k: x.expand(k, 2, 3), backend="eager", dynamic=False)
    for k in range(1, 20):
        assert torch.equal(translated(X, k), X.expand(k, 2, 3))
    assert translated.captures[-1].fallback and len(translated.captures) < 12


def decorated(f):
    def wrapper(x, k):
        return f(x, k)
    return wrapper


def under_one_translator(*functions):
    first = sot.to_static(functions[0], backend="eager", dynamic=False)
    return first.captures, [sot.frontend.api.StaticFunction(f, first.settings, first.translator) for f in functions]


def test_functions_that_share_a_decorator_have_entries_of_their_own():
    namespaces = [{} for _ in range(20)]
    for n, namespace in enumerate(namespaces):
        exec(f"def f(x, k): return x * k + {n}", namespace)
    captures, functions = under_one_translator(*(decorated(namespace["f"]) for namespace in namespaces))
    for _ in range(2):
        for n, f in enumerate(functions):
            assert torch.equal(f(X, 2), X * 2 + n)
    assert len(captures) == 20 and not any(c.fallback for c in captures)


@pytest.mark.filterwarnings("ignore::sot.driver.recompile_limit.RecompileWarning")
def test_a_function_captured_too_often_leaves_others_with_its_decorator_alone():
    captures, (varying, other) = under_one_translator(
        decorated(lambda x, k: x.expand(k, 2, 3)), decorated(lambda x, k: x * k))
    for k in range(1, 20):
        assert torch.equal(varying(X, k), X.expand(k, 2, 3))
    assert sum(c.fallback for c in captures) == 2       # the wrapper, and what it wraps
    assert torch.equal(other(X, 2), X * 2)
    assert captures[-1].graph is not None and not captures[-1].fallback
    count = len(captures)
    varying(X, 30), other(X, 2)
    assert len(captures) == count


def test_a_number_that_has_become_something_else_is_explained():
    translated = sot.to_static(lambda x, n: x * 2 if n > 3 else x * n, backend="eager", dynamic=True)
    assert torch.equal(translated(X, 4), X * 2)
    with pytest.raises(TypeError):
        translated(X, [4])
    assert "the type of n is int" in translated.captures[-1].recompiled_because[0]
    assert all("capture failed" not in str(c.stopped) for c in translated.captures)


class Loud:
    """Shows each use of it."""

    def __getitem__(self, index):
        print("item", index)
        if index:
            raise RuntimeError
        return self

    def __len__(self):
        print("len")
        return 3

    @property
    def factor(self):
        print("factor")
        return 4.0


@pytest.mark.parametrize("use", [
    lambda x, v: x * len(v),
    lambda x, v: x * v[0].factor,
    lambda x, v: x * v[0][0].factor,
    lambda x, v: x * v.factor,
])
@pytest.mark.parametrize("quiet", [
    [types.SimpleNamespace(factor=2.0)], [[types.SimpleNamespace(factor=2.0), 1]], types.SimpleNamespace(factor=2.0),
    [Loud(), Loud()],
], ids=["list", "nested", "object", "loud"])
def test_an_explanation_runs_no_code_of_the_program(use, quiet, capsys):
    values, found = [quiet, Loud(), (Loud(),), quiet, torch.ones(1, 1), {0: Loud()}, {1: 1}], []
    for function in (use, sot.to_static(use, backend="eager")):
        found.append(([], []))
        for value in values:
            try:
                found[-1][0].append(function(X, value))
            except Exception as e:  # noqa: BLE001 - to be compared
                found[-1][0].append(type(e))
            found[-1][1].append(capsys.readouterr().out)
    assert not same(*found), same(*found)


# ---- torch's own modules ------------------------------------------------------------------------------------
@pytest.mark.parametrize("owner, name, patch", [
    (torch.nn.Tanh, "forward", lambda self, x: x * 100),
    (torch.nn.Linear, "forward", lambda self, x: x * 5),
    (torch.nn.Linear, "__call__", lambda self, x: x * 6),
    (torch.nn.Module, "__call__", lambda self, x: x * 7),
    (torch.nn.Module, "_call_impl", lambda self, x: x * 8),
    (torch.nn.functional, "linear", lambda x, weight, bias: x * 9),
    (torch.nn.modules.linear, "F", types.SimpleNamespace(linear=lambda x, weight, bias: x * 4)),
])
def test_a_patch_of_torchs_modules(monkeypatch, owner, name, patch):
    model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(3, 3))
    translated = sot.to_static(lambda x: model(x), backend="eager")
    assert torch.equal(translated(X), model(X))
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, patch, raising=False)
        assert torch.equal(translated(X), model(X))
    assert torch.equal(translated(X), model(X))


def test_sizes_are_read_without_the_code_of_a_subclass():
    """A guard that failed is explained while the program runs, whose subclass may count its calls."""
    class Strict(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            raise AssertionError(function)

    x = Arg(0, "x")
    assert [Dim(x, 1).read((X.as_subclass(Strict),)), Stride(x, 0).read((X.as_subclass(Strict),))] == [3, 3]


def test_a_guard_names_a_module_without_its_getattr():
    """A module whose class loads names on demand, as those of torch.classes do: the report must not ask it for one."""
    asked = []

    class OnDemand(types.ModuleType):
        def __getattr__(self, name):
            asked.append(name)
            raise RuntimeError(f"{name} is not registered")

    lazy = OnDemand("lazy")
    lazy.scale = 2.0
    explanation = sot.explain(lambda x: x * lazy.scale if lazy is not None else x)(X)
    assert "OnDemand lazy" in str([str(record.guard) for capture in explanation.captures for record in capture.guards])
    assert [name for name in asked if name in ("__qualname__", "__name__")] == []
    assert short(torch.classes) == "_Classes torch.classes"
