"""save and load: a model in a file runs and trains without the program that made it."""
import json
import subprocess
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import LoadError, SaveError
from sot.deploy.program_text import is_allowed, is_arithmetic


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3, bias=False)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x, mask=None, power=2):
        y = self.head(self.body(x)) * self.scale**power
        return {"logits": y if mask is None else y * mask, "size": [x.sum(), None, 3]}

    def embed(self, x):
        return self.body(x)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 2))

    def encode(self, x):
        return torch.tanh(x @ self.weight)

    def decode(self, z):
        return z @ self.weight.T

    def forward(self, x):
        return self.decode(self.encode(x))


@pytest.fixture(autouse=True)
def seeded():
    sot.reset()
    torch.manual_seed(0)


@pytest.fixture
def saved(tmp_path):
    def save_and_load(model, spec, **more):
        file = sot.save(model, tmp_path / "m", input_spec=spec, **more)
        assert file == tmp_path / "m.pt2"
        return sot.load(tmp_path / "m")
    return save_and_load


def same(got, want):
    torch.testing.assert_close(got, want, rtol=0, atol=0)


# ---- what comes back --------------------------------------------------------------------------------------
def test_a_model_computes_what_it_did(saved):
    net = Net().eval()
    loaded = saved(net, [InputSpec((5, 4))])
    x = torch.randn(5, 4)
    got, want = loaded(x), net(x)
    same(got["logits"], want["logits"])
    assert got["size"][1:] == [None, 3] and torch.equal(got["size"][0], want["size"][0])


def test_the_name_of_the_file_may_have_its_ending(tmp_path):
    net = Net().eval()
    assert sot.save(net, tmp_path / "m.pt2", input_spec=[InputSpec((5, 4))]) == tmp_path / "m.pt2"
    assert sot.save(net, tmp_path / "m", input_spec=[InputSpec((5, 4))]) == tmp_path / "m.pt2"
    x = torch.randn(5, 4)
    same(sot.load(tmp_path / "m.pt2")(x)["logits"], net(x)["logits"])


def test_weights_keep_their_names(saved):
    net = Net().eval()
    loaded = saved(net, [InputSpec((5, 4))])
    used = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
    assert set(loaded.state_dict()) == set(used)
    for name, weight in used.items():
        assert torch.equal(loaded.state_dict()[name], weight)


def test_arguments_can_be_given_by_name(saved):
    net = Net().eval()
    loaded = saved(net, {"x": InputSpec((5, 4)), "mask": InputSpec((3,)), "power": 3})
    x, mask = torch.randn(5, 4), torch.tensor([1.0, 0.0, 1.0])
    for got in loaded(x=x, mask=mask, power=3), loaded(x, mask=mask), loaded(x, mask, 3):
        same(got["logits"], net(x, mask, 3)["logits"])
    with pytest.raises(TypeError, match="saved with the arguments x, mask, power"):
        loaded(x)


def test_a_function_can_be_saved(saved):
    def f(pair, table):
        return torch.relu(pair[0]) + table["b"] * 2, pair[1].sum()

    loaded = saved(f, [(InputSpec((3,)), InputSpec((2, 2))), {"b": InputSpec((3,))}])
    args = (torch.randn(3), torch.randn(2, 2)), {"b": torch.randn(3)}
    same(loaded(*args), f(*args))


def test_the_input_spec_of_to_static_is_used(saved):
    net = sot.to_static(Net().eval(), input_spec=[InputSpec((5, 4))])
    x = torch.randn(5, 4)
    same(saved(net, None)(x)["logits"], net(x)["logits"])


def test_dimensions_that_may_differ(saved):
    net = Net().eval()
    loaded = saved(net, [InputSpec((None, 4))])
    for batch in 2, 3, 9:
        x = torch.randn(batch, 4)
        torch.testing.assert_close(loaded(x)["logits"], net(x)["logits"])


def test_dimensions_of_one_name_are_equal(saved):
    def f(a, b):
        return (a * b).reshape(a.shape[0] * 2, -1)

    loaded = saved(f, [InputSpec(("n", 4)), InputSpec(("n", 4))])
    for n in 2, 5:
        a, b = torch.randn(n, 4), torch.randn(n, 4)
        same(loaded(a, b), f(a, b))
    with pytest.raises(Exception, match="n|size|shape"):
        loaded(torch.randn(2, 4), torch.randn(3, 4))


