"""sot.compile takes torch.compile's arguments and means the same, on functions, modules, methods and classes."""
import copy
import pickle

import pytest
import torch
from harness import Counter
from torch import nn

import sot
from sot.backends import BackendError, OptionsError, UnknownBackendError
from sot.frontend.api import TargetError
from sot.frontend.drop_in.arguments import NotPossibleError

X = torch.arange(6.0).reshape(2, 3) / 3


def same(a, b):
    torch.testing.assert_close(a, b)


class Scaled(nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.full((3,), factor)), 0

    def forward(self, x, shift=0.0):
        self.seen += 1
        return x * self.weight + shift


# ---- what is compiled
def test_functions_as_decorator_with_and_without_arguments():
    counter = Counter()

    @sot.compile(backend=counter)
    def f(x):
        return x.sin() + 1

    def g(x):
        return x.cos()
    same(f(X), X.sin() + 1)
    same(sot.compile(g, backend=counter)(X), X.cos())
    assert len(counter.graphs) == 2 and f.__name__ == "f"


def test_a_module_stays_as_it_is_and_is_wrapped_as_torch_wraps_it():
    counter, module = Counter(), Scaled()
    compiled = sot.compile(module, backend=counter)
    same(compiled(X, shift=1.0), module.weight * X + 1)
    assert len(counter.graphs) == 1 and module.seen == compiled.seen == 1
    module(X)
    assert len(counter.graphs) == 1
    assert isinstance(compiled, torch._dynamo.eval_frame.OptimizedModule) and compiled._orig_mod is module
    assert repr(compiled) == repr(torch.compile(module)) and type(compiled).__name__ == "OptimizedModule"
    assert list(compiled.state_dict()) == ["_orig_mod.weight"] and len([*compiled.parameters()]) == 1
    compiled.eval()
    assert not module.training and not compiled.training
    compiled.load_state_dict({"_orig_mod.weight": torch.zeros(3)})
    same(compiled(X), torch.zeros(2, 3))


def test_a_wrapped_module_trains_and_keeps_its_hooks():
    module = Scaled()
    seen = []
    module.register_forward_hook(lambda module, args, result: seen.append(result.shape))
    compiled = sot.compile(module, backend="eager")
    compiled(X).sum().backward()
    same(module.weight.grad, X.sum(0))
    assert seen == [(2, 3)]


def test_copies_and_pickles_of_a_wrapped_module_are_compiled():
    compiled = sot.compile(Scaled(), backend="eager")
    for again in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert again._orig_mod is not compiled._orig_mod
        same(again(X), compiled(X))
        assert len(again.forward.captures) == 1


def test_methods_objects_and_classes():
    class Adds:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

        @sot.compile(backend="eager", fullgraph=True)
        def twice(self, x):
            return x + self.n * 2
    same(sot.compile(Adds(2), backend="eager")(X), X + 2)
    same(Adds(3).twice(X), X + 6)
    counter = Counter()
    same(sot.compile(Adds, backend=counter)(3)(X), X + 3)

    class Tripled(Scaled):
        def forward(self, x):
            return x * 3
    same(sot.compile(Tripled, backend=counter)()(X), X * 3)
    assert len(counter.graphs) == 2


def test_what_is_compiled_already_is_compiled_anew():
    first, second = Counter(), Counter()
    f = sot.compile(lambda x: x + 1, backend=first)
    module = sot.compile(Scaled(), backend=first)
    same(sot.compile(f, backend=second)(X), X + 1)
    same(sot.compile(module, backend=second)(X), X * 2)
    assert not first.graphs and len(second.graphs) == 2


def test_disable_leaves_it_alone():
    def f(x):
        return x
    module = Scaled()
    assert sot.compile(f, disable=True) is f and sot.compile(module, disable=True) is module


