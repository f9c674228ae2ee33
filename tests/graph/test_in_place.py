"""Inputs that a graph changes: kernels store to them directly, after all that needs what was there."""
from __future__ import annotations

import copy

import pytest
import torch
from compiling import Kernels
from torch import Tensor, nn

import sot
from sot.graph.kernels.program import Extern


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def check_changes(f, *args: Tensor, calls: int = 2) -> Kernels:
    """Results, and arguments afterwards, are eager's, call after call."""
    mine, made = copy.deepcopy(args), Kernels()
    run = sot.to_static(f, backend=made)
    for _ in range(calls):
        torch.testing.assert_close(run(*mine), f(*args))
        torch.testing.assert_close(mine, args)
    sot.reset()
    return made


PROGRAMS = {
    "adding": (lambda x, y: x.add_(y), 1),
    "step": (lambda x, y: (x.mul_(0.9).add_(y, alpha=0.1), y.sub_(x * 0.01))[0].sum(), 2),
    "to its own transpose": (lambda x, y: x.copy_(x.t().clone()) + y, 2),
    "to its own transpose, without a copy": (lambda x, y: x.copy_(x.t() + 0) * 1, 2),
    "exchanged": (lambda x, y: _exchange(x, y), 2),
    "a row": (lambda x, y: x[1].add_(y[0]), 2),
    "to a number": (lambda x, y: x.zero_(), 1),
    "normalized": (lambda x, y: x.sub_(x.mean(-1, keepdim=True)).div_(x.var(-1, keepdim=True)), 4),
    "softmax, and what was there": (lambda x, y: ((x * 2).cumsum(0), x.copy_(x.softmax(-1)))[0], 4),
    "read after it was changed": (lambda x, y: (x.exp_().sum(0), x @ y), 3),
    "flipped": (lambda x, y: (x.copy_(x.flip(0)), y.copy_(x.flip(1)))[0], 4),
}


def _exchange(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)
    return x - y


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name):
    f, most = PROGRAMS[name]
    made, = check_changes(f, numbers(6, 6), numbers(6, 6) + 1).made
    assert made.cost.kernels <= most
    assert not any("copy_" in str(step.target) for step in made.program.steps if isinstance(step, Extern))


@pytest.mark.parametrize("layout", ["every second", "expanded", "empty", "no axis", "half"])
def test_a_layout(layout):
    x = {"every second": lambda: numbers(6, 6)[:, ::2], "expanded": lambda: numbers(1, 3),
         "empty": lambda: numbers(0, 3), "no axis": lambda: torch.tensor(2.0),
         "half": lambda: numbers(4, 3).bfloat16()}[layout]()
    base = x.clone() if layout != "every second" else numbers(6, 6)[:, ::2]
    f = lambda x: x.mul_(2).add_(1) * 3     # noqa: E731
    run = sot.to_static(f, backend=Kernels())
    torch.testing.assert_close(run(base), f(x))
    torch.testing.assert_close(base, x)
    sot.reset()


def test_versions_count_what_kernels_change():
    x, y = numbers(5), numbers(5).requires_grad_()
    loss = (x * y).sum()
    sot.to_static(lambda x: x.add_(1), backend=Kernels())(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    sot.reset()


def test_the_step_of_an_optimizer_is_one_launch_that_changes_parameters_and_moments():
    def adam(parameters, gradients, means, squares):
        with torch.no_grad():
            for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
                m.lerp_(g, 0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)
    shapes = [(4, 8), (8,), (8, 3), (3,)]
    sets = [[numbers(*shape) for shape in shapes] for _ in range(4)]
    sets[3] = [v.abs() for v in sets[3]]
    sets[0] = [p.requires_grad_() for p in sets[0]]
    made, = check_changes(adam, *sets, calls=3).made
    assert (made.cost.kernels, made.cost.externs) == (1, 0) and len(made.program.kernels()) == 4
    elements = sum(p.numel() for p in sets[0])
    assert made.cost.bytes == 4 * 7 * elements, "each is read once, and three are written once"
    assert made.cost.peak == 0


def test_running_statistics():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3)
    other, x = copy.deepcopy(norm), numbers(4, 3, 5, 5)
    run = sot.to_static(lambda x: norm(x), backend=Kernels())
    for _ in range(3):
        torch.testing.assert_close(run(x), other(x))
    torch.testing.assert_close(dict(norm.named_buffers()), dict(other.named_buffers()))
    sot.reset()


def test_a_failure_after_a_change_is_not_hidden_by_running_again():
    """What has been changed already would be changed twice."""
    def f(x, i):
        x.add_(1)
        return (x * 2)[i]
    x = numbers(5)
    before = x.clone()
    with pytest.raises(Exception, match="out of (range|bounds)"):
        sot.to_static(f, backend=Kernels())(x, torch.tensor([9]))
    assert (x - before).abs().max() <= 1.001
    sot.reset()


# ---- new memory that is assigned to --------------------------------------------------------------------------------
def _columns(x):
    y = torch.empty(4, 3, 2)
    y[..., 0] = x
    y[..., 1] = x[0]
    return y * 2


def _rows(x):
    y = torch.empty_like(x)
    y[1:] = x[:-1]
    y[0] = 1
    return y + x


def _diagonal(x):
    y = x.new_empty(3, 3)
    y.copy_(x[:3])
    y.diagonal().copy_(x[3])
    return y.sum(0)


ASSIGNED = {"columns": _columns, "rows": _rows, "a diagonal": _diagonal}


@pytest.mark.parametrize("name", ASSIGNED)
def test_new_memory_that_is_assigned_to_is_neither_filled_nor_copied(name):
    made = check_changes(ASSIGNED[name], numbers(4, 3)).made[0]
    called = [str(step.target) for step in made.program.steps if isinstance(step, Extern)]
    assert not {"aten.copy.default", "aten.empty.memory_format"} & {*called}, called
    assert made.cost.kernels <= 2


def test_new_memory_that_is_returned_is_allocated():
    made, = check_changes(lambda x: (x + 1, torch.empty(2, 3).shape, torch.empty(0)), numbers(4)).made
    assert made.cost.kernels == 1


def _flat_again(x, i):
    position = i.unsqueeze_(0)
    return x * 2, position.reshape(2)


def _as_it_was(x, i):
    return x[i.unsqueeze_(0)], i.view(1, 2)[0], i.squeeze(0).view(2)


def _whole(x, i):
    views = i[:], i.view(2), i.expand(2), i.permute(0), i.reshape(2).narrow(0, 0, 2), i.detach(), i.flatten()
    i.unsqueeze_(0)
    return x * 2, *views


@pytest.mark.parametrize("f", [_flat_again, _as_it_was, _whole])
def test_a_view_of_an_argument_that_gets_another_shape_keeps_its_own(f):
    """Passes find that such a view is the whole argument, whose shape AOTAutograd changes after the graph."""
    for backend in ("eager", "aot_eager", Kernels()):
        translated = sot.to_static(f, backend=backend)
        for _ in range(2):
            mine, theirs = (numbers(3), torch.arange(2)), (numbers(3), torch.arange(2))
            got, expected = translated(*mine), f(*theirs)
            assert [t.shape for t in (*got, *mine)] == [t.shape for t in (*expected, *theirs)]
            torch.testing.assert_close(got, expected)
        sot.reset()
