"""Graphs that Inductor has compiled are kept for later processes, in a form that does not import Inductor."""
from __future__ import annotations

import functools
import json
import math
import operator
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import sot
from sot.backends import kept_graphs
from sot.backends.triton import cache
from sot.torch_compat import compilers
from sot.torch_compat.inductor.compiled_modules import around
from sot.torch_compat.inductor.functions import name_of
from sot.torch_compat.inductor.module_text import Needs, Refused, call_of, short_form
from sot.torch_compat.inductor.own_functions import traced_by_its_arguments

MODULE = """
import math
from torch._inductor.select_algorithm import extern_kernels
from torch._inductor.async_compile import AsyncCompile
aten = torch.ops.aten
import torch
unused = torch.ops.inductor.seeds
seeds = torch.ops.inductor
limit = 3
async_compile = AsyncCompile()
async_compile.wait(globals())
class Runner:
    def call(self, args):
        a, b = args
        args.clear()
        return extern_kernels.mm(a, b), limit
runner = Runner()
call = runner.call
def get_args():
    from torch._dynamo.testing import rand_strided
"""
GIVEN = {"extern_kernels": SimpleNamespace(mm=torch.mm, own=print), "limit": 3}


# ---- the short form of a module ----


def test_a_short_module_has_what_a_call_needs():
    source, needs = short_form(MODULE, GIVEN)
    assert "_inductor" not in source and "unused" not in source and "get_args" not in source
    assert needs == Needs(["mm"], {})
    a = torch.ones(2, 2)
    product, limit = call_of(source, needs, "short.py")([a, a])
    assert torch.equal(product, a @ a) and limit == 3


@pytest.mark.parametrize("statement, given", [
    ("return extern_kernels.own(a)", {}),
    ("return AsyncCompile(a)", {}),
    ("return torch._inductor.utils(a)", {}),
    ("return torch.ops.inductor.seeds(a)", {}),
    ("return unused(a)", {}),
    ("return seeds.seeds(a)", {}),
    ("return torch.ops.program.custom(a)", {}),
    ("return set_from_outside(a)", {}),
    ("return limit + a", {"limit": torch.ones(2)}),
])
def test_a_module_that_needs_more_is_refused(statement, given):
    source = MODULE.replace("return extern_kernels.mm(a, b), limit", statement)
    with pytest.raises(Refused):
        short_form(source, {**GIVEN, **given})


def test_the_checks_of_fake_kernels_need_no_inductor():
    """Inductor of torch 2.15 writes them behind operators that it calls."""
    import_of_it = "from torch._inductor.runtime.runtime_utils import assert_tensor_metadata\n"
    check = "assert_tensor_metadata(a, {}, (2, 1), {}, 'torch.ops.aten.rand')\n        return a"
    given = import_of_it + MODULE.replace("return extern_kernels.mm(a, b), limit", check)
    a = torch.ones(2, 2)
    for size, dtype, error in (((2, 2), "torch.float32", None), ((2, 2), "torch.float64", RuntimeError),
                               ((2, 3), "torch.float32", AssertionError)):
        source, needs = short_form(given.format(size, dtype), GIVEN)
        assert "_inductor" not in source
        if error is None:
            assert call_of(source, needs, "short.py")([a, a]) is a
        else:
            with pytest.raises(error):
                call_of(source, needs, "short.py")([a, a])


def test_what_surrounds_a_module_is_as_at_autograd():
    seen = []

    def call(inputs):
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        return (inputs[0].add_(1),)

    x = torch.zeros(2, requires_grad=True)
    with torch.autocast("cpu"):
        (result,) = around(call, [0], leaves_autocast=True)(x.detach())
        assert torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled() and seen == [(False, False)] and not result.requires_grad
    changed = torch.zeros(2)
    around(lambda inputs: (), [0], leaves_autocast=False)(changed)
    assert changed._version == 1
    with pytest.raises(ZeroDivisionError):
        around(lambda inputs: 1 / 0, [], leaves_autocast=False)()
    assert torch.is_grad_enabled()


# ---- names and keys ----


