"""What a saved call does beside its graph: numbers and tensors of the model are kept, the rest dropped with a note."""
import copy
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import SaveError, SaveWarning

log = logging.getLogger(__name__)


class Stateful(nn.Module):
    """Keeps numbers and tensors in every way that programs do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.uses = 0
        self.calls, self.scale = 0, 1.0
        self.register_buffer("average", torch.zeros(4))
        self.total = torch.zeros(4)

    def forward(self, x):
        self.calls += 1
        self.linear.uses += 2
        y = self.linear(x)
        self.scale *= 0.5
        self.average = self.average * 0.9 + y.detach().mean(0) * 0.1
        self.total += y.detach().sum(0)
        return y * self.scale + self.calls + self.average


class Collecting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.history, self.stats, self.last = [], {"calls": 0}, None

    def forward(self, x):
        y = self.linear(x)
        self.history.append(y.mean())
        self.stats["calls"] += 1
        self.last = y
        log.info("called")
        print("called")
        return y


@pytest.fixture
def saved(tmp_path):
    def save_and_load(model, spec, **more):
        return sot.load(sot.save(model, tmp_path / "m", input_spec=spec, **more))
    return save_and_load


def same(got, want):
    torch.testing.assert_close(got, want)


def test_numbers_and_tensors_of_a_model_are_kept(saved):
    model = Stateful()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = saved(model, [InputSpec((None, 4))])
    for n in 3, 2, 5:
        x = torch.randn(n, 4)
        same(loaded(x), model(x))
    assert (loaded.calls.item(), loaded.linear.uses.item(), loaded.scale.item()) == (3, 6, 0.125)
    same(loaded.average, model.average)
    same(loaded.total, model.total)


def test_kept_numbers_are_no_part_of_the_state_dict(saved):
    model = Stateful()
    assert set(saved(model, [InputSpec((None, 4))]).state_dict()) == set(model.state_dict())


def test_saving_leaves_the_model_as_it_was(saved):
    model = nn.Sequential(Stateful(), nn.BatchNorm1d(4), Collecting())
    before = copy.deepcopy(model)
    torch.manual_seed(0)
    with pytest.warns(SaveWarning):
        saved(model, [InputSpec((None, 4))])
    assert torch.initial_seed() == 0 and torch.equal(torch.rand(2), torch.manual_seed(0) and torch.rand(2))
    assert model[0].calls == 0 and model[0].scale == 1.0 and model[2].history == [] and model[2].last is None
    assert model[2].stats == {"calls": 0}
    for name, value in before.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    assert torch.equal(before[0].total, model[0].total)


def test_other_effects_are_dropped_with_one_note(saved, capsys):
    model = Collecting()
    with pytest.warns(SaveWarning) as noted:
        loaded = saved(model, [InputSpec((None, 4))])
    assert len(noted) == 1
    text = str(noted[0].message)
    assert all(name in text for name in ("self.history", "self.stats", "self.last", "printed and logged output"))
    assert "defects" not in text and "globals" not in text
    x = torch.randn(3, 4)
    same(loaded(x), model.linear(x))
    assert capsys.readouterr().out == ""


def test_an_attribute_that_decides_what_is_computed_is_named(saved):
    class Lazy(nn.Module):
        ready = False

        def __init__(self):
            super().__init__()
            self.linear, self.ready = nn.Linear(4, 4), False

        def forward(self, x):
            if not self.ready:
                self.ready = True
            return self.linear(x)

    with pytest.warns(SaveWarning, match=r"self.ready \(which decides what the call computes: it stays False\)"):
        saved(Lazy(), [InputSpec((None, 4))])


def test_effects_of_a_function_are_dropped(saved):
    calls = []

    def f(x):
        calls.append(1)
        return x * 2

    with pytest.warns(SaveWarning, match="calls"):
        loaded = saved(f, [InputSpec((None,))])
    same(loaded(torch.ones(3)), torch.full((3,), 2.0))
    assert calls == []


def test_the_state_before_a_call_may_be_returned(saved):
    class Previous(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("held", torch.zeros(3))

        def forward(self, x):
            before, self.held = self.held, x * 2
            return before

    model = Previous()
    loaded = saved(model, [InputSpec((3,))])
    for _ in range(3):
        x = torch.randn(3)
        same(loaded(x), model(x))


def test_a_cache_that_is_written_in_place_is_kept(saved):
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = [torch.zeros(1, 8, 4) for _ in range(2)]
            self.linear = nn.Linear(4, 4)

        def forward(self, x, at):
            for keys in self.keys:
                x = self.linear(x)
                keys.index_copy_(1, at, x)
                x = x + keys.sum(1, keepdim=True)
            return x

    model = Cached().eval()
    with torch.no_grad():
        loaded = saved(model, [InputSpec((1, 1, 4)), InputSpec((1,), torch.long)])
        for step in range(4):
            x, at = torch.randn(1, 1, 4), torch.tensor([step])
            same(loaded(x, at), model(x, at))


def test_a_buffer_may_be_written_with_what_has_a_gradient(saved):
    """The save calls the model once: that must not leave a history in its buffers, or in those of the file."""
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("keys", torch.zeros(3, 4))

        def forward(self, x, at):
            self.keys.index_copy_(0, at, self.linear(x))
            return x @ self.keys.T

    model = Cached()
    loaded = saved(model, [torch.ones(1, 4), torch.tensor([0])])
    assert not model.keys.requires_grad and model.keys.is_leaf and not model.keys.any()
    for i in range(3):
        x, at = torch.randn(1, 4), torch.tensor([i])
        assert torch.equal(loaded(x, at), model(x, at))


def test_a_number_read_from_a_tensor_is_refused_as_a_result(tmp_path):
    with pytest.raises(SaveError, match="Return a tensor|needed as a Python number"):
        sot.save(lambda x: (x + 1, x.sum().item()), tmp_path / "m", input_spec=[InputSpec((3,))])


@pytest.mark.slow
def test_kept_state_needs_no_program(tmp_path):
    model = Stateful()
    sot.save(model, tmp_path / "m", input_spec=[InputSpec((None, 4))])
    code = "import sot, torch; m = sot.load('m'); m(torch.ones(2, 4)); print(m(torch.ones(3, 4)).sum().item())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env={"PYTHONPATH": str(Path(sot.__file__).parent.parent), "PATH": ""})
    assert done.returncode == 0, done.stderr
    model(torch.ones(2, 4))
    assert float(done.stdout) == pytest.approx(model(torch.ones(3, 4)).sum().item(), rel=1e-4)


def test_an_object_comes_back_as_a_record(saved):
    class Cache:
        def __init__(self, x):
            self.layers, self.updated, self.name = [(x, x * 2)], {0: True}, "text"

    class Net(nn.Module):
        def forward(self, x):
            return {"y": x + 1, "cache": Cache(x), "top": x.max(1)}

    loaded = saved(Net(), [InputSpec((None, 3))])
    x = torch.randn(2, 3)
    got = loaded(x)
    assert torch.equal(got["cache"].layers[0][1], x * 2) and got["cache"].updated == {0: True}
    assert torch.equal(got["top"].indices, x.max(1).indices) and torch.equal(got["top"][0], x.max(1)[0])
    assert torch.equal(got["cache"][0][0][0], x)


class Cached(nn.Module):
    """A cache of keys with a position that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(1, 6, 4))
        self.register_buffer("marks", torch.zeros(2, 6))
        self.position = 0

    def forward(self, x):
        self.keys[:, self.position] = self.project(x)
        self.keys[..., self.position - 6, :] = self.project(x) * 2
        self.marks[1, self.position] = 1.5
        self.position += 1
        return self.keys.sum(1), self.marks.clone()


