"""What torch.compiler and torch._dynamo say is obeyed by sot.compile, and by to_static as far as it is about code."""
import functools

import pytest
import torch
import torch._dynamo.decorators
from harness import Counter
from torch import nn

import sot
from sot.frontend.drop_in.arguments import NotPossibleError

X = torch.arange(6.0).reshape(2, 3) / 3
BOTH = pytest.mark.parametrize("translate", [sot.compile, sot.to_static], ids=["compile", "to_static"])


def same(a, b):
    torch.testing.assert_close(a, b)


def asks(x):
    return x * (2 if torch.compiler.is_compiling() else 3)


# ---- what code is told
def test_is_compiling_in_compiled_code_only():
    f = sot.compile(lambda x: (asks(x), torch.compiler.is_dynamo_compiling()), backend="eager")
    value, flag = f(X)
    same(value, X * 2)
    assert flag is True and torch.compiler.is_compiling() is False
    same(sot.to_static(asks, backend="eager")(X), X * 3)


def test_is_compiling_after_a_break_is_as_before_it():
    def f(x):
        torch._dynamo.graph_break()
        return asks(x)
    same(sot.compile(f, backend="eager")(X), X * 2)


# ---- marks of functions
def inner(x):
    return x.cos() + 1


@torch.compiler.disable
def disabled(x):
    return inner(x) + 1


@torch.compiler.disable(recursive=False)
def disabled_alone(x):
    return inner(x) + 1


@BOTH
@pytest.mark.parametrize("function, names", [(disabled, []), (disabled_alone, ["inner"])])
def test_disable(translate, function, names):
    sot.reset()
    f = translate(lambda x: function(x * 2) * 3, backend="eager")
    for _ in range(2):
        same(f(X), ((X * 2).cos() + 2) * 3)
    assert [c.name for c in f.captures if c.name != f.__qualname__] == names


def disabling(function):
    """As FSDP wraps its hooks: each call makes the function that torch.compile leaves to Python."""
    @functools.wraps(function)
    def wrapper(*args):
        return torch.compiler.disable(function, reason="hooks")(*args)
    return wrapper


@BOTH
def test_a_function_that_is_disabled_when_it_is_called(translate):
    sot.reset()
    function = disabling(disabled.__wrapped__)
    f = translate(lambda x: function(x * 2) * 3, backend="eager")
    for _ in range(2):
        same(f(X), ((X * 2).cos() + 2) * 3)
    assert [c.name for c in f.captures if c.name != f.__qualname__] == []
    assert [str(c.stopped).split(" from")[0] for c in f.captures if c.stopped] == [
        "torch, or torch.compiler.disable, keeps disabled"]


