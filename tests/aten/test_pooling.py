"""Maxima of windows, with their positions, means, and gradients: kernels are eager's."""
from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from compiling import check_compiled, counts

import sot

WINDOWS = [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=(2, 3), stride=(1, 2)),
           dict(kernel_size=3, stride=1, padding=1, dilation=2), dict(kernel_size=2, stride=3),
           dict(kernel_size=3, stride=2, ceil_mode=True), dict(kernel_size=(3, 2), padding=(1, 0), dilation=(1, 3))]


def whole(*shape, seed=0, most=5):
    return torch.randint(-most, most, shape, generator=torch.Generator().manual_seed(seed))


def is_called(made):
    return any("aten.max_pool" in line or "aten.avg_pool" in line for one in made for line in one.schedule)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_maxima_positions_and_gradients(window, dtype):
    """There are many equal elements: the first one has the position and gets the gradient."""
    x = whole(2, 3, 7, 8).to(dtype).requires_grad_()
    made = check_compiled(lambda x: F.max_pool2d(x.sin(), **window, return_indices=True), x, rtol=1e-2, atol=1e-2)
    assert not is_called(made)
    for kernels, calls in counts(made):
        assert kernels >= 1 and calls == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.int32, torch.uint8])
def test_types(dtype):
    x = whole(1, 2, 5, 5).abs().to(dtype)
    assert not is_called(check_compiled(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x))


def test_nan_and_infinities():
    inf, nan = float("inf"), float("nan")
    cells = [nan, -inf, inf, 1.0]
    x = torch.tensor(list(itertools.product(cells, repeat=4))).reshape(-1, 1, 2, 2)
    for window in (dict(kernel_size=2), dict(kernel_size=2, padding=1), dict(kernel_size=2, padding=1, dilation=2)):
        assert not is_called(check_compiled(lambda x, window=window: F.max_pool2d(x, **window, return_indices=True), x))


@pytest.mark.parametrize("layout", ["channels last", "every second", "without a batch", "expanded", "inside"])
def test_layouts(layout):
    x = whole(2, 3, 6, 8).float()
    x = {"channels last": lambda: x.to(memory_format=torch.channels_last), "every second": lambda: x[..., ::2],
         "without a batch": lambda: x[0], "expanded": lambda: x[:, :1].expand(-1, 3, -1, -1),
         "inside": lambda: x[1:, :, 1:, 1:]}[layout]().requires_grad_()
    made = check_compiled(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    assert not is_called(made)


@pytest.mark.slow
def test_one_and_three_axes():
    x, y = whole(2, 3, 9).double().requires_grad_(), whole(1, 2, 4, 5, 4).double().requires_grad_()
    assert not is_called(check_compiled(lambda x: F.max_pool1d(x, 3, 2, 1), x))
    assert not is_called(check_compiled(lambda y: F.max_pool3d(y, 2, 2, 1, return_indices=True), y))


def test_an_empty_batch_and_large_windows_are_called():
    empty, x = torch.ones(0, 3, 4, 4), whole(1, 1, 9, 9).double().requires_grad_()
    check_compiled(lambda x: F.max_pool2d(x, 2), empty)
    assert is_called(check_compiled(lambda x: F.max_pool2d(x, 6, 1), x))


def test_what_is_before_and_after_is_fused():
    x = torch.randn(2, 3, 8, 8).requires_grad_()
    f = lambda x: F.max_pool2d(torch.relu(x), 2) * 2     # noqa: E731
    forward, backward = counts(check_compiled(f, x))
    assert forward == (1, 0) and backward == (1, 0)
    assert counts(check_compiled(f, x.detach())) == [(1, 0)]


@pytest.mark.slow
def test_sizes_vary():
    made = sot.to_static(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), backend="triton", dynamic=True)
    for height, width in ((5, 6), (8, 9), (13, 4), (32, 16)):
        x = whole(2, 2, height, width).float()
        torch.testing.assert_close(made(x), F.max_pool2d(x, 3, 2, 1, return_indices=True))
    sot.reset()


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_position_that_only_the_gradient_needs_has_one_byte(window):
    x = torch.randn(2, 3, 9, 8).double().requires_grad_()
    made = check_compiled(lambda x: F.max_pool2d(x.sin(), **window), x)
    assert not is_called(made)
    assert stored(made[0]) == {torch.float64, torch.int8}


