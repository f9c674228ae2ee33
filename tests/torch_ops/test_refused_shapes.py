"""Kernels that refuse an empty tensor or a dimension, which their fakes do not: they raise where the program does."""
from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from harness import caught, outcome, same

import sot

REFUSED = {
    "the maximum of nothing": lambda x: x[:0].max(),
    "the minimum along nothing": lambda x: x[:0].min(0),
    "the median of nothing": lambda x: x[:, :0].median(1),
    "the most common of nothing": lambda x: x[:0].mode(0),
    "transforms of nothing": lambda x: torch.fft.fft(x[:0]),
    "sorted along no dimension": lambda x: x.sort(2),
    "sorted stably along no dimension": lambda x: x.sort(dim=-3, stable=True),
    "shares along no dimension": lambda x: x.softmax(2),
    "logarithms of these": lambda x: x.log_softmax(5),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("changed", ["nothing", "a tensor of the call", "an input"])
@pytest.mark.parametrize("name", REFUSED)
def test_it_raises_after_the_changes_before_it(name, changed, backend):
    def program(x, items):
        y = x * 2
        if changed == "a tensor of the call":
            y.data = x.data
        elif changed == "an input":
            x += 1
        items.append(1)
        REFUSED[name](x)        # nothing reads the result
        items.append(2)

    translated = sot.to_static(program, backend=backend)
    for _ in range(3):
        mine, theirs = (torch.ones(2, 3), []), (torch.ones(2, 3), [])
        assert str(caught(translated, *mine)) == str(caught(program, *theirs))
        assert str(mine) == str(theirs)
    if caught(program, torch.ones(2, 3), []) is None:
        pytest.skip("this version of torch takes it")


@pytest.mark.parametrize("size", [0, 1, 4])
def test_what_is_not_refused_is_in_one_graph(size):
    def program(x):
        return x.sort(-1).values, x.softmax(0), x.log_softmax(1), x.argsort(-2), x.sum(0), x.mT.amax(0)

    x = torch.randn(size, 3)
    assert str(sot.to_static(program, full_graph=True)(x)) == str(program(x))


def test_an_empty_tensor_refused_before_does_not_count():
    def program(x, i):
        x.add_(1)
        return x * i.max()

    assert caught(sot.to_static(lambda i: i.max()), torch.empty(0, dtype=torch.int64))[0] == "RuntimeError"
    for size in (3, 20):        # beyond the sizes that an operation is tried with first
        assert str(sot.to_static(program, full_graph=True)(torch.ones(2), torch.arange(size))) == str(
            program(torch.ones(2), torch.arange(size)))


# ---- sizes that vary or depend on data ---------------------------------------------------------------------------
ROWS = {
    "a maximum": lambda x: x.max(),
    "a minimum along a dimension": lambda x: x.min(0),
    "a maximum of integers": lambda x: x.long().max(),
    "a median along a dimension": lambda x: x.mT.median(-1),
    "the most common": lambda x: x.mode(0),
    "a transform": lambda x: torch.fft.fft(x),
    "a row": lambda x: x.select(0, 1),
    "a mask that must fit": lambda x: torch.ones(3).masked_select(x[:, 0] > 0),
    "a diagonal that must fit": lambda x: x.diagonal_scatter(torch.ones(2)),
    "values that must fit": lambda x: torch.zeros(5).index_put_((x[:, 0].long().clamp(0, 4),), torch.ones(2)),
    "values for a mask": lambda x: torch.zeros(3).masked_scatter(torch.tensor([True, True, False]), x[:, 0]),
    "averages": lambda x: F.adaptive_avg_pool1d(x.T[None], 2),
    "a transposed convolution": lambda x: F.conv_transpose1d(x.T[None], torch.ones(3, 2, 2)),
    "samples of a grid": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 1, 1, 2)),
    "rows between": lambda x: F.interpolate(x.T[None], scale_factor=2),
    "rows between, in two dimensions": lambda x: F.interpolate(x[None, None], scale_factor=2., mode="bilinear"),
    "no more rows between": lambda x: F.interpolate(torch.ones(1, 3, 3), size=x.shape[0]),
    "nothing that is refused": lambda x: (x.sum(0), x.amax(1), x.sort(0), x.softmax(1)),
}


def of_data(rows):
    """Rows that a mask has chosen."""
    def program(x, buffer, seen):
        kept = x[x[:, 0] > 0]
        seen.append(1)
        buffer.add_(1)
        return rows(kept)
    return program


def of_a_size(rows):
    """Rows but the first ones."""
    def program(x, buffer, seen):
        seen.append(1)
        buffer.add_(1)
        return rows(x[(x.shape[0] + 1) // 2:])
    return program


def arguments(made):
    """Tensors of which a program takes some rows, or none."""
    for count in (2, 3, 4, 0, 1, 2, 0, 3):
        rows = 8 if made is of_data else 2 * count
        x = torch.arange(1., 3 * rows + 1).view(rows, 3)
        x[count:, 0] *= -1
        yield x


@pytest.mark.parametrize("made", [of_data, of_a_size])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_what_was_done_before_a_size_was_refused_is_seen(backend, name, made):
    program = made(ROWS[name])
    translated = sot.to_static(program, backend=backend)
    for x in arguments(made):
        want, got = (outcome(call, (x.clone(), torch.zeros(2), []), {}) for call in (program, translated))
        assert type(got.raised) is type(want.raised)
        for part in ("result", "args"):
            assert not same(getattr(got, part), getattr(want, part)), x.shape


def test_sizes_that_nothing_refuses_are_in_one_graph():
    program = of_data(ROWS["nothing that is refused"])
    translated = sot.to_static(program, full_graph=True)
    for x in arguments(of_data):
        assert not same(translated(x, torch.zeros(2), []), program(x, torch.zeros(2), []))
    assert len(translated.captures) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_capture_does_not_warn_of_sizes_that_it_tries(backend):
    translated = sot.to_static(lambda x: x[x > 0].std(), backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translated(torch.arange(4.)) == 1
    if backend == "eager":
        with pytest.warns(UserWarning, match="degrees of freedom"):
            translated(torch.zeros(4))