def test_disabled_by_the_environment(monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert sot.compile(same, backend="nothing of this name") is same


# ---- what the arguments mean
def test_fullgraph_raises_where_capture_breaks():
    def f(x):
        torch._dynamo.graph_break()
        return x + 1
    with pytest.raises(sot.CaptureError):
        sot.compile(f, backend="eager", fullgraph=True)(X)
    same(sot.compile(f, backend="eager")(X), X + 1)


@pytest.mark.parametrize("dynamic, graphs", [(None, 2), (True, 1), (False, 4)])
def test_dynamic(dynamic, graphs):
    counter = Counter()
    f = sot.compile(lambda x: x + 1, backend=counter, dynamic=dynamic)
    for size in (3, 4, 5, 6):
        same(f(torch.ones(size)), torch.full((size,), 2.0))
    assert len(counter.graphs) == graphs


@pytest.mark.skipif(not hasattr(torch.compiler, "set_default_backend"), reason="not in this version of torch")
def test_the_default_backend_is_torchs():
    torch.compiler.set_default_backend("eager")
    try:
        f = sot.compile(lambda x: x + 1)
        assert f.settings.backend == "eager"
    finally:
        torch.compiler.set_default_backend(None)
    assert sot.compile(lambda x: x + 1).settings.backend == "inductor"


def test_mode_and_options_go_to_the_backend():
    told = []

    def backend(gm, inputs, mode=None, options=None):
        told.append((mode, options))
        return gm.forward
    sot.compile(lambda x: x + 1, backend=backend, mode="max-autotune")(X)
    sot.compile(lambda x: x + 1, backend=backend, options={"a": 1})(X)
    assert told == [("max-autotune", None), (None, {"a": 1})]


def test_recompile_limit_of_a_call():
    counter = Counter()
    f = sot.compile(lambda x, n: x + ord(n), backend=counter, recompile_limit=2)
    with pytest.warns(UserWarning, match="was captured 2 times"):
        for n in "abcd":
            same(f(X, n), X + ord(n))
    assert len(counter.graphs) == 2
    f = sot.compile(lambda x, n: x + ord(n), backend=counter, recompile_limit=1, fullgraph=True)
    f(X, "a")
    with pytest.raises(sot.CaptureError):
        f(X, "b")


FACTOR = 2.0


def test_a_filter_of_guards_drops_none():
    """SOT checks every guard, so the result is right where the filter of torch.compile makes it wrong."""
    global FACTOR
    counter = Counter()
    backend = lambda gm, inputs, options=None: counter(gm, options)     # noqa: E731
    f = sot.compile(lambda x: x * FACTOR, backend=backend,
                    options={"guard_filter_fn": lambda guards: [False for _ in guards]})
    same(f(X), X * 2)
    FACTOR = 3.0
    same(f(X), X * 3)
    assert counter.graphs


def test_a_backend_that_is_registered_after_the_first_use():
    sot.compile(lambda x: x + 1, backend="aot_eager")(X)
    graphs = []

    @torch._dynamo.register_backend(name="registered_late")
    def late(gm, inputs):
        graphs.append(gm)
        return gm.forward
    same(sot.compile(lambda x: x + 1, backend="registered_late")(X), X + 1)
    assert len(graphs) == 1 and "registered_late" in sot.list_backends()


def steps(x, count):
    """Yields running sums."""
    for i in range(count):
        x = x.sin() + i
        given = yield x
        x = x if given is None else given
    return x


def test_generator_functions_are_captured_in_pieces():
    counter = Counter()
    f = sot.compile(steps, backend=counter)
    same([*f(X, 3)], [*steps(X, 3)])
    assert counter.graphs
    ours, plain = f(X, 3), steps(X, 3)
    same(next(ours), next(plain))
    same(ours.send(X), plain.send(X))


def test_name_is_what_reports_say():
    f = sot.compile(lambda x: x + 1, backend="eager", name="the block")
    f(X)
    assert f.explain().name == "the block"


@pytest.mark.parametrize("arguments, error", [
    ({"fullgraph": "yes"}, TargetError), ({"dynamic": "yes"}, TargetError), ({"disable": 1}, TargetError),
    ({"recompile_limit": 0}, TargetError), ({"options": ["a"]}, TargetError),
    ({"mode": "default", "options": {}}, OptionsError), ({"backend": "inductors"}, UnknownBackendError),
    ({"backend": "inductor", "mode": "fast"}, BackendError), ({"options": {"no_such_option": 1}}, OptionsError),
    ({"shapes_spec": {}}, NotPossibleError), ({"dynamic_shapes": {}}, NotPossibleError),
    ({"options": {"guard_filter_fn": 3}}, OptionsError),
    ({"options": {"use_aoti": True}}, NotPossibleError), ({"backend": 3}, TypeError),
])
def test_arguments_that_mean_nothing_are_refused_at_once(arguments, error):
    with pytest.raises(error):
        sot.compile(lambda x: x, **arguments)


@pytest.mark.parametrize("target", ["inductor", 3, property(same), torch.jit.script(nn.ReLU()), (i for i in ())])
def test_what_cannot_be_compiled_is_refused(target):
    with pytest.raises(TargetError):
        sot.compile(target, backend="eager")
