"""Checking mode: plain Python beside what was captured; a difference is found, cut down, and saved as a program."""
import copy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import sot
from sot.checking.calls import CheckError, CheckRateError, CheckWarning
from sot.checking.compare import copied, difference
from sot.checking.graphs import smallest


def cosine_for_sine(gm, inputs):
    """A backend with a mistake."""
    gm = copy.deepcopy(gm)
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm.forward


def f(x, y):
    a = torch.relu(x) * y
    b = torch.sin(a) + 1
    return b.sum() * y


ARGS = torch.linspace(-1, 2, 4), torch.ones(4)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CHECK_DIR", str(tmp_path))
    monkeypatch.delenv("SOT_STRICT", raising=False)
    sot.reset()


def quietly(fn, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fn(*args)


# ---- no difference ----------------------------------------------------------------------------------------
def test_a_right_function_is_silent_and_what_it_was():
    torch.testing.assert_close(quietly(sot.to_static(f, backend="eager", check=True), *ARGS), f(*ARGS))


def test_random_numbers_and_mutations_happen_once():
    def g(x, log):
        x.add_(1)
        log.append(len(log))
        return torch.rand(2) + x

    x, log = torch.zeros(2), []
    torch.manual_seed(0)
    want = torch.rand(2) + 1
    torch.manual_seed(0)
    got = quietly(sot.to_static(g, backend="eager", check=True), x, log)
    assert torch.equal(got, want) and torch.equal(x, torch.ones(2)) and log == [0]


def test_output_is_printed_once(capsys):
    def g(x):
        print("once")
        return x + 1

    quietly(sot.to_static(g, backend="eager", check=True), torch.ones(2))
    assert capsys.readouterr().out == "once\n"


def test_a_module_with_batch_norm_and_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    twin = copy.deepcopy(model)
    x = torch.randn(5, 4)
    torch.manual_seed(1)
    want = twin(x)
    want.sum().backward()
    torch.manual_seed(1)
    got = quietly(sot.to_static(model, backend="eager", check=True), x)
    got.sum().backward()
    assert torch.equal(got, want)
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(model[0].weight.grad, twin[0].weight.grad)


def test_what_raises_raises_the_same():
    def g(x):
        raise ValueError(f"no {x.shape}")

    with pytest.raises(ValueError, match="no torch.Size"):
        quietly(sot.to_static(g, backend="eager", check=True), torch.ones(2))


# ---- a difference -----------------------------------------------------------------------------------------
def test_a_wrong_backend_is_found_and_cut_down_to_one_operation(tmp_path):
    with pytest.warns(CheckWarning) as found:
        sot.to_static(f, backend=cosine_for_sine, check=True)(*ARGS)
    messages = [str(w.message) for w in found]
    assert any("The smallest graph that shows it has 1 operation(s), sin" in m for m in messages)
    assert any(m.startswith("f captured differs from f in plain Python: the result") for m in messages)


@pytest.mark.slow
def test_the_program_that_is_saved_shows_it_again(tmp_path):
    with pytest.warns(CheckWarning):
        sot.to_static(f, backend=cosine_for_sine, check=True)(*ARGS)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, tmp_path / "difference.py"], capture_output=True, text=True,
                          env={"PYTHONPATH": f"{root}:{root / 'tests' / 'checking'}", "PATH": ""}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the output[0]: Tensor-likes are not close!")


def test_only_the_gradients_differ(tmp_path):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    def backend(gm, inputs):
        return lambda *args: tuple(Wrong.apply(out / 2) for out in gm(*args))

    x = torch.ones(3, requires_grad=True)
    with pytest.warns(CheckWarning, match="the gradients"):
        sot.to_static(lambda x: torch.relu(x) * 2, backend=backend, check=True)(x)


def test_strict_raises(monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")
    with pytest.raises(CheckError, match="f captured differs"), pytest.warns(CheckWarning, match="something else"):
        sot.to_static(f, backend=cosine_for_sine, check=True)(*ARGS)


def test_the_environment_switches_it_on(monkeypatch):
    monkeypatch.setenv("SOT_CHECK", "1")
    with pytest.warns(CheckWarning):
        sot.to_static(f, backend=cosine_for_sine)(*ARGS)


@pytest.mark.parametrize("rate", [-1, 2, "often"])
def test_a_rate_is_a_share(rate):
    with pytest.raises(CheckRateError, match="from 0 to 1"):
        sot.to_static(f, check=rate)


def test_what_cannot_be_copied_is_not_checked_and_runs():
    def g(x, items):
        return x + next(items)

    with pytest.warns(CheckWarning, match="is not checked"):
        got = sot.to_static(g, backend="eager", check=True)(torch.ones(1), (i for i in range(3)))
    assert got.item() == 1


# ---- the parts --------------------------------------------------------------------------------------------
def test_copies_share_what_the_originals_share():
    base = torch.arange(6.0)
    a, b, c = copied([base, base[2:4], {"again": base}])
    assert c["again"] is a and torch.equal(b, base[2:4])
    a[2] = 100
    assert b[0] == 100 and base[2] == 2


@pytest.mark.parametrize(("got", "want", "said"), [
    ([1, 2], [1, 3], "x[1] is 2, and plain Python has 3"),
    ([1], (1,), "x is list [1], and plain Python has tuple (1,)"),
    ({"a": 1}, {"b": 1}, "x has the keys ['a'], and plain Python has ['b']"),
    (torch.ones(2), torch.ones(2, requires_grad=True), "x.requires_grad is False, and in plain Python True"),
    (float("nan"), float("nan"), None),
])
def test_a_difference_is_a_sentence(got, want, said):
    assert difference(got, want, "x") == said


def test_two_operations_that_are_wrong_only_together():
    def backend(gm, inputs):
        if len([n for n in gm.graph.nodes if n.op.startswith("call_")]) < 2:
            return gm.forward
        return lambda *args: tuple(out + 1 for out in gm(*args))

    graphs = []
    sot.to_static(f, backend=lambda gm, inputs: graphs.append((gm, inputs)) or gm.forward)(*ARGS)
    module, _ = smallest(*graphs[0], backend)
    assert len([n for n in module.graph.nodes if n.op.startswith("call_")]) == 2
