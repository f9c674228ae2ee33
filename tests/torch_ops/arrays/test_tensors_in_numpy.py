"""Tensors as arguments of NumPy's functions, and numbers of NumPy of which torch makes tensors."""
import warnings

import numpy as np
import pytest
import torch
from harness import Programs, check, check_by, outcome, same

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
NUMBER = np.float32(3)
whole, parts = Programs(), Programs()
pytestmark = pytest.mark.filterwarnings("ignore")


@whole
def ufuncs(x):
    return np.add(x, 1), np.sin(x), np.greater(x, 0.5), np.multiply(np.ones(4, dtype=np.float32), x), np.modf(x)


@whole
def ufuncs_of_one_element(x):
    return np.add(x[0, 0], 1), np.negative((x[0, 1] * 9).long()), np.logical_not(x[0, 1])


@whole
def functions_that_take_the_array(x):
    return np.stack([x, x + 1]), np.concatenate((x, np.zeros((1, 4), np.float32))), np.where(x > 1, x, 0), np.array(x)


@whole
def with_a_dtype(x):
    return np.asarray(x, dtype=np.float64), np.asarray(x, dtype=np.float32), np.array(x, dtype="int64")


@whole
def the_protocol(x):
    return x.__array__(), x.__array__(np.float64), x.__array__(dtype=np.float32), x.__array_wrap__(np.ones(2)), (
        x.__array_wrap__(np.ones(2) > 0))


@whole
def results_are_tensors_again(x):
    y = np.exp(x * 2)
    return y.sum() + 1, y.requires_grad, torch.relu(np.subtract(y, 3))


@whole
def one_memory(x):
    y = x * 2
    a = np.asarray(y)
    b = np.array(y)
    c = y.__array__()
    y += 1
    return a, b, c, np.add(a, y)


@whole
def numbers(x):
    return (torch.as_tensor(np.float32(2)) * x, torch.tensor(np.float64(3)), torch.asarray(np.bool_(True)),
            torch.tensor(np.float16(0.1), dtype=torch.float64), torch.tensor(np.uint8(200)),
            torch.tensor(np.complex64(1 + 2j)), torch.tensor(NUMBER, requires_grad=True))


@parts
def methods_in_place_of_functions(x):
    return np.clip(x, 0, 1), np.transpose(x), np.squeeze(x), np.cumsum(x, 0)


@parts
def refused_by_the_method(x):
    return np.sum(x)


@parts
def refused_by_autograd(x):
    return np.add((x + 1).requires_grad_(), 1)


@parts
def into_an_array(x):
    return np.add(x, x, out=np.zeros((3, 4), np.float32)), np.add.reduce(x)


@parts
def numbers_in_lists(x):
    return torch.tensor([np.float32(2), np.float32(1)]), x.new_tensor(np.float64(2)), torch.tensor(np.float64("nan"))


@whole.each
def test_is_one_graph(fn):
    check_by("eager", fn, X.clone(), breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone())
    check_by("eager", fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())


def warns(x):
    return (np.add(x, 1),
            np.divide(x, 0), np.array(x),
            np.sin(x))


def shown(fn):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        result = outcome(fn, (X.clone(),), {})
    return result, [(str(each.message), each.category, each.filename, each.lineno) for each in log]


def test_warnings_are_those_of_numpy():
    translated = sot.to_static(warns, backend="eager")
    want, said = shown(warns)
    for _ in range(3):
        got, heard = shown(translated)
        assert same(got.result, want.result) is None and heard == said


def test_a_warning_that_is_an_error():
    translated = sot.to_static(warns, backend="eager")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            want, got = outcome(warns, (X,), {}), outcome(translated, (X,), {})
        assert type(want.raised) is type(got.raised) and str(want.raised) == str(got.raised)