@pytest.mark.slow
def test_a_cache_is_written_at_a_kept_position(saved):
    model = Cached().eval()
    loaded = saved(model, [InputSpec((1, 4))])
    for _ in range(4):
        x = torch.randn(1, 4)
        for got, want in zip(loaded(x), model(x), strict=True):
            torch.testing.assert_close(got, want)
    for _ in range(2):
        loaded(x)
    with pytest.raises(IndexError):
        loaded(x)


class CachedRanges(nn.Module):
    """A cache for several rows and tokens, written in place from a position that is kept, and read up to there."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(4, 16, 4))
        self.register_buffer("marks", torch.zeros(4, 16, 2))
        self.position = 0

    def forward(self, x):
        rows, length, _ = x.shape
        end = self.position + length
        self.keys[:rows, self.position:end] = self.project(x)
        self.marks[:rows, self.position:end] = x[:1, :, :1]
        self.position = end
        return x @ self.keys[:rows, :end].transpose(1, 2), self.marks.sum(1)


@pytest.mark.slow
def test_a_cache_is_written_at_a_range_from_a_kept_position(saved):
    loaded, model = saved(CachedRanges().eval(), [InputSpec((None, None, 4))]), CachedRanges().eval()
    model.load_state_dict(loaded.state_dict())
    with torch.no_grad():
        for rows, length in (3, 5), (3, 4), (2, 3), (4, 2):
            x = torch.randn(rows, length, 4)
            for got, want in zip(loaded(x), model(x), strict=True):
                torch.testing.assert_close(got, want)
        same(loaded.keys, model.keys)
        with pytest.raises(IndexError):
            loaded(torch.randn(2, 3, 4))        # 14 and 3 of 16


class Changing(nn.Module):
    """Changes a weight or a buffer at each call, in a way of the program's."""

    def __init__(self, change, after=None):
        super().__init__()
        self.weight, self.change, self.after = nn.Parameter(torch.ones(3)), change, after
        self.register_buffer("average", torch.ones(3))

    def forward(self, x):
        if self.change is not None:
            self.change(self, x)
        y = x * self.weight * self.average
        if self.after is not None:
            self.after(self, x)
        return y


