"""Changes in place of which AOTAutograd makes something else: results, gradients, strides and views are eager's."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import caught, same
from torch.utils.checkpoint import checkpoint

import sot

BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


def twice(y, rows):
    y.index_add_(0, rows, y.index_select(0, rows))
    return y, y[1]


def recomputed(f, *args):
    return checkpoint(f, *args, use_reentrant=False)


SHAPES = {
    "a row of a transposed tensor": lambda x, rows: twice(F.elu(x)[-3:, 1:].transpose_(0, -1), rows),
    "a view of more dimensions": lambda x, rows: (y := (x * 2).unsqueeze_(0), y[None, :]),
    "a view of fewer dimensions": lambda x, rows: (y := (x[:, :1] * 2).squeeze_(1), y[1:]),
    "twice": lambda x, rows: (y := (x * 2).t_().unsqueeze_(1), y[1:, 0]),
    "and then its numbers": lambda x, rows: (y := (x * 2).t_(), y.mul_(3), y[1]),
    "a view made before": lambda x, rows: (y := x * 2, z := y[1:], y.t_().mul_(3), z),
    "by an operator": lambda x, rows: (y := torch.ops.aten.t_(x * 2), y[1]),
    "in a checkpoint": lambda x, rows: recomputed(lambda x: (y := (x * 2).t_(), y[1]), x),
}
STRIDES = {
    "the upper triangle": lambda y, rows: y.triu_(),
    "sums along a dimension": lambda y, rows: y.cumsum_(0),
    "scattered numbers": lambda y, rows: y.scatter_(0, torch.zeros_like(y).long()[:1], 1.0),
    "filled rows": lambda y, rows: y.index_fill_(0, rows, 2.0),
    "a view made before": lambda y, rows: (y.t(), y.cumsum_(1))[0].flatten(),
    "by an operator": lambda y, rows: torch.ops.aten.cumsum_(y, 0),
    "in a checkpoint": lambda y, rows: recomputed(lambda y: (y * 1).cumsum_(0), y),
}


def outcome(f, x, rows):
    results = f(x, rows)
    results = results if isinstance(results, tuple) else (results,)
    weights = [torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape) for r in results]
    gradient = torch.autograd.grad(results, x, weights)[0] if results[0].requires_grad else None
    return [r.detach() for r in results], [r.stride() for r in results], gradient


def check(f, x, backend, dynamic):
    rows, captured = torch.tensor([1, 1]), sot.to_static(f, backend=backend, dynamic=dynamic)
    for n in (3, 4):
        torch.testing.assert_close(outcome(captured, part(x, n), rows), outcome(f, part(x, n), rows))


def part(x, n):
    return x[:, :n].detach().clone(memory_format=torch.contiguous_format).requires_grad_(x.requires_grad)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", SHAPES.values(), ids=SHAPES)
def test_a_tensor_whose_shape_changes_in_place(f, backend, dynamic):
    check(f, torch.linspace(-2, 2, 20).reshape(5, 4).requires_grad_(), backend, dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", STRIDES.values(), ids=STRIDES)
def test_a_transposed_tensor_keeps_its_strides(change, backend, dynamic):
    x = torch.linspace(-2, 2, 20).reshape(5, 4)
    check(lambda x, rows: change(x.t() * 1, rows), x, backend, dynamic)
    check(lambda x, rows: change(x.t() * 1, rows), x.clone().requires_grad_(), backend, dynamic)


PARTS = {
    "clamped": lambda y, rows: y.clamp_(-1, 1),
    "filled and clamped": lambda y, rows: y.masked_fill_(y < 0, 2).clamp_(-1, 1),
    "scaled and squared": lambda y, rows: y.mul_(3).square_(),
    "to a power": lambda y, rows: y.pow_(2).sin_(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", PARTS.values(), ids=PARTS)
def test_a_part_that_changes_is_returned_with_the_whole(change, backend, dynamic):
    """The whole has no saved values of its own, so PyTorch runs the change. Its gradient needs the part before."""
    def f(x, rows):
        whole = x * 0.5
        part = change(whole[:, 1:3], rows)
        return part, whole
    check(f, torch.linspace(-3, 3, 20).reshape(5, 4).requires_grad_(), backend, dynamic)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_with_a_history_through_a_part_that_changes(backend):
    """PyTorch runs the graph again, from which the gradient is."""
    def f(x):
        y = x.sin()
        y[:, 1:3].mul_(2).pow_(3)
        return y.exp()

    def second(f, x):
        gradient, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return gradient, torch.autograd.grad(gradient.square().sum(), x)[0]
    x = torch.linspace(-1, 1, 20).reshape(5, 4).requires_grad_()
    translated = sot.to_static(f, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(second(translated, x), second(f, x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_is_changed_in_its_memory(backend):
    def f(x):
        columns = x.t().flatten(), x.cumsum_(0)
        return columns
    x = torch.rand(4, 3).t()
    y = x.clone()
    expected, found = f(x), sot.to_static(f, backend=backend)(y)
    torch.testing.assert_close((found, y), (expected, x))
    assert y.stride() == x.stride()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_that_an_operation_resizes(backend):
    """An ``out`` without elements gets the shape of the result."""
    def resized(x, y):
        torch.cosh(x, out=y)
        return y + 1, torch.mv(x, x[0], out=y[:0]).shape
    translated = sot.to_static(resized, backend=backend)
    for n in (2, 3, 4):
        x, y, z = torch.ones(n, 3) * n, torch.empty(0), torch.empty(0)
        assert same((translated(x, y), y), (resized(x, z), z)) is None


def of_a_result(x):
    y = x * 2
    y.clip_(1)
    return x * 2


def of_what_was_read_before(x):
    y = x * 2
    total = y.sum()
    y.index_fill_(0, torch.tensor(9), 1)
    return total


def of_a_part(x):
    y = x * 2
    y[0].clip_(1)
    return y


def which_the_program_catches(x):
    y = x * 2
    try:
        y.clip_(1)
    except NotImplementedError:
        return y
    return x * 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [of_a_result, of_what_was_read_before, of_a_part, which_the_program_catches])
def test_a_change_that_raises_and_that_nothing_reads(fn, backend):
    """Its kernel refuses the dtype, or the index. AOTAutograd removes the change."""
    translated = sot.to_static(fn, backend=backend)
    for _ in range(2):
        x = torch.ones(2, 2, dtype=torch.complex64)
        assert same(caught(translated, x), caught(fn, x)) is None


def and_what_was_computed_before(x, w):
    total, double = x.sum(), x * 2
    x.mul_(w)
    return x, total, double


def of_a_view(x, w):
    view = x[1:]
    view.mul_(w[1:])
    return x, view.detach(), w.detach() + 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [and_what_was_computed_before, of_a_view])
def test_a_change_gives_an_input_of_varying_size_a_history(fn, backend):
    """The results that do not depend on the weight have none."""
    translated = sot.to_static(fn, backend=backend)
    for n in (4, 6, 5):
        found = []
        for call in translated, fn:
            x, w = torch.arange(float(n)), torch.linspace(0.5, 2, n).requires_grad_()
            results = call(x, w)
            results[0].sum().backward()
            found.append(([(t.requires_grad, t.detach()) for t in results], x.detach(), x._version, w.grad))
        assert same(*found) is None
    assert len(translated.captures) == 2


IN_SHAPE = {
    "data first": lambda y: (y.add_(1), y.t_(), y.sum())[2],
    "shape first": lambda y: (y.unsqueeze_(0), y.add_(1), y.sum())[2],
    "an element": lambda y: (y.t_(), y.__setitem__(0, 5), y * 2)[2],
    "an older view": lambda y: (z := y.view(-1), y.unsqueeze_(0), z.add_(1), z)[3],
    "nothing else": lambda y: y.transpose_(0, 1) * 2}


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("case", IN_SHAPE)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_input_within_its_memory_gets_another_shape(backend, case, begin):
    """AOTAutograd takes the input for the beginning of its memory."""
    translated = sot.to_static(IN_SHAPE[case], backend=backend)
    for _ in range(2):
        found = []
        for call in translated, IN_SHAPE[case]:
            memory = torch.arange(24.0).reshape(4, 6)
            part = memory[begin:]
            result = call(part)
            found.append((result, memory, part, part.stride(), part.storage_offset()))
        assert same(*found) is None


def apart_as_a_whole(x, y):
    y.mul_(2)
    apart = y.detach()
    apart.add_(x)
    return apart


def apart_in_part(x, y):
    apart = y[1:].detach()
    apart.add_(x[1:])
    return apart.T, apart * 2, y


def apart_and_dropped(x, y):
    y.detach().add_(x)
    return y * x


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", [apart_as_a_whole, apart_in_part, apart_and_dropped])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_detached_view_of_an_input_gets_a_history(backend, fn, requires_grad):
    """AOTAutograd made it a leaf."""
    found = []
    for call in sot.to_static(fn, backend=backend), fn:
        x, leaf = torch.ones(3, 2, requires_grad=True), torch.arange(6.0).view(3, 2).requires_grad_(requires_grad)
        y = leaf * 1
        results = call(x, y)
        results = results if isinstance(results, tuple) else (results,)
        sum((part * part).sum() for part in results if part.requires_grad).backward()
        found.append(([part.detach() for part in results], x.grad, leaf.grad, y.detach(), y.requires_grad))
    assert same(*found) is None
