"""Operators that resize an argument which was empty. Fakes do not show it, so Python calls the operator."""
import copy

import pytest
import torch
from harness import same
from torch import nn
from torch.ao.quantization import get_default_qat_qconfig, prepare_qat

import sot

pytestmark = pytest.mark.filterwarnings("ignore")


@torch.library.custom_op("resized_arguments::append", mutates_args={"kept"})
def append(kept: torch.Tensor, x: torch.Tensor) -> None:
    """The first call decides on the size."""
    if kept.numel() == 0:
        kept.resize_(x.shape).zero_()
    kept.add_(x)


@append.register_fake
def _(kept, x):
    return None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_operator_of_the_program(backend):
    def fn(kept, x):
        append(kept, x.sin())
        return kept.shape, (kept * 2).cos()

    translated, mine, theirs = sot.to_static(fn, backend=backend), torch.empty(0), torch.empty(0)
    for n in range(4):
        x = torch.full((3,), float(n))
        assert not same(translated(mine, x), fn(theirs, x))
        assert not same(mine, theirs)
    assert translated.captures[-1].stopped is None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_observers_of_quantization_aware_training(backend):
    """The first batch gives the ranges of each channel their size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).train()
    model.qconfig = get_default_qat_qconfig("x86")
    theirs = prepare_qat(model)
    mine = copy.deepcopy(theirs)

    def fn(model, x):
        y = model(x).square().sum()
        return y, model[0].weight_fake_quant.scale.shape

    translated = sot.to_static(fn, backend=backend)
    for n in range(3):
        x = torch.randn(5, 4)
        want, got = fn(theirs, x), translated(mine, x)
        assert not same(got, want), f"call {n}"
        for model, (loss, _) in ((mine, got), (theirs, want)):
            model.zero_grad()
            loss.backward()
        assert not same([p.grad for p in mine.parameters()], [p.grad for p in theirs.parameters()])
        assert not same(dict(mine.state_dict()), dict(theirs.state_dict()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_operations_in_place_do_not_resize(backend):
    def fn(x):
        y = x * 2
        y += 1
        y *= y
        y[:] = 3
        return y.add_(1).sum(0)

    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for rows in (0, 2):
        assert not same(translated(torch.ones(rows, 3)), fn(torch.ones(rows, 3)))


def takes_memory(p, q):
    p.set_(q)
    p.mul_(2)
    return p + 1


def takes_memory_that_changes(p, q):
    p.set_(q)
    q.add_(1)
    return p * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [takes_memory, takes_memory_that_changes])
def test_an_argument_takes_the_memory_of_another(fn, backend):
    """AOTAutograd has no changes beside that, or loses them."""
    translated = sot.to_static(fn, backend=backend)
    for n in (3, 3, 4):
        mine, theirs = ([torch.ones(3), torch.ones(n)] for _ in range(2))
        assert not same(translated(*mine), fn(*theirs))
        assert not same(mine, theirs) and mine[0].data_ptr() == mine[1].data_ptr()