@traced_by_its_arguments
def of_the_package(x):
    return x


@functools.wraps(torch.nn.functional.relu)
def replacement(x):
    return x


class Text(str):
    __slots__ = ()

    def __repr__(self):
        return "'mean'"


@pytest.mark.parametrize("function, has_name", [
    (torch.conv2d, True), (torch.nn.functional.gelu, True), (torch.nn.functional.layer_norm, True),
    (torch.ops.aten.add.Tensor, True), (getattr, True), (torch.Tensor.add, True), (of_the_package, True),
    (replacement, False), (lambda x: x, False), (print, True), (len, True), ([].append, False),
    (torch.nn.Linear, False), (torch.nn.functional.max_pool2d, False), (operator.add, True),
    (math.sin, True), (os.getpid, False),
])
def test_functions_of_torch_have_names(function, has_name):
    assert (name_of(function) is not None) is has_name


def graph(constant=1.0, function=torch.add):
    made = torch.fx.Graph()
    x = made.placeholder("x")
    made.output((made.call_function(function, (x, constant)),))
    return torch.fx.GraphModule({}, made)


def key(*inputs, options=(), **parts):
    return kept_graphs.key_of(graph(**parts), inputs or (X,), dict(options))


X = torch.ones(2, 3)


@pytest.mark.parametrize("other", [
    lambda: key(constant=1),
    lambda: key(constant=-1.0),
    lambda: key(function=torch.mul),
    lambda: key(X.double()),
    lambda: key(torch.ones(3, 2).t()),
    lambda: key(torch.ones(2, 3, requires_grad=True)),
    lambda: key(torch.nn.Parameter(X)),
    lambda: key(torch.ones(7)[1:].view(2, 3)),
    lambda: key(options={"max_autotune": True}),
])
def test_a_key_is_of_graph_and_inputs(other):
    assert key() == key(torch.zeros(2, 3)) and None is not other() != key()


@pytest.mark.parametrize("inputs, parts", [
    ((X, X), {}), ((X.to_sparse(),), {}), ((torch.ones(2).to_mkldnn(),), {}),
    ((X,), {"function": replacement}), ((X,), {"constant": range(3)}),
    ((X,), {"constant": Text("mean")}), ((X,), {"constant": {Text("mean"): 1}}),
    ((X,), {"options": {"fallback": print}}),
])
def test_some_graphs_have_no_key(inputs, parts):
    assert key(*inputs, **parts) is None


def configured(**changes):
    return torch._inductor.config.patch(changes)


def with_threads(patch):
    patch.setattr(torch, "get_num_threads", lambda: 77)


def with_variable(patch):
    patch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")


def with_other_code(patch):
    patch.setattr(cache, "compiler_version", lambda: "another")


def with_einsum(patch):
    patch.setattr(torch.backends.opt_einsum, "strategy", "dp")


@pytest.mark.parametrize("change", [with_threads, with_variable, with_other_code, with_einsum])
def test_a_key_is_of_settings(change, monkeypatch):
    before = key()
    change(monkeypatch)
    assert None is not key() != before


@pytest.mark.slow
def test_a_key_is_the_same_in_each_run(monkeypatch):
    before = key()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "new in each run")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "torchinductor_user"))
    assert key() == before is not None
    program = """
import sys, torch
from sot.torch_compat.inductor.settings import settings
before = settings()
assert before is not None and "torch._inductor" not in sys.modules
import torch._inductor.compile_fx
assert settings() == before, (settings(), before)
"""
    env = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=300, env=env)


def test_a_key_is_of_the_state_of_torch():
    keys = {key()}
    for state in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu"), torch.autocast("cpu", torch.float16),
                  torch.backends.mkldnn.flags(enabled=False), torch.nn.attention.sdpa_kernel([]),
                  configured(max_fusion_size=3), configured(_pre_fusion_custom_pass="a private setting")):
        with state:
            keys.add(key())
    assert len(keys) == 9 and None not in keys


@pytest.mark.parametrize("setting", [
    {"fx_graph_cache": False}, {"force_disable_caches": True}, {"trace.enabled": True},
    {"post_grad_custom_pre_pass": lambda graph: None}, {"joint_custom_post_pass": X.add}], ids=", ".join)
