"""Backends: names, refusals, and each way of running a graph gives the graph's own results and gradients."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import sot
import sot.backends as backends
from sot.backends import BackendError, BackendUnavailableError, UnknownBackendError, registry

WORKING = [
    "auto",
    "eager",
    "eager_noexcept",
    "eager_debug",
    "aot_eager",
    "aot_eager_default_partitioner",
    "aot_eager_decomp_partition",
    "aot_eager_decomp_partition_crossref",
    "aot_ts",
    "invoke_subgraph",
    "pre_dispatch_eager",
    "ts",
    pytest.param("inductor", marks=pytest.mark.slow),
]

# ---- graphs to compile ----


def linear_block(parameters_as: str = "placeholder") -> GraphModule:
    """relu(x W + b) + x, and x W + b: two outputs, one an intermediate of the other."""
    graph, root = Graph(), torch.nn.Module()
    x = graph.placeholder("x")
    if parameters_as == "placeholder":
        weight, bias = graph.placeholder("weight"), graph.placeholder("bias")
    else:
        root.weight, root.bias = parameters()
        weight, bias = graph.get_attr("weight"), graph.get_attr("bias")
    hidden = graph.call_function(torch.nn.functional.linear, (x, weight, bias))
    graph.output((graph.call_function(torch.add, (graph.call_method("relu", (hidden,)), x)), hidden))
    return GraphModule(root, graph)


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in [(4, 4), (4,)]]


def some_input(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows), requires_grad=True)


def symbolic_block() -> tuple[GraphModule, FakeTensorMode]:
    """x.reshape(n * 4) * n, where n is the symbolic number of rows of x."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    fake = mode.from_tensor(some_input(), symbolic_context=context)
    graph = Graph()
    n, x = graph.placeholder("n"), graph.placeholder("x")
    n.meta["example_value"], x.meta["example_value"] = fake.shape[0], fake
    flat = graph.call_method("reshape", (x, graph.call_function(operator.mul, (n, 4))))
    graph.output((graph.call_function(torch.mul, (flat, n)),))
    return GraphModule(torch.nn.Module(), graph), mode


def results_and_gradients(run, inputs):
    for tensor in inputs:
        tensor.grad = None
    outputs = run(*inputs)
    sum((index + 1) * output.square().sum() for index, output in enumerate(outputs)).backward()
    return [*outputs, *(tensor.grad for tensor in inputs)]


# ---- every backend computes the graph ----


@pytest.mark.parametrize("name", WORKING)
def test_results_and_gradients_are_the_graphs_own(name):
    inputs = [some_input(), *parameters()]
    compiled = backends.call_backend(backends.lookup_backend(name), linear_block(), inputs)
    expected = results_and_gradients(linear_block(), inputs)
    torch.testing.assert_close(results_and_gradients(compiled, inputs), expected)


