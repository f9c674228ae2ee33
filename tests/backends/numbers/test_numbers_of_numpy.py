"""Numbers of NumPy and complex numbers that change from call to call: Python computes them before the graph, which gets
the result as an input. So a compiling backend compiles two graphs: one with the first number, and one for all others.
"""
from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from harness import Programs, same
from varying_floats import Compiling

import sot

programs = Programs()
X = torch.arange(1.0, 5.0)
NUMBERS = [0.5, 0.75, 1.25, 3.0, -2.0, 10.0, 0.1]


@programs
def a_schedule(v):
    return X * (0.5 * (1 + np.cos(np.pi * v / 20))), np.exp(-v / 10)


@programs
def a_double(v):
    return X * np.float64(v) + float(np.float64(v) / 3)


@programs
def a_single(v):
    rate = np.float32(v) * 0.1
    return X * rate, rate, X.double() - rate, rate > 100


@programs
def an_integer(v):
    step = np.int64(round(v)) + 20
    return X * step, X + int(step), step // 3, -step


@programs
def a_number_in_front(v):
    return np.float64(v) * X, np.float32(v) - X, np.sqrt(abs(v) + 1) / X


@programs
def numpy_beside_python(v):
    scale = np.clip(np.float64(v), -1, 1) if v > 100 else np.minimum(v, 2.5)
    return X * scale, math.floor(scale), scale.item(), int(scale)


@programs
def complex_numbers(v):
    z = complex(v, 1) * 2 - 1j
    return X * z, torch.view_as_complex(X.view(2, 2)) * z, z, z == 3, abs(z), X.double() + z


@programs
def complex_numbers_of_numpy(v):
    return X * np.complex64(complex(1, v)) if v > 100 else X * complex(np.float64(v), 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_two_graphs_are_compiled_for_all_numbers(fn, backend):
    counting = Compiling(backend)
    translated = sot.to_static(fn, backend=counting)
    for v in NUMBERS:
        assert not same(translated(v), fn(v))
    assert counting.graphs <= 2


def scaled(v):
    return X * (v * v), v * v, v / 2, v < 100


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint16, complex,
                                  np.complex128])
def test_numbers_as_arguments(kind):
    """The class of each result is the program's, and so are negative zeros."""
    counting = Compiling("aot_eager")
    fn = scaled if kind not in (complex, np.complex128) else lambda v: (X * (v * v), v * v, v / 2, v == 3)
    translated = sot.to_static(fn, backend=counting)
    for v in (1, 2, 4, 0, 5):
        assert not same(translated(kind(v)), fn(kind(v)))
    assert counting.graphs <= 2


@pytest.mark.parametrize("values", [
    [np.float32(2), np.float32(3), np.float32(3e30), np.float32("inf"), np.float32("nan"), np.float32(1)],
    [np.int64(2), np.int64(3), np.int64(1 << 60), np.int64(-5)],
    [np.int8(2), np.int8(3), np.int8(100), np.int8(4)],
], ids=["overflow", "integers", "small-integers"])
def test_warnings_are_numpys(values):
    """NumPy warns where a number overflows: Python runs such a call, and warns once."""
    translated = sot.to_static(scaled, backend="aot_eager")
    for v in values:
        with warnings.catch_warnings(record=True) as wanted:
            warnings.simplefilter("always")
            expected = scaled(v)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            result = translated(v)
        assert not same(result, expected)
        assert [(w.category, str(w.message), w.lineno) for w in given] == [
            (w.category, str(w.message), w.lineno) for w in wanted]


def test_division_by_zero_is_the_programs():
    def fn(v):
        return X * (1 / complex(v, 0))

    translated = sot.to_static(fn, backend="aot_eager")
    for v in (1.0, 2.0, 4.0):
        assert not same(translated(v), fn(v))
    with pytest.raises(ZeroDivisionError):
        translated(0.0)


def test_a_number_that_is_no_integer():
    def fn(v):
        return X * int(v)

    translated = sot.to_static(fn, backend="aot_eager")
    for v in (1.0, 2.5, 4.0):
        assert not same(translated(np.float32(v)), fn(np.float32(v)))
    with pytest.raises(ValueError, match="cannot convert float NaN"):
        translated(np.float32("nan"))


def test_a_branch_on_such_a_number_is_a_guard():
    def fn(v):
        return X + 1 if v > 2 else X * v

    counting = Compiling("aot_eager")
    translated = sot.to_static(fn, backend=counting)
    for v in (0.5, 0.75, 1.0, 3.0, 4.0, 1.5):
        assert not same(translated(np.float64(v)), fn(np.float64(v)))
    assert counting.graphs <= 3


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_single_complex_numbers_next_to_tensors():
    """torch takes the real part of these, with a warning of NumPy."""
    def fn(v):
        return X * np.complex64(complex(v, 1)), X + np.complex64(1 + 2j)

    translated = sot.to_static(fn, backend="aot_eager")
    for v in (1.0, 2.0, 3.0, 4.0):
        assert not same(translated(v), fn(v))


def test_a_dtype_that_a_number_of_numpy_decides():
    def fn(v):
        return torch.tensor(v) + X

    translated = sot.to_static(fn, backend="aot_eager")
    for v in (1.0, 2.0, 3.0, 4.0):
        assert not same(translated(np.float32(v)), fn(np.float32(v)))
        assert not same(translated(np.float64(v)), fn(np.float64(v)))