def test_settings_turn_the_cache_off(setting):
    assert key() is not None
    with configured(**setting):
        assert key() is None


@pytest.mark.parametrize("variable", ["TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG"])
def test_a_user_who_watches_the_compiler_sees_it_compile(variable, monkeypatch):
    monkeypatch.setenv(variable, "+inductor")
    assert key() is None


@pytest.mark.parametrize("state", [
    lambda: torch.device("cpu"), forward_ad.dual_level, TorchDispatchMode,
    lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)])
def test_code_that_takes_part_in_a_compilation_turns_the_cache_off(state):
    with state():
        assert key() is None
    assert key() is not None


def test_kernels_of_the_program_turn_the_cache_off():
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("relu", lambda x: x, "SparseCPU")
        assert key() is None
    assert key() is not None


def test_rules_of_vmap_turn_the_cache_off_if_they_are_of_the_program():
    torch.vmap(torch.add)(X, X)
    assert key() is not None
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("lgamma", lambda x: x, "FuncTorchBatched")
        assert key() is None


# ---- compiled graphs ----

STEP = """
import json, sys, sot, torch
torch.manual_seed(0)
nn = torch.nn
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
step = sot.compile(step)
x = torch.arange(8.).view(2, 4)
losses = [step(x).item() for _ in range(4)]
state = [value.tolist() for value in model.state_dict().values()]
versions = [p._version for p in model.parameters()]
print(json.dumps([losses, state, versions, "torch._inductor.compile_fx" in sys.modules]))
"""


@pytest.mark.slow
def test_a_second_process_runs_the_same_kernels_without_inductor(tmp_path):
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "theirs"), "SOT_CACHE_DIR": str(tmp_path / "ours"),
           "TORCHINDUCTOR_COMPILE_THREADS": "1"}

    def run():
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", STEP], env=env, text=True, check=True,
                              stdout=subprocess.PIPE, timeout=300)
        *results, has_compiled = json.loads(done.stdout)
        return results, has_compiled

    first, has_compiled = run()
    assert has_compiled and run() == (first, False)
    shutil.rmtree(tmp_path / "ours")        # AOTAutograd's cache has the graph, so Inductor is not called
    again, has_compiled = run()
    assert has_compiled and again == first and run() == (first, False)
    for kernel in (tmp_path / "theirs").rglob("*.so"):
        kernel.unlink()
    again, has_compiled = run()
    assert has_compiled and again == first


@pytest.mark.slow
def test_a_graph_that_is_not_kept_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path))
    x, expected = torch.arange(6.).view(2, 3), torch.arange(6.).view(3, 2)

    def view(x):
        return x.view(3, 2), x * 2.75

    for _ in range(2):
        result, _ = sot.to_static(view, backend="inductor")(x)
        assert torch.equal(result, expected) and result.data_ptr() == x.data_ptr()
        monkeypatch.setattr(compilers, "without_cache_of_autograd", None)   # it is not traced again to be kept
    texts = [path.read_text() for path in Path(tmp_path, "kernels").glob("*.py")]
    assert texts == ["# Not kept: AOTAutograd changes inputs or results at run time"]


@pytest.mark.slow
def test_a_kernel_that_is_different_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path))
    x = torch.arange(6.).view(2, 3)
    expected = [x * 2.5 + 1, x.relu()]

    def two(x):
        return x * 2.5 + 1, x.relu()

    assert all(map(torch.equal, sot.compile(two)(x), expected))
    (file,) = (path for path in Path(tmp_path, "kernels").glob("*.json"))
    compiled = kept_graphs.find(file.stem)
    assert all(map(torch.equal, compiled(x), expected))
    (path, _, _), = cache.about(file.with_suffix(".py"))["kernels"].values()
    content = Path(path).read_bytes()
    try:
        os.unlink(path)
        Path(path).write_bytes(content + b"more")
        assert kept_graphs.find(file.stem) is None
    finally:
        os.unlink(path)
        Path(path).write_bytes(content)