@BOTH
def test_graph_break_and_disallow_in_graph(translate):
    counter = Counter()

    def f(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2
    same(translate(f, backend=counter)(X), (X + 1) * 2)
    assert len(counter.graphs) == 2


@BOTH
@pytest.mark.parametrize("function", [torch.sub, torch.nn.functional.silu], ids=["builtin", "python"])
def test_disallow_in_graph_of_a_function_of_torch(translate, function):
    counter = Counter()
    arguments = (1,) if function is torch.sub else ()

    def f(x):
        return function(x + 1, *arguments) * 2
    torch._dynamo.disallow_in_graph(function)
    try:
        same(translate(f, backend=counter)(X), f(X))
    finally:
        torch._dynamo.trace_rules._disallowed_callable_ids.remove(id(function))
    assert len(counter.graphs) == 2
    assert not any(node.target is function for graph in counter.graphs for node in graph.graph.nodes)


@BOTH
def test_assume_constant_result(translate):
    calls = []

    @torch.compiler.assume_constant_result
    def scale(n):
        calls.append(n)
        return n * 2.0

    class Owner:
        factor = 5.0

        @torch.compiler.assume_constant_result
        def scale(self):
            calls.append("method")
            return self.factor
    owner = Owner()
    f = translate(lambda x: x * scale(3) + owner.scale(), backend="eager")
    for _ in range(3):
        same(f(X), X * 6 + 5)
    assert calls == [3, "method"]


@BOTH
def test_allow_in_graph(translate):
    counter, calls = Counter(), []

    @torch.compiler.allow_in_graph
    def opaque(x, n):
        calls.append(eval("n"))     # what capture could not follow
        return x * n
    f = translate(lambda x: opaque(x, 2) + 1, backend=counter)
    same(f(X), X * 2 + 1)
    assert len(counter.graphs) == 1 and opaque in [n.target for n in counter.graphs[0].graph.nodes]


@BOTH
def test_nested_compile_region(translate):
    counter = Counter()

    @torch.compiler.nested_compile_region
    def region(x, n=1):
        return x.sin() * n
    same(translate(lambda x: region(x) + region(x, n=2), backend=counter)(X), X.sin() * 3)
    assert len(counter.graphs) == 1


# ---- marks of tensors
@BOTH
@pytest.mark.parametrize("mark", [torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic,
                                  torch._dynamo.decorators.mark_unbacked])
def test_marks_of_dimensions_that_differ(translate, mark):
    counter = Counter()
    f = translate(lambda x: x + 1, backend=counter)
    for size in (4, 5, 6):
        x = torch.ones(size, 3)
        mark(x, -2 if mark is torch._dynamo.mark_dynamic else 0)
        same(f(x), x + 1)
    assert len(counter.graphs) == 1


@BOTH
def test_mark_static_is_stronger_than_dynamic(translate):
    counter = Counter()
    f = translate(lambda x: x + 1, backend=counter, dynamic=True)
    for size in (4, 5):
        x = torch.ones(size, 3)
        torch._dynamo.mark_static(x, 0)
        same(f(x), x + 1)
    assert len(counter.graphs) == 2


# ---- stances
@pytest.fixture
def f():
    return sot.compile(asks, backend=Counter())


def test_force_eager(f):
    f(X)
    with torch.compiler.set_stance("force_eager"):
        same(f(X), X * 3)
    same(f(X), X * 2)

    @torch.compiler.set_stance("force_eager")
    def eagerly(x):
        return f(x)
    same(eagerly(X), X * 3)
    same(f(X), X * 2)


def test_eager_on_recompile(f):
    f(X)
    with torch.compiler.set_stance("eager_on_recompile"):
        same(f(X), X * 2)
        same(f(torch.ones(7)), torch.full((7,), 3.0))
    assert len(f.captures) == 1


def test_fail_on_recompile(f):
    f(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        same(f(X), X * 2)
        with pytest.raises(RuntimeError, match="Detected recompile of asks.*shape"):
            f(torch.ones(7))
    same(f(torch.ones(7)), torch.full((7,), 2.0))


def test_force_backend(f):
    other = Counter()
    with torch.compiler.set_stance(force_backend=other):
        same(f(X), X * 2)
        g = sot.compile(lambda x: x + 1, backend="eager")
        same(g(X), X + 1)
    assert len(other.graphs) == 2 and not f.settings.backend.graphs


@pytest.mark.parametrize("stance, first", [("eager_then_compile", 3), ("aot_eager_then_compile", 2)])
def test_the_first_call_otherwise(f, stance, first):
    with torch.compiler.set_stance(stance):
        for factor, size in zip((first, 2, 2, 2), (4, 5, 6, 7), strict=True):
            same(f(torch.ones(size)), torch.full((size,), float(factor)))
    assert len(f.settings.backend.graphs) == 1      # with a size that differs


def test_a_stance_for_a_module():
    compiled = sot.compile(nn.Linear(3, 3), backend=Counter())
    with torch.compiler.set_stance("force_eager"):
        same(compiled(X), compiled._orig_mod(X))
    assert not compiled.forward.captures


def test_a_stance_that_cannot_be_is_refused_and_changes_nothing(f):
    with pytest.raises(NotPossibleError, match="skip_guard_eval_unsafe"):
        torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
    with pytest.raises(NotPossibleError, match="does not know"):
        torch.compiler.set_stance("sideways")
    same(f(X), X * 2)


# ---- reset and configuration
def test_reset_compiles_anew(f):
    f(X)
    torch.compiler.reset()
    f(X)
    assert len(f.settings.backend.graphs) == 2


def test_marks_of_steps_change_nothing(f):
    for _ in range(2):
        torch.compiler.cudagraph_mark_step_begin()
        same(f(X), X * 2)


@pytest.mark.parametrize("setting, graphs", [
    ({"disable": True}, 0), ({"automatic_dynamic_shapes": False}, 3), ({"assume_static_by_default": False}, 1),
    ({}, 2), ({"recompile_limit": 1}, 1),
])
@pytest.mark.filterwarnings("ignore::sot.driver.recompile_limit.RecompileWarning")
def test_torchs_configuration(f, setting, graphs):
    with torch._dynamo.config.patch(**setting):
        for size in (4, 5, 6):
            f(torch.ones(size))
    assert len(f.settings.backend.graphs) == graphs


def test_errors_that_the_configuration_asks_for(f):
    f(X)
    with torch._dynamo.config.patch(error_on_recompile=True), pytest.raises(RuntimeError, match="Detected recompile"):
        f(torch.ones(7))
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True), pytest.raises(
            sot.CaptureError):
        f(torch.ones(7))


def test_errors_that_the_configuration_suppresses():
    def failing(gm, inputs):
        raise ValueError("no")
    f = sot.compile(lambda x: x + 1, backend=failing)
    with torch._dynamo.config.patch(suppress_errors=True), pytest.warns(UserWarning, match="runs eagerly"):
        same(f(X), X + 1)