# ---- training ---------------------------------------------------------------------------------------------
def test_a_loaded_model_trains_as_the_original(saved):
    net = Net()
    loaded = saved(net, [InputSpec((5, 4))])
    twin = Net()
    twin.load_state_dict(net.state_dict())
    for model in loaded, twin:
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4))["logits"].square().sum().backward()
            optimizer.step()
    for name, weight in loaded.state_dict().items():
        torch.testing.assert_close(weight, twin.state_dict()[name], msg=name)


def test_the_other_mode_is_refused(saved):
    loaded = saved(Net().eval(), [InputSpec((5, 4))])
    loaded.eval()
    with pytest.raises(LoadError, match="saved in eval mode"):
        loaded.train()


def test_weights_can_be_loaded_into_it(saved):
    net = Net().eval()
    loaded = saved(net, [InputSpec((5, 4))])
    loaded.load_state_dict({k: v * 0 for k, v in loaded.state_dict().items()})
    assert loaded(torch.randn(5, 4))["logits"].abs().max() == 0


# ---- several methods, shared weights ----------------------------------------------------------------------
def test_methods_share_their_weights(saved):
    model = AutoEncoder()
    loaded = saved(model, None, methods={"encode": [InputSpec((3, 6))], "decode": [InputSpec((3, 2))]})
    assert loaded.methods == ("encode", "decode") and len(list(loaded.parameters())) == 1
    x = torch.randn(3, 6)
    same(loaded.decode(loaded.encode(x)), model(x))
    loaded.decode(loaded.encode(x)).sum().backward()
    model(x).sum().backward()
    torch.testing.assert_close(loaded.weight.grad, model.weight.grad)


def test_a_weight_with_two_names_stays_one(saved):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))

    tied = Tied()
    loaded = saved(tied, [InputSpec((2, 4))])
    assert len(list(loaded.parameters())) == 1
    same(loaded(torch.ones(2, 4)), tied(torch.ones(2, 4)))


def test_hooks_are_part_of_what_is_saved(saved):
    net = nn.Linear(4, 2)
    net.register_forward_hook(lambda module, args, output: output * 10)
    loaded = saved(net, [InputSpec((2, 4))])
    same(loaded(torch.ones(2, 4)), net(torch.ones(2, 4)))


def test_arrays_of_a_model_become_constants(saved):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = np.arange(4, dtype=np.float32)

        def forward(self, x):
            return x * torch.from_numpy(self.scales) + torch.as_tensor(self.scales * 2)

    model = Scaled()
    loaded = saved(model, [InputSpec((None, 4))])
    model_scales, x = model.scales.copy(), torch.randn(3, 4)
    want = model(x)
    model.scales[:] = 0
    assert torch.equal(loaded(x), want) and not model.scales.any() and model_scales.any()


@pytest.mark.parametrize("fn", [
    lambda x: x + torch.rand(4, generator=torch.Generator().manual_seed(0)),
    lambda x: torch.manual_seed(3) and x + torch.rand(4),
])
def test_random_states_of_the_program_are_refused(tmp_path, fn):
    with pytest.raises(SaveError, match="random"):
        sot.save(fn, tmp_path / "m", input_spec=[torch.randn(3, 4)])


def test_a_mask_is_no_constant(saved):
    """``to_static`` takes the values of a small tensor for a constant at first."""
    def fn(x, mask):
        return x[:, mask].sum(-1), x[0][mask]

    loaded = saved(fn, [InputSpec((None, 4)), InputSpec((4,), torch.bool)])
    for mask in (torch.tensor([True, False, True, True]), torch.tensor([False, False, True, False])):
        x = torch.randn(3, 4)
        torch.testing.assert_close(loaded(x, mask), fn(x, mask))


@pytest.mark.slow
def test_results_without_a_common_history(saved):
    """A backend that compiles would get two graphs."""
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)

        def forward(self, x):
            y, weights = self.attention(x, x, x)
            return self.norm(x + y), weights

    model, x = Attention().eval(), torch.randn(3, 6, 8)
    loaded = saved(model, [InputSpec((None, 6, 8))])
    torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.parametrize("fn", [
    lambda x: x * x.sum().item(),
    lambda x: x[x > 0] * 2,
    lambda x: x[(x.sum(1) > 0).nonzero().squeeze(-1)] @ torch.ones(4, 2),
    lambda x: x.sum() / max((x > 0).sum().item(), 1) + torch.zeros((x > 1).sum().item() + 1),
], ids=["a number", "a mask", "rows", "a size"])
@pytest.mark.parametrize("rows", [6, None], ids=["fixed", "dynamic"])
def test_sizes_that_depend_on_data(saved, fn, rows):
    loaded = saved(fn, [InputSpec((rows, 4))])
    for x in (torch.randn(6, 4), torch.zeros(6, 4), torch.ones(6, 4), torch.ones(rows or 9, 4)):
        same(loaded(x), fn(x))


