"""Translated code under torch's own compilers and tracers: each sees the program as if nothing were translated."""
import ctypes
import functools
import inspect
import subprocess
import sys
from types import FunctionType, MethodType

import pytest
import torch
import torch._dynamo
from harness import Counter, check
from torch import nn

import sot

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
X = torch.arange(6.0).reshape(2, 3) / 3


def translated(f, **settings):
    f = sot.to_static(f, backend="eager", **settings)
    f(X)
    return f


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


class Translated(nn.Module):
    @sot.to_static(backend="eager")
    def forward(self, x):
        return self.shifted(x) * 2

    @sot.to_static(backend="eager")
    def shifted(self, x):
        return x + 1


def calls_one():
    f = translated(lambda x: x.sin() + 1)
    return lambda x: f(x) * 2


def checks_arguments():
    f = translated(lambda x: x.sin() + 1, input_spec=[sot.InputSpec((None, 3))])
    return lambda x: f(x) * 2


def left_to_python():
    f = sot.not_to_static(lambda x: x.sin() + 1)
    return lambda x: f(x) * 2


def mapped():
    f = translated(lambda x: x.sin() + 1)
    return lambda x: torch.vmap(f)(x)


def wrapped():
    f = translated(lambda x: x.sin() + 1)

    @functools.wraps(f)
    def thrice(x):
        return f(x) * 3
    return thrice


PROGRAMS = (calls_one, checks_arguments, left_to_python, mapped, wrapped, Translated,
            lambda: translated(lambda x: x.sin() + 1), lambda: translated(nn.Sequential(Doubled(), nn.ReLU())),
            lambda: nn.Sequential(translated(Doubled()), nn.ReLU()), lambda: sot.to_static(Doubled, backend="eager")())


@pytest.fixture
def dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("make", PROGRAMS)
def test_torch_compile_captures_what_is_translated(make, dynamo):
    backend = Counter()
    program = make()
    torch.testing.assert_close(torch.compile(program, backend=backend, fullgraph=True)(X), program(X))
    assert len(backend.graphs) == 1 and backend.operations >= 1


def test_torch_compile_with_a_break_leaves_translated_code_alone(dynamo):
    f, backend = translated(lambda x: x.sin() + 1), Counter()

    def program(x):
        torch._dynamo.graph_break()
        return f(x) * 2
    torch.testing.assert_close(torch.compile(program, backend=backend)(X), program(X))
    assert backend.operations == 3


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("make", [calls_one, Translated, PROGRAMS[-2]])
def test_export(make, strict, dynamo):
    program = make()

    class Exported(nn.Module):
        def __init__(self):
            super().__init__()
            self.program = program

        def forward(self, x):
            return self.program(x)
    torch.testing.assert_close(torch.export.export(Exported(), (X,), strict=strict).module()(X), program(X))


@pytest.mark.parametrize("make", [p for p in PROGRAMS if p is not mapped])
def test_jit_trace(make):
    program = make()
    torch.testing.assert_close(torch.jit.trace(program, (X,))(X + 1), program(X + 1))


def test_jit_trace_of_attention():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]
    module, x = sot.to_static(Attention().eval(), backend="eager"), torch.randn(2, 3, 8)
    want = module(x)
    torch.testing.assert_close(torch.jit.trace(module, (x,), check_trace=False)(x), want)


def test_jit_trace_of_a_function_that_makes_its_tensors():
    ones = sot.to_static(lambda: torch.ones(2, 3).sin() + 1, backend="eager")
    ones()
    traced = torch.jit.trace(lambda x: ones() + x, (X,))
    assert "aten::sin" in str(traced.graph)
    torch.testing.assert_close(traced(X), ones() + X)


def test_symbolic_trace():
    f = translated(lambda x: x.sin() + 1)
    assert [n.name for n in torch.fx.symbolic_trace(f).graph.nodes] == ["x", "sin", "add", "output"]


