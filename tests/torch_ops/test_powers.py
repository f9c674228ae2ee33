"""Powers of negative numbers, which torch.fx would write as the negative of a power."""
from __future__ import annotations

import math
import operator

import pytest
import torch
from harness import check, check_by

import sot

X = torch.tensor([1.0, 2.0, 3.0, -0.5])
BASES = [-2, -2.0, -1.5, -0.0, -math.inf, -(2**40), True, -True, 2, 0.0, complex(-1, 0)]


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_negative_base(base, backend):
    def f(x):
        return base ** x, pow(base, x), operator.pow(base, x), torch.pow(base, x), x.__rpow__(base), -base ** x
    check(f, X, graphs=1, breaks=0)
    check_by(backend, f, X, breaks=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_base_that_varies(backend):
    def f(x, base):
        return base ** x, (-base) ** x
    translated = sot.to_static(f, backend=backend)
    for base in (-2.0, -3.0, 4.0, -0.0, 0.0):
        assert str(translated(X, base)) == str(f(X, base))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_exponents_that_vary_or_are_read_off_a_tensor(backend):
    def f(x, n, t):
        k = t.item()
        return x * (-2) ** n, x + (-1.5) ** n, (-2) ** k, x * (-2) ** k, (-1.5) ** t, (-2) ** x.shape[0]
    translated = sot.to_static(f, backend=backend)
    for n in (1, 2, 3, 4):
        t = torch.tensor(n)
        assert str(translated(X[:n], n, t)) == str(f(X[:n], n, t))