# ---- what cannot be saved ---------------------------------------------------------------------------------
Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(("fn", "message"), [
    (lambda x: x * len([0] * int(x.sum().item())), "a tensor's value is needed as a Python number: item"),
    (lambda x: 3, "no operation on tensors"),
    (lambda x: (x + 1, object()), "returns an object"),
    (lambda x: (x + 1, b"text"), "returns a bytes"),
    (lambda: torch.ones(2), "does not fit"),
])
def test_what_is_not_one_whole_graph_is_refused(tmp_path, fn, message):
    with pytest.raises(SaveError, match=message):
        sot.save(fn, tmp_path / "m", input_spec=[InputSpec((3,))])
    assert not list(tmp_path.iterdir())


def test_an_input_spec_is_needed(tmp_path):
    with pytest.raises(SaveError, match="save needs an input_spec"):
        sot.save(Net(), tmp_path / "m")


def test_a_method_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(SaveError, match="no method 'encoed'"):
        sot.save(AutoEncoder(), tmp_path / "m", methods={"encoed": [InputSpec((3, 6))]})


# ---- what cannot be loaded --------------------------------------------------------------------------------
def rewritten(path, change):
    """The archive with some parts changed: ``change(name, data)`` answers the new data."""
    with zipfile.ZipFile(path) as archive:
        parts = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts:
            archive.writestr(name, change(name, data))


def test_a_missing_or_damaged_file_is_told(tmp_path):
    with pytest.raises(LoadError, match="there is no"):
        sot.load(tmp_path / "none")
    (tmp_path / "bad.pt2").write_bytes(b"not an archive")
    with pytest.raises(LoadError, match="cannot be read"):
        sot.load(tmp_path / "bad")


def test_an_unknown_version_is_refused(tmp_path):
    path = sot.save(Net().eval(), tmp_path / "m", input_spec=[InputSpec((5, 4))])
    rewritten(path, lambda name, data: json.dumps(json.loads(data) | {"format": 99}).encode()
              if name.endswith("sot.json") else data)
    with pytest.raises(LoadError, match="of format 99"):
        sot.load(path)


def test_a_pickled_weight_is_refused(tmp_path):
    path = sot.save(Net().eval(), tmp_path / "m", input_spec=[InputSpec((5, 4))])
    rewritten(path, lambda name, data: data.replace(b'"use_pickle": false', b'"use_pickle": true')
              if name.endswith("weights_config.json") else data)
    with pytest.raises(LoadError, match="can run code"):
        sot.load(path)


@pytest.mark.parametrize(("name", "data"), [
    ("data/sample_inputs/model.pt", b"pickle"), ("data/constants/custom_obj_0", b"x"),
    ("data/aotinductor/model/model.so", b"x"), ("data/weights/model.pt", b"x"),
])
def test_a_part_that_could_run_code_is_refused(tmp_path, name, data):
    path = sot.save(Net().eval(), tmp_path / "m", input_spec=[InputSpec((5, 4))])
    with zipfile.ZipFile(path) as archive:
        root = archive.namelist()[0].partition("/")[0]
    rewritten(path, lambda n, d: d)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{root}/{name}", data)
    with pytest.raises(LoadError, match="is not loaded"):
        sot.load(path)


@pytest.mark.parametrize("text", ["s0 + 1", "2*s0*s1", "Max(1, s0)", "FloorDiv(s0, 2)", "s0 >= 2", "-u0",
                                  "Mul(Float('0.5', precision=53), Symbol('zuf0'))"])
def test_arithmetic_is_accepted(text):
    assert is_arithmetic(text)


@pytest.mark.parametrize("text", [
    "__import__('os')", "().__class__", "eval('1')", "(lambda: 1)()", "s0.x", "[1][0]", "'a'", "Symbol('a b')", "",
    "Float('os', precision=53)", "Float('0.5', precision=10**9)", "Integer('5')"])
def test_other_expressions_are_not(text):
    assert not is_arithmetic(text)