def test_inspect_takes_it_for_what_it_wraps():
    f = translated(lambda x: x.sin() + 1)
    module = Translated()
    assert inspect.isfunction(f) and isinstance(f, FunctionType) and isinstance(f, sot.frontend.api.StaticFunction)
    assert inspect.ismethod(module.forward) and isinstance(sot.to_static(module.forward), MethodType)
    assert inspect.getsourcefile(f) == __file__ and inspect.getsourcefile(module.forward) == __file__
    assert not inspect.isfunction(sot.to_static(functools.partial(f, X)))
    assert type(f) is sot.frontend.api.StaticFunction


def test_a_captured_program_takes_it_for_that_too():
    f = translated(lambda x: x.sin() + 1)
    check(lambda x: (f(x), isinstance(f, FunctionType), isinstance(f, MethodType), inspect.isfunction(f)), X)


# ---- is_compiling
class Asks(nn.Module):
    def forward(self, x):
        return x * (2 if torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling() else 3)


def test_the_users_code_is_told_what_python_tells_it():
    check(Asks(), X, graphs=1, breaks=0)


def test_storage_that_is_allocated_unless_compiling():
    from torch.distributed.utils import _alloc_storage, _free_storage

    def unsharded(t, n):
        _alloc_storage(t, torch.Size([n]))
        t.fill_(2)
        y = t + 1
        _free_storage(t)
        return y
    t = torch.empty(8)
    for _ in range(2):
        t.untyped_storage().resize_(0)
        assert torch.equal(sot.to_static(unsharded, backend="eager")(t, 8), torch.full((8,), 3.0))
        assert t.untyped_storage().size() == 0


# ---- after an error
AFTER_AN_ERROR = """
import sot, torch

def doubled(x):
    print("not captured")
    return x * 2

@sot.not_to_static
def compiled(x):
    return torch.compile(lambda v: doubled(v), backend="eager", fullgraph=True)(x)

def fn(x):
    return compiled(x.sin())

translated = sot.to_static(fn, backend="eager")
for f in (fn, translated, fn, translated):
    try:
        f(torch.ones(2))
    except torch._dynamo.exc.Unsupported:
        other = sot.to_static(lambda x: x.cos(), backend="eager")
        other(torch.ones(2))
        print(len(sot.translation_of(other).captures))
"""


@pytest.mark.slow
def test_an_error_of_torchs_compiler_leaves_no_cycle_of_evaluators():
    """torch.compile leaves its evaluator installed when it raises, and installs it again above the one of SOT."""
    done = subprocess.run([sys.executable, "-c", AFTER_AN_ERROR], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["1"] * 4, done.stderr


def doubled_in_two_graphs(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1


@pytest.mark.parametrize("first", [True, False], ids=["compiled before", "compiled in the call"])
@pytest.mark.parametrize("function", [lambda x: x * 2, doubled_in_two_graphs], ids=["whole", "broken"])
def test_what_python_calls_may_be_compiled_by_torch(function, first, dynamo):
    """What torch.compile does to compile is not captured, nor is the code that it makes. The rest of the program is."""
    compiled = torch.compile(function, backend=Counter())
    if first:
        compiled(X)

    called_by_c = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(compiled)

    def program(x):
        y = called_by_c(x + 1)
        return y.sin() + 1
    f = sot.to_static(program, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(f(X), function(X + 1).sin() + 1, rtol=0, atol=0)
    names = [capture.name.rpartition(".")[2] for capture in f.captures if capture.graph is not None]
    assert [name for name in names if name != "forward"] == ["program", "program"]      # forward: that of torch's graph


class Halved(nn.Module):
    def forward(self, x):
        return x / 2


@pytest.mark.parametrize("make", [Halved, lambda: lambda x: x / 2], ids=["module", "function"])
def test_what_torch_has_compiled_is_translated_from_the_original(make, dynamo):
    original, backend = make(), Counter()
    compiled = torch.compile(original, backend=backend)
    f = sot.to_static(compiled, backend="eager")
    assert (f is compiled) == isinstance(original, nn.Module)
    for _ in range(2):
        assert torch.equal(f(X), X / 2)
    assert not backend.graphs
    assert len(sot.translation_of(f).graphs) == 1
    assert len(sot.explain(compiled)(X).graphs) == 1
