"""Writes of ``.data``, and the modules that make their parameters with the first input."""
from __future__ import annotations

import copy

import pytest
import torch
from harness import Counter, Programs, check, same
from torch import nn

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
G = X.clone().requires_grad_()
whole = Programs()


@whole
def an_argument(x):
    y = x * 2
    x.data = x.data + 1
    return y, x * 2


@whole
def another_shape(x):
    y = torch.zeros(2)
    y.data = x.detach()
    return y * 2, y.shape


@whole
def memory_is_shared(x):
    y, z = torch.zeros(3, 4), x.detach() * 2
    old = y.view(-1)
    y.data = z
    z.add_(1)
    y[0] = 7
    return y, z, old


@whole
def what_was_printed_before(x):
    y = torch.ones(2)
    print(y)
    y.data = torch.zeros(2)
    print(y)
    return x + 1


@whole
def layers(x):
    layer, average = nn.Linear(4, 2), nn.Linear(4, 2)
    for p, q in zip(layer.parameters(), average.parameters(), strict=True):
        q.data = q.data * 0.9 + p.data * 0.1
    return average(x), layer(x)


@whole.each
@pytest.mark.parametrize("x", [X, G], ids=["plain", "grad"])
def test_data_is_written_by_the_graph(fn, x):
    check(fn, x, breaks=0)


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.average = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        for p, q in zip(self.layer.parameters(), self.average.parameters(), strict=True):
            q.data = q.data * 0.9 + p.data * 0.1
        weight = self.layer.weight.data
        self.layer.weight.data = weight.half().float()
        y = self.layer(x) + self.average(x)
        self.layer.weight.data = weight
        return y


@pytest.mark.parametrize("backend", [Counter(), "aot_eager"], ids=["as it is", "compiling"])
def test_parameters_between_calls(backend):
    plain = Averaged()
    model = sot.to_static(copy.deepcopy(plain), backend=backend)
    for _ in range(3):
        assert same(model(X), plain(X)) is None
        assert same(list(model.parameters()), list(plain.parameters())) is None
    assert not [c.stopped for c in sot.translation_of(model).captures if c.stopped]


def test_a_write_stays_when_the_graph_fails():
    def fails(x, i):
        x.data = x.data + 1
        return x[i]
    translated, x = sot.to_static(fails, backend=Counter()), torch.zeros(3)
    translated(x, torch.tensor([0]))
    with pytest.raises(IndexError):
        translated(x, torch.tensor([7]))
    assert x.tolist() == [2, 2, 2]


def known_values(x):
    n = torch.tensor([1, 2])
    m = n[0]
    n.data = torch.tensor([3, 4])
    return x * n.sum().item(), m, x[n.argmin()]


def caught(x):
    try:
        x.data = torch.ones(2, dtype=torch.complex64)
    except RuntimeError as e:
        return str(e), x
    return x.dtype


def before_a_failure_that_is_caught(x):
    x.data = x.data + 1
    try:
        return x[torch.tensor([70])]
    except IndexError as e:
        return str(e), x


@pytest.mark.parametrize("fn", [known_values, caught, before_a_failure_that_is_caught], ids=lambda f: f.__name__)
def test_what_is_left_to_python_is_right(fn):
    check(fn, X)


# ---- lazy modules
def lazy():
    return nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2), nn.LazyBatchNorm1d())


def test_a_translated_lazy_module_has_one_more_graph():
    plain, model, backend = lazy(), lazy(), Counter()
    translated = sot.to_static(model, backend=backend)
    for _ in range(4):
        torch.manual_seed(0)
        want = plain(X)
        torch.manual_seed(0)
        assert same(translated(X), want) is None
    assert same(dict(model.state_dict()), dict(plain.state_dict())) is None
    assert type(model[0]) is nn.Linear
    stops = [str(c.stopped) for c in sot.translation_of(model).captures if c.stopped]
    count = len(backend.graphs)
    assert stops == [] and count == 2
    translated(X)
    whole = [n for n in backend.graphs[-1].graph.nodes if n.op.startswith("call_")]
    assert len(backend.graphs) == count and len(whole) >= 4


# ---- addresses
def test_tied_weights_are_found_by_their_address():
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight

    def f(x):
        return second(first(x)) * len({p.data_ptr() for p in [*first.parameters(), *second.parameters()]})
    check(f, torch.randn(2, 3), graphs=1, breaks=0)


def test_weights_at_other_addresses():
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def f(x):
        return second(first(x)), first.weight.data_ptr() == second.weight.data_ptr()
    translated, x = sot.to_static(f, backend="eager"), torch.randn(2, 3)

    def tie():
        second.weight = first.weight

    def untie():
        second.weight.data = torch.ones(3, 3)

    def replace():
        second.weight = torch.nn.Parameter(torch.zeros(3, 3))
    for change in (tie, untie, replace, tie, replace):
        change()
        for _ in range(2):
            got, want = translated(x), f(x)
            assert torch.equal(got[0], want[0]) and got[1] is want[1]


def test_an_address_after_a_change_of_memory():
    def f(x):
        weight, other = torch.ones(3), HELD["other"]
        held = HELD["weight"]
        before = held.data_ptr() == other.data_ptr()
        held.set_(other)
        return x + held + weight, before, held.data_ptr() == other.data_ptr()
    HELD = {"weight": torch.ones(3), "other": torch.zeros(3)}
    translated = sot.to_static(f, backend="eager")
    assert translated(torch.ones(3))[1:] == (False, True)
    assert translated(torch.ones(3))[1:] == (True, True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_code_that_branches_on_how_often_a_tensor_was_changed(backend):
    """Compiled code changes tensors more often, or not at all."""
    def fn(x):
        y = x.clone()
        before = y._version
        y.mul_(2)
        once = y._version
        y[0] = 3
        return (y + 1 if once == before + 1 else y - 1), before, once, y[1:]._version
    translated = sot.to_static(fn, backend=backend)
    for x in (torch.arange(3.0), torch.ones(3)):
        want, got = fn(x), translated(x)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


def test_data_set_in_inference_mode():
    """PyTorch takes the version off a tensor whose memory is given to one of inference mode."""
    def program(x):
        x = x + 1
        with torch.inference_mode():
            y = torch.zeros(3, 4)
            y.data = x.data
            z = y * 2
        return z
    captured = sot.to_static(program, backend="eager")
    assert torch.equal(captured(X), program(X))
    assert not any("capture failed" in str(c.stopped) for c in sot.translation_of(captured).captures)