# ---- beyond -----------------------------------------------------------------------------------------------
@pytest.mark.slow
class Importing(torch.nn.Module):
    def forward(self, x):
        import a_module_of_the_test
        return x * a_module_of_the_test.FACTOR


def test_a_module_that_the_first_call_imports(saved, tmp_path, monkeypatch):
    """A file has no imports, so they are no obstacle to capture."""
    (tmp_path / "a_module_of_the_test.py").write_text("FACTOR = 3")
    monkeypatch.syspath_prepend(tmp_path)
    loaded = saved(Importing(), [InputSpec((None,))])
    assert torch.equal(loaded(torch.ones(2)), torch.full((2,), 3.0))


def test_the_program_that_made_it_is_not_needed(tmp_path):
    net = Net().eval()
    sot.save(net, tmp_path / "m", input_spec=[InputSpec((5, 4))])
    done = subprocess.run(
        [sys.executable, "-c", "import sot, torch; print(sot.load('m')(torch.ones(5, 4))['logits'].sum().item())"],
        cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(Path(sot.__file__).parent.parent), "PATH": ""}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(net(torch.ones(5, 4))["logits"].sum().item())


def test_torch_reads_it_too(tmp_path):
    net = Net().eval()
    path = sot.save(net, tmp_path / "m", input_spec=[InputSpec((5, 4))])
    same(torch.export.load(path).module()(torch.ones(5, 4))["logits"], net(torch.ones(5, 4))["logits"])


class NormOfChannels(nn.Module):
    """Its batch norm gets rows that are transposed, and lays out its result differently than torch's rules say."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x.unflatten(0, (1, -1)).mT).mT


@pytest.mark.slow
@pytest.mark.parametrize("body", [nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)),
                                  NormOfChannels()])
def test_onnx_gives_equal_results(body, tmp_path):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    net = body.eval()
    loaded = sot.load(sot.save(net, tmp_path / "m", input_spec=[InputSpec((None, 4))]))
    torch.onnx.export(loaded.programs["forward"], (), tmp_path / "m.onnx", dynamo=True)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    x = torch.randn(5, 4)
    got = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(got[0]), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_loaded_program_has_example_inputs_for_aotinductor(tmp_path):
    class Two(nn.Module):
        def forward(self, x, scale, *, bias):
            return {"y": x * scale + bias}

    spec = {"x": InputSpec((None, 4)), "scale": 2.0, "bias": InputSpec((4,), "float64")}
    program = sot.load(sot.save(Two(), tmp_path / "m", input_spec=spec)).programs["forward"]
    args, kwargs = program.example_inputs
    (x,), bias = [a for a in args if isinstance(a, torch.Tensor)], kwargs["bias"]
    assert x.dtype is torch.float32 and x.ndim == 2 and x.shape[0] > 1 and x.shape[1] == 4
    assert bias.dtype is torch.float64 and bias.shape == (4,)
    assert program.module()(*args, **kwargs)["y"].shape == x.shape
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "compiled.pt2"))
    served = torch._inductor.aoti_load_package(package)
    given = torch.randn(3, 4)
    same(served(given, *args[1:], bias=kwargs["bias"] + 1)["y"], given.double() * 2 + 1)


@pytest.mark.parametrize("text", [
    "Pow(Pow(Integer(9), Integer(9)), Integer(9))", "9**9**9", "s0**99999", "1+" * 3000 + "1"])
def test_expressions_that_would_take_for_ever_are_refused(text):
    assert not is_arithmetic(text)
    assert is_arithmetic("Pow(Symbol('s0', integer=True), Integer(2))")


@pytest.mark.parametrize("target", [
    "torch.ops.aten.from_file.default", "torch.ops.strangers.write.default", "torch.hub.load", "torch.save",
    "torch.ops.load_library", "torch.ops.aten.add.Tensor.__class__", "torch.ops.aten.__class__.mro", "_operator.call",
    "_operator.methodcaller", "_operator.pow", "math.factorial", "math.__loader__.load_module",
    "torch.sym_max.__call__",
    "#extension:1", "os.system", "torch.ops.higher_order.cond.__call__", "torch.sym_max.x"])
def test_targets_that_could_do_more_than_compute_are_refused(target):
    assert not is_allowed(target)


@pytest.mark.parametrize("target", ["torch.ops.aten.add.Tensor", "torch.ops.higher_order.cond", "_operator.mul",
                                    "torch.sym_max", "math.ceil"])
def test_targets_that_compute_are_allowed(target):
    assert is_allowed(target)