def test_windows_without_a_cell_in_the_tensor():
    """torch gives their maxima a position in the next row."""
    x = torch.arange(18.0).reshape(3, 2, 3, 1).requires_grad_()
    check_compiled(lambda x: F.max_pool2d(x, 2, 1, 1, 2, return_indices=True), x)


def test_positions_that_are_returned_are_stored():
    x = torch.randn(2, 3, 8, 8).requires_grad_()
    made = check_compiled(lambda x: F.max_pool2d(x.sin(), 2, return_indices=True), x)
    assert stored(made[0]) >= {torch.float32, torch.int64}


def test_the_gradient_of_positions_of_other_windows():
    """They are not cells of the windows of the gradient."""
    def f(x, gradient):
        _, positions = torch.ops.aten.max_pool2d_with_indices(x, [2, 2], [2, 2])
        return torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, x, [3, 3], [2, 2], [0, 0], [1, 1], True, positions)
    assert not is_called(check_compiled(f, torch.randn(1, 2, 8, 8), torch.randn(1, 2, 4, 4)))


@pytest.mark.parametrize("pool", [
    lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool2d(x, 4),
    lambda x: F.adaptive_max_pool2d(x, 3), lambda x: F.pad(x, (2, 1, 1, 2), "reflect"),
    lambda x: F.pad(x, (2, 1, 1, 2), "replicate")], ids=range(6))
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_what_is_pooled_or_padded_is_not_kept_for_its_gradient(pool, layout):
    """The gradient needs only its shape. What the ReLU keeps has one byte an element."""
    x = torch.randn(2, 4, 8, 8).to(memory_format=layout).requires_grad_()
    made = check_compiled(lambda x: pool(torch.relu(x.sin())), x)
    program = made[0].program
    kept = [v for v in program.outputs[1:] if v.shape == (2, 4, 8, 8) and v.buffer not in program.inputs]
    assert {v.dtype for v in kept} <= {torch.bool}


def test_pooled_lines_and_volumes():
    x, y = whole(2, 3, 9).double().requires_grad_(), whole(1, 2, 4, 6, 4).double().requires_grad_()
    check_compiled(lambda x: F.max_pool1d(torch.relu(x), 2), x)
    check_compiled(lambda y: F.avg_pool3d(torch.relu(F.max_pool3d(torch.relu(y), 2)), 2), y)


def stored(one):
    return {one.program.buffers[store.buffer].dtype for kernel in one.program.kernels() for store in kernel.stores}


@pytest.mark.slow
def test_gradients_of_sizes_that_vary():
    made = sot.to_static(lambda x: F.max_pool2d(x.sin(), 3, 2, 1), backend="triton", dynamic=True)
    for height, width in ((5, 6), (8, 9), (13, 4), (32, 16)):
        x, y = (whole(2, 2, height, width).float().requires_grad_() for _ in range(2))
        made(x).square().sum().backward()
        F.max_pool2d(y.sin(), 3, 2, 1).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    sot.reset()


# ---- means -------------------------------------------------------------------------------------------------------
MEANS = [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=(2, 3), stride=(1, 2)),
         dict(kernel_size=3, stride=2, padding=1, count_include_pad=False), dict(kernel_size=2, stride=3),
         dict(kernel_size=3, stride=2, padding=1, ceil_mode=True), dict(kernel_size=2, stride=2, divisor_override=3),
         dict(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)]


@pytest.mark.parametrize("window", MEANS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_means_and_gradients(window, dtype):
    x = whole(2, 3, 7, 8).to(dtype).requires_grad_()
    made = check_compiled(lambda x: F.avg_pool2d(x.sin(), **window) * 3, x, rtol=2e-2, atol=2e-2)
    assert all(calls == 0 for _, calls in counts(made))


def test_means_of_one_and_three_axes_and_of_other_layouts():
    x, y = whole(2, 3, 9).double().requires_grad_(), whole(1, 2, 4, 5, 4).double().requires_grad_()
    z = whole(2, 3, 6, 6).float().to(memory_format=torch.channels_last).requires_grad_()
    assert not is_called(check_compiled(lambda x: F.avg_pool1d(x, 3, 2, 1), x))
    assert not is_called(check_compiled(lambda y: F.avg_pool3d(y, 2, 2, 1), y))
    assert not is_called(check_compiled(lambda z: F.avg_pool2d(z, 2, 1) * 2, z))