@pytest.mark.parametrize("name", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_parameters_may_be_attributes_of_the_graph_module(name):
    gm, x = linear_block(parameters_as="attribute"), some_input()
    compiled = backends.call_backend(backends.lookup_backend(name), gm, [x])
    expected = results_and_gradients(linear_block(), [x, *parameters()])
    torch.testing.assert_close(results_and_gradients(compiled, [x]), expected[:3])
    torch.testing.assert_close([gm.weight.grad, gm.bias.grad], expected[3:])


@pytest.mark.parametrize("name", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_symbolic_inputs_stay_symbolic(name):
    gm, mode = symbolic_block()
    compiled = backends.call_backend(backends.lookup_backend(name), gm, [3, some_input(3)])
    for rows in (3, 5, 7):
        x = some_input(rows)
        torch.testing.assert_close(compiled(rows, x)[0], x.reshape(rows * 4) * rows)
    assert not mode.shape_env.guards


def test_fake_inputs_are_used_as_they_are():
    mode, real = FakeTensorMode(shape_env=ShapeEnv()), [some_input(), *parameters()]
    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in real]
    compiled = backends.call_backend(backends.lookup_backend("aot_eager"), linear_block(), fakes)
    torch.testing.assert_close(compiled(*real), linear_block()(*real))


def test_an_aot_autograd_backend_of_the_users_own_works():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    seen = []

    def compiler(gm, inputs):
        seen.append(len(list(gm.graph.nodes)))
        return make_boxed_func(gm.forward)

    inputs = [some_input(), *parameters()]
    compiled = backends.call_backend(aot_autograd(fw_compiler=compiler), linear_block(), inputs)
    expected = results_and_gradients(linear_block(), inputs)
    torch.testing.assert_close(results_and_gradients(compiled, inputs), expected)
    assert len(seen) == 2  # a forward and a backward graph


def test_inference_needs_no_gradients():
    with torch.no_grad():
        inputs = [some_input(), *parameters()]
        compiled = backends.call_backend(backends.lookup_backend("aot_eager"), linear_block(), inputs)
        assert not compiled(*inputs)[0].requires_grad


def test_eager_is_the_graphs_forward():
    gm = linear_block()
    assert backends.lookup_backend("eager")(gm, []) == gm.forward


# ---- names ----


def test_every_name_of_torch_compile_is_known():
    names = torch._dynamo.list_backends(exclude_tags=())
    assert set(names) <= set(backends.list_backends())
    refused = {}
    for name in names:
        try:
            backends.lookup_backend(name)
        except BackendUnavailableError as error:
            refused[name] = str(error)
    assert all("needs" in reason or "further arguments" in reason for reason in refused.values())
    assert "inductor" not in refused


def test_a_callable_is_taken_as_it_is():
    def mine(gm, example_inputs):
        return gm.forward

    assert backends.lookup_backend(mine) is mine


def test_an_unknown_name_gets_the_known_ones_and_a_suggestion():
    with pytest.raises(
        UnknownBackendError, match="unknown backend 'inducter'. Did you mean 'inductor'"
    ) as caught:
        backends.lookup_backend("inducter")
    assert isinstance(caught.value, ValueError)
    assert "aot_eager, " in str(caught.value)


@pytest.mark.parametrize("bad", [None, 3, ["eager"]])
def test_what_is_neither_name_nor_callable_is_refused(bad):
    with pytest.raises(TypeError, match="a backend must be a name or a callable"):
        backends.lookup_backend(bad)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_triton_needs_a_cuda_device_or_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BackendUnavailableError, match="needs a CUDA device and the package triton, and .*TRITON_INTER"):
        backends.lookup_backend("triton")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_auto_says_why_it_is_eager(caplog):
    with caplog.at_level("DEBUG", logger="sot.backends"):
        compiled = backends.lookup_backend("auto")(gm := linear_block(), [some_input(), *parameters()])
    assert compiled == gm.forward
    assert "auto: eager, because the graph has no CUDA tensor" in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cudagraphs_needs_a_cuda_device():
    with pytest.raises(BackendUnavailableError, match="'cudagraphs' needs a CUDA device"):
        backends.lookup_backend("cudagraphs")


def test_a_backend_that_takes_more_than_graph_and_inputs_says_so():
    with pytest.raises(BackendUnavailableError, match=r"further arguments \(compiler_name\)"):
        backends.lookup_backend("dynamo_minifier_backend")


# ---- registering ----


@pytest.fixture
def registered():
    """Register under the names asked for; forget them afterwards."""
    names = []

    def register(name, *args, **kwargs):
        names.append(name)
        return backends.register_backend(name, *args, **kwargs)

    yield register
    for name in names:
        backends.unregister_backend(name)


def forward_of(gm, example_inputs):
    return gm.forward


def test_a_registered_backend_is_found_and_listed(registered):
    registered("mine", forward_of)
    assert backends.lookup_backend("mine") is forward_of
    assert "mine" in backends.list_backends()
    assert backends.backend_name(forward_of) == "mine"


def test_register_is_a_decorator_too(registered):
    @registered("mine")
    def compiler(gm, example_inputs):
        return gm.forward

    assert backends.lookup_backend("mine") is compiler


def test_a_taken_name_is_replaced_only_when_asked(registered):
    registered("mine", forward_of)
    registered("mine", forward_of)  # the same again, as when a module is imported twice
    with pytest.raises(ValueError, match="a backend 'mine' exists already"):
        registered("mine", lambda gm, inputs: gm)
    registered("eager", forward_of, replace=True)
    assert backends.lookup_backend("eager") is forward_of
    backends.unregister_backend("eager")
    assert backends.lookup_backend("eager") is not forward_of


