"""NumPy in captured code: its scalars are constants until they change. Arrays are in test_torch_arrays.py."""
from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from harness import check, same

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
HALF, COUNT = np.float32(0.5), np.int64(3)

WHOLE: dict = {}


def whole(fn):
    WHOLE[fn.__name__] = fn
    return fn


@whole
def scalars_as_operands(x):
    return (x * np.float32(2.0), np.float64(2) * x, x + np.sqrt(4.0), x / np.pi, x ** np.int64(2), x - HALF, COUNT - x,
            x.int() * np.int64(3), x > HALF, torch.where(x > 1, x, np.float64(0.5)), x.clamp(min=HALF))


@whole
def scalars_as_sizes(x):
    return torch.zeros(np.int64(3)), x.view(COUNT, -1), x[COUNT - 1], x.sum(np.int64(1)), torch.full((2,), HALF)


@whole
def scalars_in_slices(x):
    first = np.int64(1)
    x[first:COUNT] = x[:COUNT - 1, None][::first].squeeze(1) + 1
    x[..., slice(first, None)] *= 2
    return x[:, first:COUNT], x[first:]


@whole
def arithmetic_of_scalars(x):
    threshold = 0.8 + 0.1 * np.exp(-4.0 * 2 / 7)
    scale = np.log(np.exp(1 - 1e-3) - 1)
    y = x * threshold
    y[..., 0] = scale
    if np.clip(threshold, 0.0, 1.0) > 0.5 and not np.isnan(scale):
        y = y + 1
    return y, threshold, type(scale), float(scale), int(COUNT), COUNT.dtype, np.float32(1.5).item()


@whole
def functions_of_shapes(x):
    count = np.prod(x.shape)
    return x.reshape(count), count, math.sqrt(count), np.lcm(4, 6) % 5, x / np.sqrt(x.shape[-1]), np.max([1, 3, 2])


@pytest.mark.parametrize("fn", WHOLE.values(), ids=WHOLE)
def test_scalars_are_constants(fn):
    check(fn, X, graphs=1, breaks=0)


def test_a_scalar_that_changes_is_seen():
    def scaled(x, s):
        return x * s
    check(scaled, X, np.float32(2.0), graphs=1)
    check(scaled, X, np.float64(3.0), graphs=1)


RIGHT: dict = {}


def right(fn):
    RIGHT[fn.__name__] = fn
    return fn


@right
def arrays(x):
    a = x.numpy()
    return torch.from_numpy(np.sin(a) * 2) + 1, np.sum(a * 2, axis=0), a.T @ a, torch.as_tensor(a.shape)


@right
def arrays_made_of_lists(x):
    return x * torch.tensor(np.array([1.0, 2, 3, 4], dtype=np.float32)), torch.tensor([np.float64(1), np.float64(2)])


@right
def dtypes_of_scalars(x):
    return torch.tensor(np.float64(1.5)), torch.as_tensor(np.int32(2)), x.new_tensor(np.float64(2)), x * np.bool_(True)


@right
def warnings_of_numpy(x):
    with np.errstate(all="ignore"):
        return x * 2, np.sqrt(-1.0), np.log(0.0)


@right
def numbers_drawn_by_numpy(x):
    np.random.seed(0)
    return x * float(np.random.rand()), x * np.random.uniform(0, 1)


@pytest.mark.parametrize("fn", RIGHT.values(), ids=RIGHT)
def test_arrays(fn):
    check(fn, X)


def test_an_array_as_an_argument():
    check(lambda a, x: (torch.from_numpy(a) * x, a.sum(0)), np.arange(6.0).reshape(2, 3), torch.ones(3).double())


def reads_an_array(x, a):
    y = x * 2
    return y + torch.from_numpy(a), y * a.sum() + a[0], a.shape[0] + y


def writes_an_array(x, a):
    b = a.copy()
    b[0] = 5
    a *= 2
    return x + torch.from_numpy(b), a


def shares_memory(x, a):
    y = x * 1
    seen = y.numpy()
    y.add_(1)
    torch.from_numpy(a).add_(1)
    return seen, y, a.sum()


@pytest.mark.parametrize("fn", [reads_an_array, writes_an_array, shares_memory], ids=lambda f: f.__name__)
def test_an_array_that_changes_between_calls(fn):
    def called(fn):
        a, found = np.arange(4, dtype=np.float32), []
        for call in range(6):
            a[call % 4] += 1
            found.append(copy.deepcopy(fn(X, a)))
        return found, a
    translated = sot.to_static(fn)
    assert same(called(translated), called(fn)) is None
    captures = sot.translation_of(translated).captures
    assert len(captures) < 14, [str(c.stopped) for c in captures]      # and not one more for each other number


def test_a_branch_on_a_tensor_that_is_made_of_a_number_of_an_array():
    def fn(x, least):
        if torch.full((x.shape[0],), float(x.numpy().sum())).prod() > least:
            return x + 1
        return x - 1
    translated = sot.to_static(fn, backend="eager")
    for count in range(2, 7):
        x = torch.ones(count)
        assert torch.equal(translated(x, 300.0), fn(x, 300.0))
    assert not any(capture.fallback for capture in sot.translation_of(translated).captures)


@pytest.mark.parametrize("index", [(True,), (1, True), (2, 0), (6,), (-7,), (1.0,), (0, 0, 0), ()])
def test_an_index_that_numpy_refuses_is_refused(index):
    def fn(x, a):
        try:
            return x + a.item(*index)
        except (TypeError, IndexError, ValueError) as error:
            return x, type(error), str(error)
    array = np.arange(6.0).reshape(2, 3)
    assert not same(sot.to_static(fn, backend="eager")(X, array), fn(X, array))