@torch.no_grad()
def scale(model, x):
    model.weight.copy_(model.weight * 0.9)


def scale_data(model, x):
    model.weight.data.mul_(0.9)


def move_average(model, x):
    model.average.data.mul_(0.9).add_(x.mean(0), alpha=0.1)


def set_data(model, x):
    model.average.data = model.average * 0.9 + x.mean(0)


def set_weight(model, x):
    model.weight.data = model.weight.data * 0.9


@pytest.mark.parametrize("model", [Changing(scale), Changing(scale_data), Changing(move_average), Changing(set_data),
                                   Changing(None, set_weight)], ids=[
    "within no_grad", "by way of .data", "of a buffer by way of .data", "data of a buffer", "data of a weight"])
def test_changes_of_weights(model, saved):
    before, x = copy.deepcopy(model.state_dict()), torch.randn(4, 3)
    loaded = saved(model, [InputSpec((None, 3))])
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])     # saving does not change the model
    for _ in range(3):
        torch.testing.assert_close(loaded(x), model(x))
    for name, value in loaded.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name])


class Exchanging(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        weights = {name: weight + x.mean() for name, weight in self.linear.named_parameters()}
        return torch.func.functional_call(self.linear, weights, (x,))


def test_weights_that_are_exchanged_for_a_call_are_no_change(saved):
    model, x = Exchanging(), torch.randn(4, 3)
    loaded = saved(model, [InputSpec((None, 3))])
    for _ in range(2):
        torch.testing.assert_close(loaded(x), model(x))


class Routing(nn.Module):
    """An index that may be out of range, after a buffer and a counter have changed."""

    def __init__(self):
        super().__init__()
        self.gate, self.calls = nn.Linear(3, 4), 0
        self.register_buffer("load", torch.zeros(4))

    def forward(self, x):
        self.load += nn.functional.one_hot(self.gate(x).argmax(-1), 4).sum(0)
        self.calls += 1
        place = (self.gate(x).argmax(-1) + self.load.argmax()) % 4
        return torch.zeros(4, 3).index_add(0, place, x)


def test_an_operation_that_may_raise_after_a_change(saved):
    model, x = Routing(), torch.randn(5, 3)
    loaded = saved(model, [InputSpec((None, 3))])
    for _ in range(2):
        torch.testing.assert_close(loaded(x), model(x))
    assert torch.equal(loaded.state_dict()["load"], model.load)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_that_a_hook_computes_at_each_call(saved, norm, training):
    """The hook leaves the weight, which has a history, in the module."""
    model = norm(nn.Linear(3, 2)).train(training)
    loaded = saved(model, [InputSpec((None, 3))])
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for _ in range(2):
        x = torch.randn(4, 3)
        got, want = loaded(x), model(x)
        torch.testing.assert_close(got, want)
    got.sum().backward()
    want.sum().backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(loaded.get_parameter(name).grad, weight.grad)
