"""A store at an index that varies, ``x[:, n] = y``, is captured twice: first as a constant, then for any index."""
from __future__ import annotations

import pytest
import torch
from harness import caught, same

import sot


def in_columns(x, y, n):
    x = x.clone()
    x[:, :, n] = y
    x[..., n - 3] = y * n
    return x


def in_an_argument(x, y, n):
    x[n, :, 3] += y[0]
    return x


def in_a_row(x, y, n):
    x[n] = 1.5
    x[-n] = y[0][:, None]
    return x


def with_new_axes_and_ranges(x, y, n):
    x = x.clone()
    x[None, :, n, 1:4] = y[:, :3]
    return x


def with_gradients(x, y, n):
    z = x * y[..., None]
    first = z[0]
    z[:, :, n] = y
    return z, first.sum(), z._version


def of_other_types(x, y, n):
    z = torch.zeros(12, 12, dtype=torch.int64)
    z[:, n] = y[0]
    return z


def given(n, size=20):
    torch.manual_seed(n)
    return torch.randn(12, 12, size), torch.randn(12, 12, requires_grad=True), n


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", [in_columns, in_an_argument, in_a_row, with_new_axes_and_ranges, with_gradients,
                               of_other_types])
def test_two_captures_for_all_indices(f, backend):
    translated = sot.to_static(f, backend=backend)
    with torch.set_grad_enabled(f is with_gradients):
        for n in range(3, 9):
            (x, y, _), (x2, y2, _) = given(n), given(n)
            want, got = f(x, y, n), translated(x2, y2, n)
            assert not same(got, want), same(got, want)
            assert torch.equal(x, x2)
            if f is with_gradients:
                want[0].sum().backward()
                got[0].sum().backward()
                assert torch.equal(y.grad, y2.grad)
    assert sum(c.graph is not None for c in translated.captures) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_index_out_of_range_is_pythons_error(backend):
    def f(x, y, n):
        x.add_(1)
        x[:, :, n + 12] = y
        return x

    def caught_inside(x, y, n):
        try:
            x[:, :, n + 12] = y
        except IndexError as e:
            return str(e)
        return x

    with torch.no_grad():
        for function in (f, caught_inside):
            translated = sot.to_static(function, backend=backend)
            for n in (3, 4, 5, 9, 8, -40):
                (x, y, _), (x2, y2, _) = given(n), given(n)
                want, got = caught(function, x, y, n), caught(translated, x2, y2, n)
                assert not same(got, want), same(got, want)
                assert torch.equal(x, x2)


def test_a_loop_that_writes_step_by_step():
    def step(out, h, at):
        h = (h * 1.5).tanh()
        out[:, at] = h
        return h

    translated = sot.to_static(step, backend="eager")
    outs = torch.zeros(3, 10), torch.zeros(3, 10)
    states = [torch.ones(3), torch.ones(3)]
    for at in range(10):
        states = [f(out, h, at) for f, out, h in zip((step, translated), outs, states, strict=True)]
    assert torch.equal(*outs)
    assert len(translated.captures) == 2


def stored(x, n, v):
    x[n.item():] = v
    return x


def added(x, n, v):
    x[n.item():].add_(v)
    return x[:n.item()] + v


def filled(x, n, v):
    return torch.full((n.item(),), v)


@pytest.mark.parametrize("fn", [stored, added, filled])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_complex_numbers_that_vary(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for n in (1, 2, 3, 0, 2):
        mine, theirs = (torch.arange(4) * (1 + 2j) for _ in range(2))
        assert translated(mine, torch.tensor(n), 3.5 - n * 1j).equal(fn(theirs, torch.tensor(n), 3.5 - n * 1j))
        assert mine.equal(theirs)
    assert not [str(c.stopped) for c in translated.captures if c.stopped is not None]