@pytest.mark.parametrize(
    ("name", "fn", "message"),
    [
        ("", forward_of, "non-empty string"),
        (3, forward_of, "non-empty string"),
        ("mine", 3, "must be callable"),
    ],
)
def test_bad_registrations_are_refused(name, fn, message):
    with pytest.raises(TypeError, match=message):
        backends.register_backend(name, fn)


# ---- entry points ----


@pytest.fixture
def installed(monkeypatch):
    """Stand in for an installed package with an entry point of our group."""

    def install(name, value):
        point = EntryPoint(name, value, registry.ENTRY_POINT_GROUP)
        monkeypatch.setattr(registry, "_entry_points", lambda: {name: point})

    return install


def test_an_entry_point_names_a_backend(installed):
    installed("outside", "sot.backends.eager:eager")
    assert backends.lookup_backend("outside") is backends.lookup_backend("eager")
    assert "outside" in backends.list_backends()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_package:fn", r"cannot be loaded: ModuleNotFoundError"),
        ("sys:maxsize", r"is not callable but \d+ \(int\)"),
    ],
)
def test_a_broken_entry_point_is_named(installed, value, message):
    installed("outside", value)
    with pytest.raises(BackendError, match=f"backend 'outside' .*{message}"):
        backends.lookup_backend("outside")


# ---- what a backend may do wrong ----


def test_a_backend_that_raises_is_named_with_its_cause():
    def broken(gm, example_inputs):
        raise KeyError("no such op")

    with pytest.raises(BackendError, match="broken' raised KeyError: 'no such op'") as caught:
        backends.call_backend(broken, linear_block(), [])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("returned", "shown"), [(None, "None"), (3, r"3 \(int\)"), ("x" * 99, r"\.\.\. \(str\)")]
)
def test_a_backend_must_return_something_callable(returned, shown):
    with pytest.raises(
        BackendError, match=f"returned .*{shown}; it must return a callable"
    ):
        backends.call_backend(lambda gm, inputs: returned, linear_block(), [])


def test_a_keyboard_interrupt_is_not_the_backends_error():
    def interrupted(gm, example_inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backends.call_backend(interrupted, linear_block(), [])


def test_a_partial_or_an_object_has_a_name_to_show():
    class Compiler:
        def __call__(self, gm, example_inputs):
            return gm.forward

    assert backends.backend_name(functools.partial(forward_of)) == "partial"
    assert backends.backend_name(Compiler()).endswith("Compiler")
    assert backends.backend_name(backends.lookup_backend("aot_eager")) == "aot_eager"


# ---- weight ----


@pytest.mark.slow
def test_importing_the_package_does_not_import_dynamo():
    code = "import sys, sot.backends as b; b.lookup_backend('eager'); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "False"


# ---- modes ----


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_auto_leaves_a_mode_out_where_it_is_eager(mode, caplog):
    with caplog.at_level("DEBUG", logger="sot.backends"):
        compiled = backends.with_mode(backends.lookup_backend("auto"), mode)(gm := linear_block(), [some_input()])
    assert compiled == gm.forward
    assert f"because the graph has no CUDA tensor; mode {mode!r} is ignored" in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_triton_refuses_a_mode_in_its_interpreter(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    backend = backends.with_mode(backends.lookup_backend("triton"), "reduce-overhead")
    with pytest.raises(BackendUnavailableError, match="mode 'reduce-overhead' of backend 'triton' records CUDA graphs"):
        backends.call_backend(backend, linear_block(), [some_input()])


def twice(x):
    doubled = x * 2
    return doubled.clone(), doubled.clone()


def copied_into_new_memory(x):
    made = torch.zeros(3, 3)
    made[:] = x * 2
    return made, made.clone()


def a_gradient_and_its_copy(x):
    weight = torch.ones(3, 3, requires_grad=True)
    (x @ weight).sum().backward()
    return weight.grad, weight.grad.clone()


def a_view_of_the_other(x):
    doubled = x * 2
    return doubled, doubled[0]


@pytest.mark.parametrize("fn", [twice, copied_into_new_memory, a_gradient_and_its_copy, a_view_of_the_other])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_results_share_memory_only_if_the_programs_do(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for _ in range(2):
        got, expected = translated(torch.ones(3, 3)), fn(torch.ones(3, 3))
        for one, other in (got, expected):
            one.add_(1)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
